/* defaults.h: what each op of kind D does when a plugin does not provide it.
 *
 * One source, compiled twice: into the archive (base.c), where an op is hal_plugin_<name>, and into the host (tail.c),
 * where it is hal_call_<name>(plugin, ...), for the tail slots that a plugin built against an older header does not
 * have. Defaults never call a default directly. The includer defines
 *
 *   HAL_DEFAULT(name, params...)         the head of the default's definition
 *   HAL_SELF(name, args...)              a call of another op of the same plugin: an override of it improves this
 *                                        default
 *   HAL_DEFAULT_SELF, HAL_DEFAULT_PASS   what a helper needs for HAL_SELF, as parameter and as argument
 *   HAL_DEFAULT_ERROR(code, text)        a failure with a message */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "hal/plugin.h"
#include "hal/plugin_flags.h"
#include "random.h"

static int64_t default_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- plugin and devices ---- */

HAL_DEFAULT(probe, uint32_t flags) { return hal_flags_check("probe", flags, 0); }

HAL_DEFAULT(init, const char *options) {
  (void)options;
  return HAL_OK;
}

HAL_DEFAULT(shutdown, uint32_t flags) { return hal_flags_check("shutdown", flags, 0); }

HAL_DEFAULT(device_info, int32_t device, hal_device_info_t *out_info) {
  if (out_info->struct_size >= HAL_STRUCT_SIZE(hal_device_info_t, name))
    snprintf(out_info->name, sizeof out_info->name, "device %d", (int)device);
  return HAL_OK;
}

HAL_DEFAULT(device_watch, int32_t device, uint32_t kinds, hal_device_event_fn_t fn, void *user_data) {
  (void)device, (void)kinds, (void)fn, (void)user_data;
  return HAL_OK;
}

HAL_DEFAULT(device_synchronize, int32_t device) {
  (void)device;
  return HAL_OK;
}

HAL_DEFAULT(device_peer_query, int32_t device, int32_t peer, int32_t *out_accessible) {
  (void)device, (void)peer;
  *out_accessible = 0;
  return HAL_OK;
}

/* ---- memory ---- */

HAL_DEFAULT(memory_alloc_async, int32_t device, hal_plugin_stream_t *stream, size_t size, uint32_t flags,
            void **out_ptr) {
  (void)stream;
  return HAL_SELF(memory_alloc, device, size, flags, out_ptr);
}

HAL_DEFAULT(memory_free_async, int32_t device, hal_plugin_stream_t *stream, void *ptr) {
  const hal_status_t status = HAL_SELF(stream_synchronize, stream);
  const hal_status_t freed = HAL_SELF(memory_free, device, ptr);
  return status ? status : freed;
}

/* 4 KiB: large enough to amortize a copy call, small enough for any thread's stack. */
enum { DEFAULT_FILL_BYTES = 4096 };

/* Copies the first `done` bytes to the following ones until `size` bytes are filled: each copy doubles them.
 * UNIMPLEMENTED = the plugin does not copy within a device. */
static hal_status_t default_fill_double(HAL_DEFAULT_SELF hal_plugin_stream_t *stream, int32_t device, uint8_t *dst,
                                        size_t done, size_t size) {
  hal_status_t status = HAL_OK;
  while (!status && done < size) {
    const size_t chunk = size - done < done ? size - done : done;
    status = HAL_SELF(memory_copy, stream, dst + done, device, dst, device, chunk);
    done += chunk;
  }
  return status;
}

HAL_DEFAULT(memory_fill, hal_plugin_stream_t *stream, int32_t device, void *dst, const void *pattern,
            size_t pattern_size, size_t size) {
  uint8_t buffer[DEFAULT_FILL_BYTES];
  int chunked = 0;
  if (pattern_size == 0 || pattern_size > 16 || (pattern_size & (pattern_size - 1)) || size % pattern_size)
    return HAL_DEFAULT_ERROR(
        HAL_INVALID_ARGUMENT,
        "memory_fill: invalid pattern; expected 1, 2, 4, 8 or 16 bytes, and a size that is a multiple of it");
  if (!size) return HAL_OK;
  const size_t first = size < sizeof buffer ? size : sizeof buffer;
  memset(buffer, 0, pattern_size); /* for compilers that do not see that the loop runs */
  for (size_t i = 0; i < first; i += pattern_size) memcpy(buffer + i, pattern, pattern_size);
  hal_status_t status = HAL_SELF(memory_copy, stream, dst, device, buffer, HAL_HOST, first);
  if (!status && first < size) {
    status = default_fill_double(HAL_DEFAULT_PASS stream, device, dst, first, size);
    if (status == HAL_UNIMPLEMENTED) status = HAL_OK, chunked = 1;
  }
  for (size_t done = first; chunked && !status && done < size;) {
    const size_t chunk = size - done < sizeof buffer ? size - done : sizeof buffer;
    status = HAL_SELF(memory_copy, stream, (uint8_t *)dst + done, device, buffer, HAL_HOST, chunk);
    done += chunk;
  }
  /* The buffer is on this stack: the copies must have read it before the function returns, even those before a failed
   * one. They all read the same bytes, so one wait at the end is sufficient. */
  if (!stream) return status;
  const hal_status_t drained = HAL_SELF(stream_synchronize, stream);
  return status ? status : drained;
}

/* Returns whether the last byte of `height` rows from `first` on is in the address space. */
static int default_rows_fit(const void *first, size_t pitch, size_t width, size_t height) {
  size_t last_row = 0, size = 0, end = 0;
  return !__builtin_mul_overflow(pitch, height - 1, &last_row) && !__builtin_add_overflow(last_row, width, &size) &&
         !__builtin_add_overflow((size_t)(uintptr_t)first, size, &end);
}

HAL_DEFAULT(memory_copy_2d, hal_plugin_stream_t *stream, const hal_copy_2d_t *copy) {
  const size_t width = copy->width, height = copy->height;
  if (!width || !height) return HAL_OK;
  if (copy->dst_pitch < width || copy->src_pitch < width)
    return HAL_DEFAULT_ERROR(HAL_INVALID_ARGUMENT,
                             "memory_copy_2d: a pitch is less than the width; rows begin at least a width apart");
  if (!default_rows_fit(copy->dst, copy->dst_pitch, width, height) ||
      !default_rows_fit(copy->src, copy->src_pitch, width, height))
    return HAL_DEFAULT_ERROR(HAL_INVALID_ARGUMENT,
                             "memory_copy_2d: pitch times height ends beyond the address space; copy fewer rows");
  if (height == 1 || (copy->dst_pitch == width && copy->src_pitch == width))
    return HAL_SELF(memory_copy, stream, copy->dst, copy->dst_device, copy->src, copy->src_device, width * height);
  hal_status_t status = HAL_OK;
  for (size_t row = 0; row < height && !status; row++)
    status = HAL_SELF(memory_copy, stream, (char *)copy->dst + row * copy->dst_pitch, copy->dst_device,
                      (const char *)copy->src + row * copy->src_pitch, copy->src_device, width);
  return status;
}

HAL_DEFAULT(memory_copy_batch, hal_plugin_stream_t *stream, const hal_copy_t *copies, size_t count, size_t stride) {
  const char *const first = (const char *)copies;
  hal_status_t status = HAL_OK;
  for (size_t i = 0; i < count && !status; i++) {
    const hal_copy_t *const copy = (const hal_copy_t *)(const void *)(first + i * stride);
    status = HAL_SELF(memory_copy, stream, copy->dst, copy->dst_device, copy->src, copy->src_device, copy->size);
  }
  return status;
}

HAL_DEFAULT(memory_prefetch, hal_plugin_stream_t *stream, int32_t device, const void *ptr, size_t size,
            int32_t dst_device, uint32_t flags) {
  (void)stream, (void)device, (void)ptr, (void)size, (void)dst_device;
  return hal_flags_check("memory_prefetch", flags, 0);
}

HAL_DEFAULT(memory_advise, int32_t device, const void *ptr, size_t size, uint32_t advice, int32_t peer) {
  (void)device, (void)ptr, (void)size, (void)peer;
  return hal_advice_check("memory_advise", advice);
}

HAL_DEFAULT(memory_pointer_info, const void *ptr, hal_pointer_info_t *out_info) {
  (void)ptr, (void)out_info;
  return HAL_NOT_FOUND;
}

HAL_DEFAULT(host_alloc, int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device;
  const hal_status_t status = hal_flags_check("host_alloc", flags, 0);
  if (status) return status;
  void *ptr = hal_host->mem_alloc(size, 64); /* 64: a cache line, the alignment that the op promises */
  if (!ptr) return HAL_DEFAULT_ERROR(HAL_RESOURCE_EXHAUSTED, "host_alloc: out of host memory");
  *out_ptr = ptr;
  return HAL_OK;
}

HAL_DEFAULT(host_free, int32_t device, void *ptr) {
  (void)device;
  hal_host->mem_free(ptr);
  return HAL_OK;
}

/* ---- streams: the default stream is NULL, so no foreign handle can reach the author's code ---- */

HAL_DEFAULT(stream_create, int32_t device, const hal_stream_desc_t *desc, hal_plugin_stream_t **out_stream) {
  (void)device;
  const hal_status_t status = hal_stream_desc_check("stream_create", desc, 0);
  if (!status) *out_stream = NULL;
  return status;
}

HAL_DEFAULT(stream_destroy, hal_plugin_stream_t *stream) {
  (void)stream;
  return HAL_OK;
}

HAL_DEFAULT(stream_synchronize, hal_plugin_stream_t *stream) {
  (void)stream;
  return HAL_OK;
}

HAL_DEFAULT(stream_query, hal_plugin_stream_t *stream) { return HAL_SELF(stream_synchronize, stream); }

HAL_DEFAULT(stream_synchronize_timeout, hal_plugin_stream_t *stream, int64_t timeout_ns) {
  const int64_t start = default_now_ns();
  int64_t pause_ns = 1000; /* doubles up to 1 ms: a short delay for short work, few queries for long work */
  for (;;) {
    const hal_status_t status = HAL_SELF(stream_query, stream);
    if (status != HAL_NOT_READY) return status;
    const int64_t left = timeout_ns - (default_now_ns() - start);
    if (left <= 0) return status;
    const struct timespec pause = {0, (long)(left < pause_ns ? left : pause_ns)};
    nanosleep(&pause, NULL);
    if (pause_ns < 1000000) pause_ns *= 2;
  }
}

HAL_DEFAULT(stream_wait_event, hal_plugin_stream_t *stream, hal_plugin_event_t *event) {
  (void)stream;
  return HAL_SELF(event_synchronize, event);
}

HAL_DEFAULT(stream_host_call, hal_plugin_stream_t *stream, hal_host_fn_t fn, void *user_data) {
  const hal_status_t status = HAL_SELF(stream_synchronize, stream);
  if (status == HAL_OK) fn(user_data);
  return status;
}

HAL_DEFAULT(stream_error, hal_plugin_stream_t *stream, hal_stream_error_t *out_error) {
  (void)stream, (void)out_error;
  return HAL_NOT_FOUND;
}

HAL_DEFAULT(stream_native, hal_plugin_stream_t *stream, void **out_native) {
  (void)stream;
  *out_native = NULL;
  return HAL_OK;
}

/* ---- events: a host time stamp, taken after the stream was drained. Only the defaults here may get one (group rule).
 * ---- */

typedef struct default_event_s {
  int64_t ns;
  uint32_t flags;
  int32_t recorded;
} default_event_t;

HAL_DEFAULT(event_create, int32_t device, uint32_t flags, hal_plugin_event_t **out_event) {
  (void)device;
  const hal_status_t status = hal_flags_check("event_create", flags, HAL_EVENT_TIMING | HAL_EVENT_BLOCKING);
  if (status) return status;
  default_event_t *event = hal_host->mem_alloc(sizeof *event, 16);
  if (!event) return HAL_DEFAULT_ERROR(HAL_RESOURCE_EXHAUSTED, "event_create: out of host memory");
  *event = (default_event_t){.flags = flags};
  *out_event = (hal_plugin_event_t *)event;
  return HAL_OK;
}

HAL_DEFAULT(event_destroy, hal_plugin_event_t *event) {
  hal_host->mem_free(event);
  return HAL_OK;
}

HAL_DEFAULT(event_record, hal_plugin_event_t *event, hal_plugin_stream_t *stream) {
  default_event_t *const own = (default_event_t *)event;
  const hal_status_t status = HAL_SELF(stream_synchronize, stream);
  if (status) return status;
  own->ns = default_now_ns();
  own->recorded = 1;
  return HAL_OK;
}

HAL_DEFAULT(event_query, hal_plugin_event_t *event) { return HAL_SELF(event_synchronize, event); }

HAL_DEFAULT(event_synchronize, hal_plugin_event_t *event) {
  (void)event; /* event_record has waited */
  return HAL_OK;
}

HAL_DEFAULT(event_elapsed, hal_plugin_event_t *start, hal_plugin_event_t *end, int64_t *out_nanoseconds) {
  const default_event_t *const a = (const default_event_t *)start, *const b = (const default_event_t *)end;
  if (!(a->flags & b->flags & HAL_EVENT_TIMING) || !a->recorded || !b->recorded)
    return HAL_DEFAULT_ERROR(HAL_FAILED_PRECONDITION,
                             "event_elapsed: create both events with HAL_EVENT_TIMING and record them first");
  *out_nanoseconds = b->ns - a->ns;
  return HAL_OK;
}

/* ---- operators ---- */

HAL_DEFAULT(program_compiler, int32_t device, hal_compiler_t *out_compiler) {
  (void)device, (void)out_compiler;
  return HAL_NOT_FOUND;
}

HAL_DEFAULT(op_find, int32_t device, const char *name, hal_op_own_t *out_op) {
  (void)device, (void)name, (void)out_op;
  return HAL_NOT_FOUND;
}

/* 256 KiB: fits a second-level cache. */
enum { DEFAULT_RANDOM_BYTES = 256 * 1024 };

/* Reads the state in device memory, after the work before it is done. */
static hal_status_t default_random_state(HAL_DEFAULT_SELF hal_plugin_stream_t *stream, hal_random_t *inout_desc) {
  uint64_t state[2];
  if (!HAL_HAS_FIELD(inout_desc, random_state) || !inout_desc->random_state) return HAL_OK;
  hal_status_t status =
      HAL_SELF(memory_copy, stream, state, HAL_HOST, inout_desc->random_state, inout_desc->device, sizeof state);
  if (stream) { /* also waits after a failure, because the state is on this stack */
    const hal_status_t drained = HAL_SELF(stream_synchronize, stream);
    if (!status) status = drained;
  }
  if (status) return status;
  inout_desc->seed = state[0];
  inout_desc->offset += state[1];
  return HAL_OK;
}

HAL_DEFAULT(random_fill, hal_plugin_stream_t *stream, const hal_random_t *desc) {
  hal_random_t own = {.struct_size = 0};
  memcpy(&own, desc, desc->struct_size < sizeof own ? desc->struct_size : sizeof own);
  if (!hal_random_is_supported(desc))
    return HAL_DEFAULT_ERROR(HAL_UNIMPLEMENTED,
                             "random_fill: the default supports uniform and normal numbers in floating "
                             "dtypes up to 64 bits, bernoulli in integers too, bits in integers");
  const size_t size = hal_random_element_size(desc->dtype), per_block = size == 8 ? 2 : 4;
  const size_t room = DEFAULT_RANDOM_BYTES / size, most = desc->count < room ? (size_t)desc->count : room;
  if (desc->count == 0) return HAL_OK;
  const hal_status_t read = default_random_state(HAL_DEFAULT_PASS stream, &own);
  if (read) return read;
  uint8_t *const buffer = hal_host->mem_alloc(most * size, 64);
  if (!buffer)
    return HAL_DEFAULT_ERROR(HAL_RESOURCE_EXHAUSTED, "random_fill: out of host memory for its staging buffer");
  hal_status_t status = HAL_OK;
  for (uint64_t done = 0; !status && done < desc->count;) {
    const size_t count = desc->count - done < room ? (size_t)(desc->count - done) : room;
    hal_random_generate(&own, done / per_block, count, buffer);
    status =
        HAL_SELF(memory_copy, stream, (uint8_t *)desc->dst + done * size, desc->device, buffer, HAL_HOST, count * size);
    /* The buffer is written again, or freed: even after a failure an earlier copy may still read it. */
    if (stream) {
      const hal_status_t drained = HAL_SELF(stream_synchronize, stream);
      if (!status) status = drained;
    }
    done += count;
  }
  hal_host->mem_free(buffer);
  return status;
}

/* ---- objects of all kinds ---- */

HAL_DEFAULT(object_name_set, int32_t device, uint32_t kind, const void *object, const char *name) {
  (void)device, (void)object, (void)name;
  return hal_object_check("object_name_set", kind);
}

/* ---- extensions ---- */

HAL_DEFAULT(extensions, const hal_extension_t **out_first) {
  *out_first = NULL;
  return HAL_OK;
}

/* ---- profiling ---- */

HAL_DEFAULT(profile_range, const char *name) {
  (void)name;
  return HAL_OK;
}

HAL_DEFAULT(profile_timestamp, int32_t device, int64_t *out_device_ns, int64_t *out_host_ns) {
  (void)device;
  *out_device_ns = *out_host_ns = default_now_ns();
  return HAL_OK;
}

HAL_DEFAULT(profile_enable, int32_t device, int32_t on) {
  (void)device, (void)on;
  return HAL_OK;
}

HAL_DEFAULT(profile_read, int32_t device, hal_profile_sink_t sink, void *user_data) {
  (void)device, (void)sink, (void)user_data;
  return HAL_OK;
}

#include "semaphore.h"
