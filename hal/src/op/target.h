/* target.h: the properties of a device that launch plans depend on. Launchers read them here, never whether a device is a CPU
 * or how the source of its kernels is compiled. Private to hal. */
#ifndef HAL_SRC_OP_TARGET_H_
#define HAL_SRC_OP_TARGET_H_

#include <stdint.h>

typedef struct hal_op_context_s hal_op_context_t;

/* In which form a device's kernels are. */
enum {
  HAL_FORM_HOST = 0, /* host C: an item or group is a loop of a thread, which may be long; vectors lie along rows */
  HAL_FORM_CPU_VECTOR =
      1, /* the dialect of devices on few wide cores (PK_CPU_VECTOR): barriers cost much, vectors are explicit */
  HAL_FORM_SIMT = 2 /* the same on many: an item is one of thousands, neighbors read neighboring elements */
};

typedef struct hal_op_target_s {
  uint32_t form;        /* HAL_FORM_* */
  uint32_t units;       /* compute units that run groups at the same time */
  uint32_t subgroup;    /* threads that run in step */
  uint32_t least_block; /* threads of a block of an item kernel, at least */
  uint64_t
      few_loops; /* fewer items that are loops go into such blocks: with larger ones some units would have no work. 0 but in simt */
  uint32_t local_bytes;   /* of a group */
  uint32_t group_threads; /* of a group kernel (PK_GROUP): PK_LSIZE, or 1 where one item loops */
  uint64_t row_block;     /* elements of an item of a row-form kernel */
  uint64_t wanted_groups; /* as many groups keep the device busy */
  int64_t most_reach;     /* of a row-form kernel's launch: elements, and from the first of an operand to its last */
} hal_op_target_t;

/* The target of a launch. */
const hal_op_target_t *hal_op_target(const hal_op_context_t *context);

/* Returns whether kernels are host C: a group may do much, and few are enough. */
static inline int hal_op_is_host(const hal_op_context_t *context) {
  return hal_op_target(context)->form == HAL_FORM_HOST;
}

/* Creates the target of a device whose kernels have this form, with these facts (device_info; 0 = unknown). */
hal_op_target_t hal_op_target_make(uint32_t form, uint32_t compute_units, uint32_t subgroup, uint32_t local_bytes);

#endif /* HAL_SRC_OP_TARGET_H_ */
