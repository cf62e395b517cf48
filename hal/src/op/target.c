/* target.c: the target of a device, derived from what its plugin reports. */
#include "op/target.h"

#include "kernels/pk_types.h"
#include "op/launch.h"
#include "op/table.h"

/* Elements of an item if cores are few: the division per item becomes negligible, and spans are long enough to be
 * vectorized. One on other devices: adjacent threads access adjacent elements. */
#define HOST_ROW_BLOCK 1024u
#define CPU_ROW_BLOCK 1024u /* a tile of tile.c */

/* Number of groups per unit that hide each other's latency, and defaults for a device that does not report its
 * values. */
enum { GROUPS_PER_UNIT = 8, HOST_GROUPS = 16, UNKNOWN_UNITS = 16, UNKNOWN_SUBGROUP = 32, LEAST_LOCAL_BYTES = 32 << 10 };

/* A multiple of the subgroup, at least 32 threads. */
static uint32_t least_block(uint32_t subgroup) {
  enum { LEAST = 32 };
  const uint32_t block = (LEAST + subgroup - 1) / subgroup * subgroup;
  return block < HAL_OP_BLOCK ? block : HAL_OP_BLOCK;
}

hal_op_target_t hal_op_target_make(uint32_t form, uint32_t compute_units, uint32_t subgroup, uint32_t local_bytes) {
  const uint32_t units = compute_units ? compute_units : UNKNOWN_UNITS;
  const uint32_t in_step = subgroup ? subgroup : UNKNOWN_SUBGROUP;
  const int host = form == HAL_FORM_HOST;
  return (hal_op_target_t){.form = form,
                           .units = units,
                           .subgroup = in_step,
                           .least_block = least_block(in_step),
                           .few_loops = form == HAL_FORM_SIMT ? (uint64_t)units * HAL_OP_BLOCK : 0,
                           .local_bytes = local_bytes ? local_bytes : LEAST_LOCAL_BYTES,
                           .group_threads = form == HAL_FORM_CPU_VECTOR ? 1 : PK_LSIZE,
                           .row_block = host                          ? HOST_ROW_BLOCK
                                        : form == HAL_FORM_CPU_VECTOR ? CPU_ROW_BLOCK
                                                                      : 1,
                           /* The host's number is constant, so that results do not depend on the number of its
                            * cores. */
                           .wanted_groups = host ? HOST_GROUPS : (uint64_t)units * GROUPS_PER_UNIT,
                           /* Devices with many threads count in 32 bits (kernels/pk_rows.h). */
                           .most_reach = form == HAL_FORM_SIMT ? INT32_MAX : INT64_MAX};
}

const hal_op_target_t *hal_op_target(const hal_op_context_t *context) {
  return &hal_op_table_of(context->device)->target;
}
