/* target.h: the properties of a device that launch plans depend on. Launchers read only these; they do not check
 * whether a device is a CPU or how the source of its kernels is compiled. Private to hal. */
#ifndef HAL_SRC_OP_TARGET_H_
#define HAL_SRC_OP_TARGET_H_

#include <stdint.h>

typedef struct hal_op_context_s hal_op_context_t;

/* The form of a device's kernels. */
enum {
  HAL_FORM_HOST = 0, /* host C: an item or group is a loop of a thread, which may be long; vectors are along rows */
  HAL_FORM_CPU_VECTOR =
      1, /* the dialect for devices with few wide cores (PK_CPU_VECTOR): barriers are slow, vectors are explicit */
  /* the dialect for devices with many threads: an item is one of thousands, adjacent items read adjacent elements */
  HAL_FORM_SIMT = 2
};

typedef struct hal_op_target_s {
  uint32_t form;        /* HAL_FORM_* */
  uint32_t units;       /* number of compute units, which run groups concurrently */
  uint32_t subgroup;    /* threads that run in lockstep */
  uint32_t least_block; /* minimum number of threads of a block of an item kernel */
  uint64_t few_loops; /* fewer loop items than this are launched in such blocks, because larger blocks would leave units
                  * idle. 0 except in simt */
  uint32_t local_bytes;   /* of a group */
  uint32_t group_threads; /* threads of a group kernel (PK_GROUP): PK_LSIZE, or 1 if one item loops */
  uint64_t row_block;     /* elements of an item of a row-form kernel */
  uint64_t wanted_groups; /* number of groups that occupies the device */
  /* limits of a row-form kernel's launch: number of elements, and distance from the first to the last of an operand */
  int64_t most_reach;
} hal_op_target_t;

/* Returns the target of a launch. */
const hal_op_target_t *hal_op_target(const hal_op_context_t *context);

/* Returns whether kernels are host C: a group may do much work, and few groups are enough. */
static inline int hal_op_is_host(const hal_op_context_t *context) {
  return hal_op_target(context)->form == HAL_FORM_HOST;
}

/* Creates the target of a device whose kernels have this form, with these properties (device_info; 0 = unknown). */
hal_op_target_t hal_op_target_make(uint32_t form, uint32_t compute_units, uint32_t subgroup, uint32_t local_bytes);

#endif /* HAL_SRC_OP_TARGET_H_ */
