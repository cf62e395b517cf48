/* config.h: the allocator's sizes and settings. Private to hal/src.
 *
 * The constants are those of PyTorch's CUDA caching allocator, so that its settings have the same effect. */
#ifndef HAL_SRC_MEMORY_CONFIG_H_
#define HAL_SRC_MEMORY_CONFIG_H_

#include "device/device.h"

#define HAL_MEM_KIB ((size_t)1 << 10)
#define HAL_MEM_MIB ((size_t)1 << 20)
#define HAL_MEM_GRANULE ((size_t)512)            /* every block is a multiple of it */
#define HAL_MEM_SMALL_LIMIT HAL_MEM_MIB          /* requests up to it come from the small pool */
#define HAL_MEM_SMALL_SEGMENT (2 * HAL_MEM_MIB)  /* segment of the small pool */
#define HAL_MEM_LARGE_SEGMENT (20 * HAL_MEM_MIB) /* segment for requests between the small limit and LARGE_LIMIT */
#define HAL_MEM_LARGE_LIMIT (10 * HAL_MEM_MIB)   /* requests from this size on get a separate segment */
#define HAL_MEM_SEGMENT_ROUND (2 * HAL_MEM_MIB)  /* the size of such a segment is a multiple of this */
#define HAL_MEM_ROUNDUP_STEPS 16                 /* roundup_power2_divisions: one value per power of two from 1 MiB */

/* Settings of PYTORCH_ALLOC_CONF. */
typedef struct hal_mem_config_s {
  size_t max_split_size;               /* bytes; blocks from this size on are not split; SIZE_MAX = no limit */
  size_t max_non_split_rounding;       /* bytes by which such a block may be larger than the request */
  size_t large_segment_size;           /* bytes */
  size_t pinned_max_cached_size;       /* bytes; page-locked host memory of more is not cached */
  double garbage_collection_threshold; /* share of the limit, 0 = off */
  double memory_fraction;              /* share of the device's memory that is the limit, 0 = none was set */
  uint32_t roundup_divisions[HAL_MEM_ROUNDUP_STEPS]; /* 0 or 1 = off */
  uint32_t roundup_on;                               /* 1 if any of them is set */
  uint32_t expandable_segments;                      /* 1: segments grow in place (expand/expand.h) */
} hal_mem_config_t;

/* Sets the defaults, then the settings of `text` (NULL = none). Each unknown key and invalid value is logged as a
 * warning with `variable`, key and value; the other settings are used. */
void hal_mem_config_parse(const char *variable, const char *text, hal_mem_config_t *out_config);

/* Changes the settings that `text` names. Errors, with `caller` as the beginning of the message: HAL_INVALID_ARGUMENT =
 * an unknown key or invalid value, HAL_UNIMPLEMENTED = a setting of another allocator; the first of them. */
hal_status_t hal_mem_config_change(const char *caller, const char *text, hal_mem_config_t *config);

/* Reads the settings from the environment: PYTORCH_ALLOC_CONF, or its older name PYTORCH_CUDA_ALLOC_CONF. */
void hal_mem_config_load(hal_mem_config_t *out_config);

/* Rounds a request to the size of its block; 0 if the size overflows. */
size_t hal_mem_config_round(const hal_mem_config_t *config, size_t size);

/* Returns the size of the segment for a block of a rounded size; 0 if the size overflows. */
size_t hal_mem_config_segment(const hal_mem_config_t *config, size_t rounded);

#endif /* HAL_SRC_MEMORY_CONFIG_H_ */
