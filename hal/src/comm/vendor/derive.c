/* derive.c: communicators that a library derives from another of its communicators, by comm_split and comm_shrink. If
 * it cannot, or does not on one rank, the ranks connect anew. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/host_malloc.h"
#include "comm/vendor/join.h"
#include "device/device.h"
#include "hal/log.h"
#include "hal/status.h"
#include "plugin/call.h"

/* ---- the parent's turn ---- */

/* Takes the parent's lock of submissions; with `idle`, when no job of lane 0 is left. Callbacks of jobs may submit
 * collectives, so the lock is free while this function waits for the jobs. */
static hal_status_t take_turn(hal_comm_vendor_t *parent, int idle, int64_t end_ns) {
  for (;;) {
    hal_callbacks_defer();
    if (hal_try_lock(&parent->order)) {
      if (!idle || !atomic_load(&parent->on_lane)) return HAL_OK;
      hal_unlock(&parent->order);
    }
    hal_callbacks_resume();
    HAL_RETURN_IF_ERROR(hal_comm_failure_get(&parent->comm->failure));
    if (hal_clock_ns() >= end_ns)
      return hal_error_set(HAL_NOT_READY, "group '%s': its earlier collectives have not ended in time",
                           parent->comm->name);
    hal_comm_lanes_wake(parent->comm);
    nanosleep(&(struct timespec){.tv_nsec = 200 * 1000}, NULL);
  }
}

static void end_turn(hal_comm_vendor_t *parent) { hal_unlock_and_run(&parent->order); }

/* ---- steps that both have in common ---- */

/* The library's call has ended on this rank with `status`: waits for the other ranks. */
static hal_status_t complete(hal_comm_join_t *join, uint32_t slot, hal_status_t status) {
  hal_comm_vendor_t *const vendor = join->vendor;
  hal_plugin_t *const plugin = vendor ? vendor->plugin : NULL;
  if (status && vendor) vendor->handle = NULL;
  if (status && plugin) hal_error_plugin(plugin, slot, status);
  if (!status && vendor) status = hal_comm_watch_begin(vendor);
  hal_comm_join_show(join, status);
  HAL_RETURN_IF_ERROR(hal_comm_join_exchange(join));
  return hal_comm_join_follow(join);
}

static hal_status_t make_child(hal_comm_join_t *join, const hal_comm_vendor_t *parent, uint32_t flags) {
  if (!join->comm) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_comm_join_make(join->comm, parent->plugin, flags, &join->vendor));
  join->vendor->info = parent->info;
  return HAL_OK;
}

/* Ends a join. The ranks connect anew where the library has refused on one of them. */
static hal_status_t end(hal_comm_join_t *join, hal_status_t status, uint32_t flags) {
  hal_comm_t *const comm = join->comm;
  const int64_t left = join->end_ns - hal_clock_ns();
  if (!status && comm) status = hal_comm_join_use(join);
  if (status) hal_comm_join_drop(join->vendor);
  hal_free(join);
  if (status != HAL_UNIMPLEMENTED) return status;
  hal_log(HAL_LOG_INFO, "%s; the ranks connect anew", hal_error_message());
  return comm ? hal_comm_connect_library(comm, flags, left > 0 ? left : 1) : HAL_OK;
}

static hal_status_t check_child(hal_comm_t *parent, hal_comm_t *child, uint32_t flags) {
  if (!child) return HAL_OK;
  HAL_RETURN_IF_ERROR(hal_comm_join_check(child, flags));
  if (child->device == parent->device) return HAL_OK;
  return hal_error_set(HAL_INVALID_ARGUMENT,
                       "group '%s' uses device %d, group '%s', which it is made of, device %d; expected the same one",
                       child->name, child->device, parent->name, parent->device);
}

/* ---- comm_split ---- */

/* Checks that the group of each rank is the part that its color and key define. The result is the same on all ranks. */
static hal_status_t compare_parts(const hal_comm_join_t *join) {
  const int32_t size = join->meeting->size;
  for (int32_t i = 0; i < size; i++) {
    const hal_comm_shown_t *const one = &join->all[i];
    int32_t rank = 0, ranks = 0;
    if (one->color < 0) continue;
    for (int32_t j = 0; j < size; j++) {
      const hal_comm_shown_t *const other = &join->all[j];
      if (other->color != one->color) continue;
      ranks++;
      rank += other->key != one->key ? other->key < one->key : j < i;
    }
    if (rank != one->rank || ranks != one->size)
      return hal_error_set(HAL_INVALID_ARGUMENT,
                           "group '%s': rank %d brings a group in which it is rank %d of %d; by color %d and key %d it "
                           "is rank %d of %d",
                           join->meeting->name, i, one->rank, one->size, one->color, one->key, rank, ranks);
  }
  return HAL_OK;
}

static hal_status_t split(hal_comm_join_t *join, hal_comm_vendor_t *parent, uint32_t flags) {
  hal_plugin_comm_t *handle = NULL;
  hal_comm_join_show(join, make_child(join, parent, flags));
  HAL_RETURN_IF_ERROR(hal_comm_join_exchange(join));
  HAL_RETURN_IF_ERROR(compare_parts(join));
  const hal_comm_desc_t desc = hal_comm_join_desc(join, &parent->info);
  hal_status_t status =
      hal_call_comm_split(parent->plugin, parent->handle, join->own.color, join->own.key, &desc, &handle);
  if (!status && join->vendor) join->vendor->handle = handle;
  if (join->vendor) status = hal_plugin_made(status, handle);
  return complete(join, HAL_SLOT_comm_split, status);
}

hal_status_t hal_comm_split_library(hal_comm_t *parent, int32_t color, int32_t key, hal_comm_t *child, uint32_t flags,
                                    int64_t timeout_ns) {
  hal_comm_vendor_t *const vendor = parent->vendor;
  hal_comm_join_t *join;
  char origin[96];
  if (color < -1 || (color >= 0) != (child != NULL))
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_comm_split_library: color %d with %s communicator; expected one with a color from 0 on, "
                         "none with -1",
                         color, child ? "a" : "no");
  HAL_RETURN_IF_ERROR(check_child(parent, child, flags));
  if (!vendor || !(vendor->info.flags & HAL_COMM_CAN_SPLIT)) /* the same on all ranks */
    return child ? hal_comm_connect_library(child, flags, timeout_ns) : HAL_OK;
  HAL_RETURN_IF_ERROR(hal_comm_error(parent));
  HAL_RETURN_IF_ERROR(hal_comm_join_begin(parent, child, timeout_ns, &join));
  snprintf(origin, sizeof origin, ", split from group '%s'", parent->name);
  join->origin = origin;
  join->own.color = color, join->own.key = key;
  if (child) join->own.rank = child->rank, join->own.size = child->size;
  hal_status_t status = take_turn(vendor, 1, join->end_ns);
  if (status) {
    hal_comm_abort(parent, hal_error_message()); /* the other ranks wait for this one */
  } else {
    status = split(join, vendor, flags);
    /* The library may have counted the attempt on only one rank, so all ranks stop using comm_split. */
    if (status == HAL_UNIMPLEMENTED) vendor->info.flags &= ~HAL_COMM_CAN_SPLIT;
    end_turn(vendor);
  }
  return end(join, status, flags);
}

/* ---- comm_shrink ---- */

/* Errors, of this rank: it cannot take part. */
static hal_status_t prepare(hal_comm_join_t *join, hal_comm_t *parent, const int32_t *excluded, uint32_t count,
                            uint32_t flags) {
  const hal_comm_vendor_t *const vendor = parent->vendor;
  int32_t rank = parent->rank;
  for (uint32_t i = 0; i < count; i++) rank -= excluded[i] < parent->rank;
  if (!vendor || !(vendor->info.flags & HAL_COMM_CAN_SHRINK))
    return hal_error_set(HAL_UNIMPLEMENTED, "no library of group '%s' makes a group without some ranks", parent->name);
  if (atomic_load(&vendor->is_aborted))
    return hal_error_set(HAL_UNIMPLEMENTED, "group '%s' has failed, which ended its library", parent->name);
  if (rank != join->comm->rank || parent->size - (int32_t)count != join->comm->size)
    return hal_error_set(HAL_INVALID_ARGUMENT, "rank %d of %d without %u ranks is rank %d of %d, not %d of %d",
                         parent->rank, parent->size, count, rank, parent->size - (int32_t)count, join->comm->rank,
                         join->comm->size);
  return make_child(join, vendor, flags);
}

/* Only the remaining ranks meet, over the new communicator's transport: the parent's may wait for a rank that has
 * ended. */
static hal_status_t shrink(hal_comm_join_t *join, hal_comm_t *parent, const int32_t *excluded, uint32_t count,
                           uint32_t shrink_flags, uint32_t flags) {
  hal_comm_vendor_t *const vendor = parent->vendor;
  hal_plugin_comm_t *handle = NULL;
  hal_comm_join_show(join, prepare(join, parent, excluded, count, flags));
  HAL_RETURN_IF_ERROR(hal_comm_join_exchange(join));
  hal_status_t status = take_turn(vendor, !(shrink_flags & HAL_COMM_SHRINK_ABORT), join->end_ns);
  if (!status) {
    const hal_comm_desc_t desc = hal_comm_join_desc(join, &vendor->info);
    status = hal_call_comm_shrink(vendor->plugin, vendor->handle, excluded, count, shrink_flags, &desc, &handle);
    status = hal_plugin_made(status, handle);
    join->vendor->handle = status ? NULL : handle;
    end_turn(vendor);
  }
  return complete(join, HAL_SLOT_comm_shrink, status);
}

hal_status_t hal_comm_shrink_library(hal_comm_t *parent, const int32_t *excluded, uint32_t count, uint32_t shrink_flags,
                                     hal_comm_t *child, uint32_t flags, int64_t timeout_ns) {
  hal_comm_join_t *join;
  char origin[96];
  if (shrink_flags & ~HAL_COMM_SHRINK_ABORT)
    return hal_error_set(HAL_INVALID_ARGUMENT, "hal_comm_shrink_library: unknown flags 0x%x; known flags are 0x%x",
                         shrink_flags & ~HAL_COMM_SHRINK_ABORT, HAL_COMM_SHRINK_ABORT);
  for (uint32_t i = 0; i < count; i++)
    if (excluded[i] < 0 || excluded[i] >= parent->size || excluded[i] == parent->rank)
      return hal_error_set(HAL_INVALID_ARGUMENT, "hal_comm_shrink_library: rank %d of %d cannot exclude rank %d",
                           parent->rank, parent->size, excluded[i]);
  HAL_RETURN_IF_ERROR(check_child(parent, child, flags));
  HAL_RETURN_IF_ERROR(hal_comm_join_begin(child, child, timeout_ns, &join));
  snprintf(origin, sizeof origin, ", shrunk from group '%s'", parent->name);
  join->origin = origin;
  const hal_status_t status = shrink(join, parent, excluded, count, shrink_flags, flags);
  return end(join, status, flags);
}
