/* join.c: connects the ranks by the library of the device's plugin, and ends the connection. Over the transport, the
 * ranks exchange what each of them supports, and the result of each step. So all ranks use the library or none, and no
 * rank waits for a rank that has failed. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host_malloc.h"
#include "base/life.h"
#include "base/status_internal.h"
#include "comm/vendor/join.h"
#include "comm/vendor/memory.h"
#include "device/device.h"
#include "hal/device.h"
#include "hal/log.h"
#include "hal/status.h"
#include "plugin/call.h"
#include "plugin/slots.h"

static const int64_t second_ns = 1000000000, first_pause_ns = 500 * 1000, longest_pause_ns = 20 * 1000 * 1000;

/* ---- steps ---- */

void hal_comm_join_show(hal_comm_join_t *join, hal_status_t status) {
  join->own.status = status;
  snprintf(join->own.words, sizeof join->own.words, "%s", status ? hal_error_message() : "");
}

static hal_status_t run_transport(const hal_comm_join_t *join, hal_collective_t call) {
  const hal_comm_transport_t *const transport = &join->meeting->transport;
  const int64_t left = join->end_ns - hal_clock_ns();
  call.struct_size = sizeof call;
  call.dtype = HAL_UINT8;
  /* The limit is longer than the library's, so that a rank whose library has timed out can report it. */
  return transport->run(transport->context, &call, 1, (left > 0 ? left : 0) + 2 * second_ns);
}

/* Sets the message of a rank that cannot go on; the same on all ranks. */
static hal_status_t refuse(const hal_comm_join_t *join, int32_t rank, const char *words) {
  return hal_error_set(HAL_UNIMPLEMENTED,
                       "group '%s': rank %d cannot use the collectives library of its plugin, so that no rank does: %s",
                       join->meeting->name, rank, words);
}

hal_status_t hal_comm_join_exchange(hal_comm_join_t *join) {
  hal_comm_t *const meeting = join->meeting;
  const hal_collective_t gather = {
      .op = HAL_COMM_ALL_GATHER, .send = &join->own, .recv = join->all, .count = sizeof join->own};
  hal_status_t status = run_transport(join, gather);
  if (status) {
    hal_error_prefix(status, "group '%s': connecting the library of the plugin: ", meeting->name);
    hal_comm_failure_set(&meeting->failure, status);
    return status;
  }
  for (int32_t rank = 0; rank < meeting->size; rank++) {
    hal_comm_shown_t *const shown = &join->all[rank];
    shown->words[sizeof shown->words - 1] = shown->info.name[sizeof shown->info.name - 1] =
        '\0'; /* of other processes */
    if (shown->status && shown->status != HAL_NOT_READY) return refuse(join, rank, shown->words);
    if (shown->status) status = HAL_NOT_READY;
  }
  return status;
}

/* ---- the first step: what each rank has ---- */

/* Returns a number of the running system. Ranks on one machine have the same number. */
static uint64_t host_number(void) {
  char text[64] = "";
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  FILE *const file = fopen("/proc/sys/kernel/random/boot_id", "r");
  const size_t size = file ? fread(text, 1, sizeof text, file) : 0;
  if (file) fclose(file);
  for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
  return size ? hash : 0;
}

static hal_status_t make_id(hal_comm_join_t *join, int32_t ordinal) {
  hal_plugin_t *const plugin = join->vendor->plugin;
  size_t size = 0;
  const hal_status_t status = hal_call_comm_unique_id(plugin, ordinal, 0, join->id, sizeof join->id, &size);
  if (status) return hal_error_plugin(plugin, HAL_SLOT_comm_unique_id, status);
  if (!size || size > sizeof join->id)
    return hal_error_set(HAL_INTERNAL, "plugin %s made an id of %zu bytes; expected 1 to %zu", plugin->info.name, size,
                         sizeof join->id);
  join->own.id_size = (uint32_t)size;
  return HAL_OK;
}

static hal_status_t find_library(hal_comm_join_t *join, int32_t ordinal) {
  hal_plugin_t *const plugin = join->vendor->plugin;
  hal_comm_info_t *const info = &join->own.info;
  info->struct_size = sizeof *info;
  const hal_status_t status = hal_call_comm_info(plugin, ordinal, info);
  if (status) return hal_error_plugin(plugin, HAL_SLOT_comm_info, status);
  info->name[sizeof info->name - 1] = '\0';
  info->struct_size = sizeof *info;
  if (info->max_ranks && (uint32_t)join->comm->size > info->max_ranks)
    return hal_error_set(HAL_UNIMPLEMENTED, "library %s connects at most %u ranks, and the group has %d", info->name,
                         info->max_ranks, join->comm->size);
  join->own.host = host_number();
  join->own.process = getpid();
  return join->comm->rank ? HAL_OK : make_id(join, ordinal);
}

static hal_status_t compare_ranks(const hal_comm_join_t *join) {
  const hal_comm_shown_t *const first = &join->all[0];
  char words[HAL_COMM_WORDS];
  for (int32_t rank = 1; rank < join->comm->size; rank++) {
    const hal_comm_shown_t *const other = &join->all[rank];
    if (memcmp(&first->info, &other->info, sizeof first->info)) {
      snprintf(words, sizeof words, "it has %s (version %u), rank 0 has %s (version %u), and what they list differs",
               other->info.name, other->info.version, first->info.name, first->info.version);
      return refuse(join, rank, words);
    }
    if (first->host != other->host && !(first->info.flags & HAL_COMM_CAN_CROSS_HOSTS)) {
      snprintf(words, sizeof words, "library %s connects ranks of one host, and it runs on another one than rank 0",
               first->info.name);
      return refuse(join, rank, words);
    }
    if ((first->host != other->host || first->process != other->process) &&
        (first->info.flags & HAL_COMM_WITHIN_PROCESS)) {
      snprintf(words, sizeof words, "library %s connects threads of one process, and it is in another one than rank 0",
               first->info.name);
      return refuse(join, rank, words);
    }
  }
  return HAL_OK;
}

/* ---- the communicator of the library ---- */

hal_comm_desc_t hal_comm_join_desc(const hal_comm_join_t *join, const hal_comm_info_t *info) {
  const int64_t left = join->end_ns - hal_clock_ns();
  return (hal_comm_desc_t){
      .struct_size = sizeof(hal_comm_desc_t),
      .flags = info->flags & HAL_COMM_CAN_NONBLOCKING ? HAL_COMM_NONBLOCKING : 0,
      .priority = hal_stream_priority(join->meeting->out),
      .timeout_ns = left > 0 ? left : 1,
      .name = join->comm ? join->comm->name : join->meeting->name,
  };
}

static hal_status_t create(hal_comm_join_t *join, int32_t ordinal) {
  hal_comm_vendor_t *const vendor = join->vendor;
  hal_comm_desc_t desc = hal_comm_join_desc(join, &vendor->info);
  desc.id = join->id, desc.id_size = join->all[0].id_size;
  desc.rank = join->comm->rank, desc.size = join->comm->size;
  hal_status_t status = hal_call_comm_create(vendor->plugin, ordinal, &desc, &vendor->handle);
  status = hal_error_plugin_made(vendor->plugin, HAL_SLOT_comm_create, status, vendor->handle);
  if (!status) return hal_comm_watch_begin(vendor);
  vendor->handle = NULL;
  return status;
}

/* Returns the state of the creation on this rank; HAL_NOT_READY = it has not ended. */
static hal_status_t query(const hal_comm_join_t *join) {
  const hal_comm_vendor_t *const vendor = join->vendor;
  hal_comm_state_t state = {.struct_size = sizeof state};
  if (!vendor || !vendor->handle) return HAL_OK; /* this rank joins nothing */
  const hal_status_t status = hal_call_comm_query(vendor->plugin, vendor->handle, &state);
  if (status) return hal_error_plugin(vendor->plugin, HAL_SLOT_comm_query, status);
  state.message[sizeof state.message - 1] = '\0';
  if (state.state == HAL_COMM_READY) return HAL_OK;
  if (state.state != HAL_COMM_CREATING)
    return hal_error_set(HAL_UNAVAILABLE, "library %s: %s (native code %lld)", vendor->info.name,
                         *state.message ? state.message : "no reason reported", (long long)state.native_code);
  if (hal_clock_ns() < join->end_ns) return hal_error_set(HAL_NOT_READY, "library %s: connecting", vendor->info.name);
  return hal_error_set(HAL_UNAVAILABLE, "library %s has not connected the ranks in time", vendor->info.name);
}

hal_status_t hal_comm_join_follow(hal_comm_join_t *join) {
  hal_status_t status;
  for (int64_t pause_ns = first_pause_ns;; pause_ns = pause_ns < longest_pause_ns ? 2 * pause_ns : pause_ns) {
    hal_comm_join_show(join, query(join));
    status = hal_comm_join_exchange(join);
    if (status != HAL_NOT_READY) return status;
    nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
  }
}

static hal_status_t connect_ranks(hal_comm_join_t *join, int32_t ordinal) {
  const hal_collective_t broadcast = {
      .op = HAL_COMM_BROADCAST, .send = join->comm->rank ? NULL : join->id, .recv = join->id, .count = sizeof join->id};
  hal_comm_join_show(join, find_library(join, ordinal));
  HAL_RETURN_IF_ERROR(hal_comm_join_exchange(join));
  HAL_RETURN_IF_ERROR(compare_ranks(join));
  if (!join->all[0].id_size || join->all[0].id_size > sizeof join->id)
    return refuse(join, 0, "the size of its id is invalid");
  join->vendor->info = join->own.info;
  const hal_status_t status = run_transport(join, broadcast);
  if (status) {
    hal_comm_failure_set(&join->comm->failure, status);
    return status;
  }
  hal_comm_join_show(join, create(join, ordinal));
  HAL_RETURN_IF_ERROR(hal_comm_join_exchange(join));
  return hal_comm_join_follow(join);
}

/* ---- lifetime ---- */

/* Ends the library's communicator without the other ranks. */
static void free_handle(hal_comm_vendor_t *vendor, const char *reason) {
  if (!vendor->handle) return;
  HAL_CALL_AFTER(vendor->plugin, comm_abort, vendor->handle, reason);
  HAL_CALL_AFTER(vendor->plugin, comm_destroy, vendor->handle, second_ns);
  vendor->handle = NULL;
}

static void free_vendor(hal_comm_vendor_t *vendor) {
  hal_event_destroy(vendor->ready);
  hal_event_destroy(vendor->tail);
  hal_free(vendor);
}

void hal_comm_join_drop(hal_comm_vendor_t *vendor) {
  if (!vendor) return;
  hal_comm_watch_end(vendor);
  free_handle(vendor, "a rank cannot use the library");
  free_vendor(vendor);
}

hal_status_t hal_comm_join_make(hal_comm_t *comm, hal_plugin_t *plugin, uint32_t flags, hal_comm_vendor_t **out) {
  hal_comm_vendor_t *const vendor = hal_calloc(1, sizeof *vendor);
  if (!vendor) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for a library of %d ranks", comm->size);
  vendor->comm = comm;
  vendor->plugin = plugin;
  vendor->flags = flags;
  vendor->last = &vendor->first;
  hal_status_t status = hal_event_create(comm->device, 0, &vendor->ready);
  if (!status) status = hal_event_create(comm->device, 0, &vendor->tail);
  if (!status && !comm->owned) status = hal_stream_take(comm->device, -1, &comm->owned);
  if (status) {
    free_vendor(vendor);
    return status;
  }
  *out = vendor;
  return HAL_OK;
}

hal_status_t hal_comm_join_check(hal_comm_t *comm, uint32_t flags) {
  const uint32_t known = HAL_COMM_COMPARE_CALLS | HAL_COMM_REGISTER_MEMORY;
  if (flags & ~known)
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_comm_connect_library: unknown flags 0x%x; known flags are 0x%x",
                         flags & ~known, known);
  if (hal_life_ended() || comm->vendor || hal_comm_sequence(comm))
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "group '%s': a library is connected once, before the first collective, in the process that "
                         "created the group",
                         comm->name);
  return hal_comm_error(comm);
}

hal_status_t hal_comm_join_use(hal_comm_join_t *join) {
  hal_comm_t *const comm = join->comm;
  comm->vendor = join->vendor;
  comm->out = comm->owned;
  hal_comm_memory_begin(comm->vendor);
  hal_log(HAL_LOG_INFO, "group '%s': collectives run in library %s (version %u)%s", comm->name, comm->vendor->info.name,
          comm->vendor->info.version, join->origin);
  return HAL_OK;
}

/* A rank without memory takes part nevertheless: the others wait for its record. */
static hal_status_t join_ranks(hal_comm_join_t *join, hal_plugin_t *plugin, int32_t ordinal, uint32_t flags) {
  hal_status_t status = hal_comm_join_make(join->comm, plugin, flags, &join->vendor);
  if (status) {
    hal_comm_join_show(join, status);
    return hal_comm_join_exchange(join);
  }
  status = connect_ranks(join, ordinal);
  if (!status) return hal_comm_join_use(join);
  hal_comm_join_drop(join->vendor);
  return status;
}

hal_status_t hal_comm_join_begin(hal_comm_t *meeting, hal_comm_t *comm, int64_t timeout_ns,
                                 hal_comm_join_t **out_join) {
  hal_comm_join_t *const join = hal_calloc(1, sizeof *join + (size_t)meeting->size * sizeof *join->all);
  if (!join) {
    const hal_status_t status =
        hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for what %d ranks show", meeting->size);
    hal_comm_abort(meeting, hal_error_message());
    return status;
  }
  const int64_t time_ns = timeout_ns > 0 ? timeout_ns : meeting->timeout_ns;
  join->meeting = meeting;
  join->comm = comm;
  join->origin = "";
  join->all = (hal_comm_shown_t *)(join + 1);
  if (__builtin_add_overflow(hal_clock_ns(), time_ns, &join->end_ns)) join->end_ns = INT64_MAX - 4 * second_ns;
  *out_join = join;
  return HAL_OK;
}

hal_status_t hal_comm_connect_library(hal_comm_t *comm, uint32_t flags, int64_t timeout_ns) {
  hal_device_t *device;
  hal_comm_join_t *join;
  HAL_RETURN_IF_ERROR(hal_comm_join_check(comm, flags));
  HAL_RETURN_IF_ERROR(hal_device_get(comm->device, &device));
  if (!hal_slot_is_provided(&device->plugin->api, HAL_SLOT_comm_info)) /* the same on all ranks: nothing to exchange */
    return hal_error_set(HAL_UNIMPLEMENTED, "group '%s': plugin %s has no collectives library", comm->name,
                         device->plugin->info.name);
  HAL_RETURN_IF_ERROR(hal_comm_join_begin(comm, comm, timeout_ns, &join));
  hal_status_t status = join_ranks(join, device->plugin, device->ordinal, flags);
  hal_free(join);
  if (status != HAL_UNIMPLEMENTED) return status; /* which is the same on all ranks */
  hal_error_saved_t saved;
  hal_error_save(&saved);
  HAL_RETURN_IF_ERROR(hal_comm_share_device(comm, timeout_ns > 0 ? timeout_ns : comm->timeout_ns));
  hal_error_restore(&saved);
  return status;
}

const char *hal_comm_library(const hal_comm_t *comm) { return comm->vendor ? comm->vendor->info.name : ""; }

int hal_comm_vendor_drain(hal_comm_vendor_t *vendor, int64_t timeout_ns) {
  hal_comm_t *const comm = vendor->comm;
  if (atomic_load(&comm->failure.set) || hal_event_record(vendor->tail, comm->out)) return 0;
  return !hal_comm_event_await(vendor->tail, timeout_ns, &comm->failure, "collectives");
}

void hal_comm_vendor_destroy(hal_comm_vendor_t *vendor, int64_t timeout_ns) {
  hal_comm_watch_end(vendor);
  hal_comm_memory_end(vendor);
  hal_status_t status = HAL_ABORTED;
  if (!atomic_load(&vendor->comm->failure.set) && timeout_ns > 0)
    status = hal_call_comm_destroy(vendor->plugin, vendor->handle, timeout_ns);
  if (status) free_handle(vendor, "the group was destroyed");
  free_vendor(vendor);
}
