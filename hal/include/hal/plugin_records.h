/* plugin_records.h: for plugins: the buffer of profile records that profile_enable and profile_read use, linked from
 * libhal_plugin.a into plugins that use it; and extensions: the call stacks of the program, lost memory, threads for
 * code of the program. */
#ifndef HAL_PLUGIN_RECORDS_H_
#define HAL_PLUGIN_RECORDS_H_

#include <pthread.h>

#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The profile records of a device. Initialized with zeros and an initialized lock. Since 0.2. */
typedef struct hal_records_s {
  uint32_t on;          /* the number of the current collection, 0 = none; read and written atomically */
  uint32_t last;        /* the number of the latest collection */
  pthread_mutex_t lock; /* for the other fields */
  hal_profile_record_t *records;
  uint64_t count, room, lost;
} hal_records_t;

/* Called when work is submitted. Returns the number of the collection if the work must leave a record, else 0. A call
 * without a collection is cheap and leaves `*out_correlation` unchanged; otherwise it is set to the record's number.
 * Thread-safe. Since 0.2. */
static inline uint32_t hal_records_note(const hal_records_t *records, uint64_t *out_correlation) {
  const uint32_t on = __atomic_load_n(&records->on, __ATOMIC_RELAXED);
  if (__builtin_expect(!on, 1)) return 0;
  *out_correlation = hal_host->struct_size >= HAL_STRUCT_SIZE(hal_host_api_t, profile_correlation)
                         ? hal_host->profile_correlation()
                         : 0;
  return on;
}

/* Appends a record of work that was noted in the collection `noted`, unless another collection has begun since. If the
 * buffer is full the record is counted as lost. Thread-safe. Since 0.2. */
void hal_records_append(hal_records_t *records, uint32_t noted, const hal_profile_record_t *record);

/* Begins (1) or ends (0) a collection, as profile_enable does; a repeated call changes nothing. Thread-safe. Since
 * 0.2. */
void hal_records_enable(hal_records_t *records, int32_t on);

/* Passes the records to `sink` and discards them, as profile_read does; work may be submitted meanwhile. Thread-safe.
 * Since 0.2. */
void hal_records_read(hal_records_t *records, hal_profile_sink_t sink, void *user_data);

/* A kernel's name, in its own memory, because records that the host has not read yet have its address. Since 0.2. */
typedef struct hal_name_s {
  struct hal_name_s *next;
  const char *text;
} hal_name_t;

/* Copies a name; NULL if there is no memory. Released by hal_name_drop. Thread-safe. Since 0.2. */
hal_name_t *hal_name_make(const char *text);

/* Releases a name; if `keep` is 1 its memory stays valid until the process ends, because records may have its address.
 * Thread-safe. Since 0.2. */
void hal_name_drop(hal_name_t *name, int keep);

/* The name of the host's extension hal_stacks_t. Since 0.5. */
#define HAL_STACKS "hal.stacks"
/* The host's extension "hal.stacks": what a plugin's reports name. A host before 0.5 does not offer it. Since 0.5. */
typedef struct hal_stacks_s {
  hal_extension_t base;
  /* Returns the call stack of the calling thread, of Python or C; equal stacks have the same address, which is valid
   * until the process ends. NULL = unknown. The caller holds no lock. */
  const void *(*capture)(void);
  /* Writes a stack to `text`, one frame per line, innermost first. Returns the number of bytes without the NUL, which
   * is at least `size` if the text was truncated. */
  size_t (*describe)(const void *stack, char *text, size_t size);
  /* Writes the operators that launch a portable kernel, separated by commas; "" = it is not one. */
  void (*operators)(const char *kernel, char *text, size_t size);
  /* Returns whether the program may leave bytes unused that the calling thread copies to the host now, such as those of
   * an operand of the CPU fallback that is only written: 1 or 0. */
  int32_t (*is_unchecked)(void);
  /* Frees memory that was released while work used it, after that work. For the end of the process. */
  void (*drain)(void);
} hal_stacks_t;

/* The name of a plugin's extension hal_lost_blocks_t. Since 0.5. */
#define HAL_LOST_BLOCKS "hal.lost_blocks"
/* A plugin's extension "hal.lost_blocks": the host calls it in hal_registry_close, before it frees memory that the
 * program has not released. Since 0.5. */
typedef struct hal_lost_blocks_s {
  hal_extension_t base;
  void (*lost)(int32_t device, const void *address); /* of memory_alloc_async */
} hal_lost_blocks_t;

/* Computes one part of a computation; `data` is the caller's. Must not call the HAL. Since 0.5. */
typedef void (*hal_host_part_fn_t)(void *data, uint64_t part);

/* The name of a plugin's extension hal_host_parallel_t. Since 0.5. */
#define HAL_HOST_PARALLEL "hal.host_parallel"
/* A plugin's extension "hal.host_parallel". The host finds it by hal_registry_extension. Since 0.5. */
typedef struct hal_host_parallel_s {
  hal_extension_t base;
  /* Calls `fn(data, part)` once for each part from 0 to `parts` - 1, on the calling thread and on others, in any order,
   * and returns after the last one. Parts must not wait for each other: one thread may compute all of them. Any thread
   * may call it, also from a function of stream_host_call. */
  void (*run)(hal_host_part_fn_t fn, void *data, uint64_t parts);
  uint32_t threads; /* that compute at the same time, including the caller; at least 1 */
  uint32_t reserved;
} hal_host_parallel_t;

#ifdef __cplusplus
}
#endif

#endif /* HAL_PLUGIN_RECORDS_H_ */
