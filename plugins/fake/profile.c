/* profile.c: records of the kernels, copies and fills that ran, in a bounded buffer per device.
 *
 * A thread that submits work while records are collected adds a note to it. The thread that runs the work measures the
 * times and appends a record. No other file of the plugin handles profiles, and without a profile each submission costs
 * one load. A record stores the address of its kernel's name. Names of portable kernels are never freed, and module.c
 * keeps the names of unloaded modules once there has been a profile. */
#include <string.h>

#include "sanitize/sanitize.h"

int fake_profile_is_on(int32_t device) {
  return atomic_load_explicit(&fake.devices[device].profile.on, memory_order_relaxed) != 0;
}

/* Returns the device of a launch on no stream: that of its first pointer. */
static int32_t device_of(const hal_arg_t *args, uint32_t arg_count) {
  fake_segment_t segment;
  fake_block_t block;
  for (uint32_t i = 0; fake.settings.sanitize && i < arg_count; i++)
    if (args[i].kind == HAL_ARG_POINTER && fake_arena_find(*(void *const *)args[i].value, &block)) return block.device;
  for (uint32_t i = 0; i < arg_count; i++)
    if (args[i].kind == HAL_ARG_POINTER && fake_memory_find(*(void *const *)args[i].value, &segment) &&
        segment.device != HAL_HOST)
      return segment.device;
  return 0;
}

static const fake_note_t *note(fake_note_t *out_note, int32_t device, hal_plugin_stream_t *stream, uint32_t kind) {
  const int captured = stream && fake_is_captured(stream); /* the work runs later, when records may be collected */
  if (!fake_profile_is_on(device) && !captured && !fake.settings.sanitize) return NULL;
  const int current = hal_host->struct_size >= HAL_STRUCT_SIZE(hal_host_api_t, profile_correlation);
  *out_note = (fake_note_t){.correlation = current ? hal_host->profile_correlation() : 0,
                            .stream = stream,
                            .device = device,
                            .kind = (uint16_t)kind};
  return out_note;
}

/* The same for work that is submitted now. */
static const fake_note_t *note_new(fake_noted_t *out_note, int32_t device, hal_plugin_stream_t *stream, uint32_t kind) {
  const fake_note_t *const made = note(&out_note->note, device, stream, kind);
  if (made && fake.settings.sanitize) fake_sanitize_submit(stream, &out_note->trace);
  return made;
}

void fake_note_end(const fake_note_t *note) {
  if (!note || !fake.settings.sanitize) return;
  fake_clock_drop(fake_note_trace(note)->clock);
  fake_note_trace(note)->clock = NULL;
}

const fake_note_t *fake_note_launch(fake_noted_t *out_note, hal_plugin_stream_t *stream, const hal_arg_t *args,
                                    uint32_t arg_count) {
  return note_new(out_note, stream ? stream->device : device_of(args, arg_count), stream, HAL_PROFILE_KERNEL);
}

const fake_note_t *fake_note_again(fake_noted_t *out_note, const fake_note_t *captured, hal_plugin_stream_t *stream) {
  if (!note(&out_note->note, captured->device, stream, captured->kind)) return NULL;
  out_note->note.bytes = captured->bytes;
  out_note->note.direction = captured->direction;
  return &out_note->note;
}

const fake_note_t *fake_note_copy(fake_noted_t *out_note, hal_plugin_stream_t *stream, int32_t dst_device,
                                  int32_t src_device, uint64_t size) {
  const int32_t other = dst_device == HAL_HOST ? src_device : dst_device;
  const int32_t device = stream ? stream->device : other;
  if (device == HAL_HOST || !note_new(out_note, device, stream, HAL_PROFILE_COPY)) return NULL;
  out_note->note.bytes = size;
  out_note->note.direction =
      (uint16_t)(dst_device == src_device ? (dst_device == HAL_HOST ? HAL_COPY_UNKNOWN : HAL_COPY_DEVICE_TO_DEVICE)
                 : src_device == HAL_HOST ? HAL_COPY_HOST_TO_DEVICE
                 : dst_device == HAL_HOST ? HAL_COPY_DEVICE_TO_HOST
                                          : HAL_COPY_PEER);
  return &out_note->note;
}

const fake_note_t *fake_note_fill(fake_noted_t *out_note, hal_plugin_stream_t *stream, int32_t device, uint64_t size) {
  if (!note_new(out_note, device, stream, HAL_PROFILE_FILL)) return NULL;
  out_note->note.bytes = size;
  return &out_note->note;
}

/* ---- collecting ------------------------------------------------------------------------------------------------- */

static void append(const fake_note_t *note, const char *name, int64_t start, int64_t end) {
  fake_profile_t *profile = &fake.devices[note->device].profile;
  fake_lock(&profile->lock);
  if (!fake_profile_is_on(note->device)) {
    fake_unlock(&profile->lock); /* disabled meanwhile */
    return;
  }
  if (profile->count == fake.settings.profile) {
    profile->lost++;
  } else {
    profile->records[profile->count++] = (hal_profile_record_t){.struct_size = sizeof(hal_profile_record_t),
                                                                .name = name,
                                                                .start_ns = start,
                                                                .end_ns = end,
                                                                .correlation = note->correlation,
                                                                .bytes = note->bytes,
                                                                .stream = note->stream,
                                                                .kind = note->kind,
                                                                .direction = note->direction};
  }
  fake_unlock(&profile->lock);
}

void fake_run_noted(const fake_note_t *note, hal_plugin_stream_t *owner, const hal_host_kernel_t *kernel,
                    const hal_host_range_t *range, void *const *args) {
  const int64_t start = fake_now();
  const fake_trace_t *const trace = fake_note_trace(note);
  if (trace && fake_races()) fake_race_begin(trace, kernel->name);
  if (owner) owner->trace = trace;
  if (!owner && trace) /* without helpers, which would not have the trace */
    fake_sanitize_compute(NULL, trace, kernel, range, args);
  else
    fake_run(owner, kernel, range, args);
  if (owner) owner->trace = NULL;
  if (fake_profile_is_on(note->device)) append(note, kernel->name, start, fake_now());
}

/* ---- the ops ---------------------------------------------------------------------------------------------------- */

/* Virtual memory until it is written. */
static hal_status_t new_buffer(hal_profile_record_t **out_records) {
  const size_t bytes = fake.settings.profile * sizeof **out_records;
  *out_records = hal_host->mem_alloc(bytes, alignof(hal_profile_record_t));
  if (*out_records) return HAL_OK;
  return fake_error(
      HAL_RESOURCE_EXHAUSTED, 0,
      "fake: no host memory for the %zu bytes of a profile's buffer; set HAL_FAKE_PROFILE to fewer records "
      "than %llu",
      bytes, (unsigned long long)fake.settings.profile);
}

hal_status_t hal_plugin_profile_enable(int32_t device, int32_t on) {
  hal_status_t status = fake_check_device(device);
  if (status) return status;
  fake_profile_t *profile = &fake.devices[device].profile;
  hal_profile_record_t *records = NULL, *surplus = NULL;
  if (on) status = new_buffer(&records);
  if (status) return status;
  fake_lock(&profile->lock);
  const int changes = !on != !fake_profile_is_on(device);
  surplus = on && changes ? profile->records : records;
  if (on && changes) {
    profile->records = records;
    profile->count = 0;
    profile->lost = 0;
  }
  if (changes) {
    atomic_store_explicit(&profile->on, on != 0, memory_order_relaxed);
    if (on)
      atomic_fetch_add_explicit(&fake.profiled, 1, memory_order_relaxed);
    else
      atomic_fetch_sub_explicit(&fake.profiled, 1, memory_order_relaxed);
  }
  if (on) atomic_store_explicit(&fake.keep_names, 1, memory_order_relaxed);
  fake_unlock(&profile->lock);
  hal_host->mem_free(surplus);
  return HAL_OK;
}

/* Removes the buffer, so that work continues while its records are read. */
hal_status_t hal_plugin_profile_read(int32_t device, hal_profile_sink_t sink, void *user_data) {
  hal_status_t status = fake_check_device(device);
  if (status) return status;
  fake_profile_t *profile = &fake.devices[device].profile;
  hal_profile_record_t *fresh = NULL;
  if (fake_profile_is_on(device)) status = new_buffer(&fresh);
  if (status) return status;
  fake_lock(&profile->lock);
  hal_profile_record_t *const records = profile->records;
  const uint64_t count = profile->count, lost = profile->lost;
  /* Otherwise a profile was started meanwhile, with a new buffer */
  const int keep = fresh || !fake_profile_is_on(device);
  if (keep) {
    profile->records = fresh;
    profile->count = 0;
    profile->lost = 0;
  }
  fake_unlock(&profile->lock);
  if (!keep) return HAL_OK;
  for (uint64_t i = 0; i < count; i++) sink(user_data, &records[i]);
  const int64_t now = fake_now();
  const hal_profile_record_t missing = {.struct_size = sizeof missing,
                                        .name = "",
                                        .start_ns = now,
                                        .end_ns = now,
                                        .bytes = lost,
                                        .kind = HAL_PROFILE_LOST};
  if (lost) sink(user_data, &missing);
  hal_host->mem_free(records);
  return HAL_OK;
}

void fake_profile_forget(int32_t device) {
  fake_profile_t *profile = &fake.devices[device].profile;
  hal_plugin_profile_enable(device, 0); /* disabling it does not fail */
  fake_lock(&profile->lock);
  hal_profile_record_t *const records = profile->records;
  profile->records = NULL;
  profile->count = profile->lost = 0;
  fake_unlock(&profile->lock);
  hal_host->mem_free(records);
}

/* The child has no streams that run; the parent's records do not belong to it. */
void fake_profile_fork_child(void) {
  for (int32_t i = 0; i < fake.device_count; i++) {
    fake_profile_t *profile = &fake.devices[i].profile;
    fake_lock_reset(&profile->lock);
    atomic_store_explicit(&profile->on, 0, memory_order_relaxed);
    profile->count = profile->lost = 0;
  }
  atomic_store_explicit(&fake.profiled, fake.settings.sanitize != 0, memory_order_relaxed);
}
