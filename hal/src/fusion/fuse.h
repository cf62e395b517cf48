/* fuse.h: adjacent kernels as one. Private to hal/src.
 *
 * The input is recorded launches, whose arguments are sufficient: addresses, numbers, count, strides. A group is a
 * sequence of launches of element-wise kernels over the same number of elements, each of which writes its result in the
 * order of memory. Therefore element i of one result and element i of an operand at its address are the same, for any
 * shapes. */
#ifndef HAL_SRC_FUSION_FUSE_H_
#define HAL_SRC_FUSION_FUSE_H_

#include "base/lock.h"
#include "capture/program.h"
#include "fusion/access.h"
#include "fusion/metric.h"
#include "hal/lazy.h"
#include "kernels/pk_chain.h"
#include "op/form.h"

#define HAL_FUSE_STEPS 32    /* of a group */
#define HAL_FUSE_POINTERS 10 /* operands of a group that are in memory */
#define HAL_FUSE_NUMBERS 256 /* bytes of the numbers of a group */

/* A kernel of a recorded launch, or one that is equivalent to a copy or a fill of bytes. */
typedef struct hal_fuse_kernel_s {
  const hal_plugin_kernel_t *handle; /* NULL: a kernel of bytes, which is never launched alone */
  hal_op_form_t form;
  int fits; /* 1 = it may be a step */
} hal_fuse_kernel_t;

/* A copy or a fill of bytes as the launch of such a kernel; it points into itself. */
typedef struct hal_fuse_bytes_s {
  char *to;
  const char *from;
  uint64_t n;
  unsigned char number[8];
  hal_arg_t args[3];
  hal_launch_t launch;
} hal_fuse_bytes_t;

enum { HAL_FUSE_BYTES_SIZES = 4 }; /* of elements: 1, 2, 4 and 8 bytes */

/* An operand of a step: the result of an earlier step, or memory. */
typedef struct hal_fuse_operand_s {
  char *address;
  uint64_t low, high; /* offsets of the first byte that is accessed, and of the one after the last */
  int32_t value;      /* the step that computes it; -1: memory */
  uint32_t pointer;   /* memory: its number among the group's addresses */
  uint32_t plain;     /* 1 = in the order of memory */
  uint32_t has;       /* CHAIN_EACH_*: of a narrow step each segment */
  uint32_t size;      /* bytes of a number */
} hal_fuse_operand_t;

typedef struct hal_fuse_step_s {
  const hal_launch_t *launch;
  const hal_fuse_kernel_t *kernel;
  const pk_rows_t *rows; /* if an operand is not plain; else NULL */
  hal_fuse_operand_t operand[CHAIN_OPERANDS];
  uint64_t segment;   /* elements of each segment, for a segment kernel; else 0 */
  pk_reduce_t reduce; /* of a reduction */
  int32_t flag[CHAIN_FLAGS];
  uint32_t readers; /* steps that read its result */
  uint8_t dead;     /* its memory is overwritten or released before anything else reads it */
  uint8_t dropped;  /* and no step reads it either */
} hal_fuse_step_t;

typedef struct hal_fuse_group_s {
  uint32_t begin;                       /* its first command */
  uint32_t command[HAL_FUSE_STEPS];     /* of each step */
  uint32_t steps, pointers, live, kept; /* live: results that are not dead; kept: steps that are not dropped */
  uint32_t common;                      /* steps that compute the same as an earlier one */
  uint32_t numbers;                     /* bytes */
  uint64_t n;                           /* elements */
  uint64_t segment;                     /* elements of each; 0: no step has any */
  int with_segments;                    /* HAL_FUSE_SEGMENTS_* */
  uint32_t end; /* the command after the last of the group, not counting those after commands of no group */
  char *address[HAL_FUSE_POINTERS];
  hal_fuse_step_t step[HAL_FUSE_STEPS];
  hal_fuse_bytes_t bytes[HAL_FUSE_STEPS]; /* for the steps that are not launches */
} hal_fuse_group_t;

/* The property of a step that distinguishes its group from another one, for explanations. */
typedef struct hal_fuse_trait_s {
  const hal_fuse_kernel_t *kernel;
  uint8_t dead, dropped, strided;
  uint8_t from[CHAIN_OPERANDS]; /* of each operand: 0 = memory, else the number of the step that computes it */
} hal_fuse_trait_t;

/* A group that was compiled: how it is launched. */
typedef struct hal_fuse_plan_s {
  uint64_t hash;
  int way;    /* HAL_FUSE_NOT: the device cannot; else how */
  void *made; /* what is launched */
  _Atomic(hal_plugin_kernel_t *)
      compiled;     /* for a chain: a kernel that does the same with the same arguments; NULL: none, or not yet */
  atomic_uint runs; /* for a chain with many elements, until it is compiled */
  int requested;    /* compilation was requested */
  hal_fuse_trait_t *traits;
  uint32_t steps;
  size_t size;
  unsigned char key[]; /* everything that determines the plan */
} hal_fuse_plan_t;

/* Receives the groups that are launched. `kernel` NULL: the group's results are unused. */
typedef struct hal_fuse_observer_s hal_fuse_observer_t;
struct hal_fuse_observer_s {
  void (*launched)(hal_fuse_observer_t *observer, const hal_fuse_group_t *group, hal_fuse_plan_t *plan,
                   hal_plugin_kernel_t *kernel, const hal_launch_t *launch);
};

/* A command list that is being submitted. */
typedef struct hal_fuse_work_s {
  const hal_command_list_t *list;
  hal_accesses_t *accesses; /* of the list */
  uint32_t limit;           /* groups end before this command */
  hal_stream_t *stream;
  hal_command_list_observer_t *observer; /* receives the groups that are compiled; NULL: none */
  hal_lazy_info_t *info;                 /* counts */
  hal_fuse_observer_t *making;           /* receives the groups that are launched; NULL: none */
} hal_fuse_work_t;

/* All groups of a device: they outlive the recordings, and the work that was queued with them. */
struct hal_fuse_s {
  hal_device_t *device;
  hal_lock_t lock; /* for the following fields */
  hal_fuse_kernel_t **kernels;
  hal_fuse_kernel_t copy[HAL_FUSE_BYTES_SIZES], fill[HAL_FUSE_BYTES_SIZES];
  hal_fuse_plan_t **plans; /* both by hash */
  uint32_t kernel_count, kernel_room, plan_count, plan_room;
  hal_plugin_kernel_t *chain; /* host kernels as a chain; NULL: there is none, or not queried yet */
  int way;                    /* 0 = not determined yet, HAL_FUSE_* */
  int warned;                 /* a warning about too many plans was logged */
  uint64_t hash_mask;         /* all ones; fewer in tests that need collisions */
  hal_fuse_group_t group;
  hal_fuse_observer_t *making; /* of the list whose group is queued; NULL: none */
  hal_fuse_plan_t *plan;       /* of the group that is queued, if its runs count */
  uint32_t compile_after;      /* runs of a chain; 0 = never */
  atomic_int uncompiled;       /* the compiler has failed once: it is not called any more */
  hal_metrics_t metrics;       /* with its own lock */
};

enum { HAL_FUSE_NOT = 1, HAL_FUSE_CHAIN = 2, HAL_FUSE_SOURCE = 3 };

/* Creates the groups of a device: its slot (device/slot.h). */
hal_status_t hal_fuse_create(hal_device_t *device, hal_fuse_t **out_fuse);

/* Returns the groups of a device, which the first call creates; NULL = no memory. */
hal_fuse_t *hal_fuse_of(hal_device_t *device);

/* Frees the groups of a device that is closed; NULL is allowed. */
void hal_fuse_destroy(hal_fuse_t *fuse);

/* Called in the child of a fork, which lacks the thread that compiles. */
void hal_fuse_worker_after_fork(void);

/* Queues the group that begins with command `begin`, and returns in `*out_end` the next command that is not done.
 * `*out_queued` = 0: nothing was queued, and the commands up to there run as they were recorded. Errors: the
 * plugin's. */
hal_status_t hal_fuse_group(hal_fuse_t *fuse, const hal_fuse_work_t *work, uint32_t begin, uint32_t *out_end,
                            int *out_queued);

/* Which segment kernels may be steps: none; one reduction, after which steps are narrow and read nothing in another
 * order; all. */
enum { HAL_FUSE_SEGMENTS_NONE = 0, HAL_FUSE_SEGMENTS_FOLD = 1, HAL_FUSE_SEGMENTS_ALL = 2 };

/* Collects the group that begins with a command (collect.c). Returns the number of its steps. */
uint32_t hal_fuse_collect(hal_fuse_t *fuse, const hal_fuse_work_t *work, uint32_t begin, int with_segments);

/* Marks the commands of the group: HAL_DONE, or HAL_TO_DO if it does not run as a group. */
void hal_fuse_mark(const hal_fuse_group_t *group, hal_accesses_t *accesses, uint8_t mark);

/* Finds the memory accesses of the commands of a list, as hal_accesses_make does, with the lock. */
int hal_fuse_accesses(hal_fuse_t *fuse, hal_accesses_t *accesses, const hal_command_list_t *list);

/* Returns the memory that a launch accesses, if its arguments determine it: the number of pieces, at most
 * CHAIN_OPERANDS; 0 = they do not. */
uint32_t hal_fuse_spans(hal_fuse_t *fuse, const hal_command_list_t *list, const hal_command_t *command,
                        hal_span_t *spans);

/* Reads a launch of a segment kernel as a step over `n` elements (segments.c); returns 0 if its operands are not in the
 * order of memory. */
int hal_fuse_read_segments(const hal_launch_t *launch, const hal_fuse_kernel_t *kernel, hal_fuse_step_t *step,
                           uint64_t *n);

/* Returns whether the step reads operand k by segments: the same number for all elements of one. */
int hal_fuse_spreads(const hal_fuse_group_t *group, const hal_fuse_step_t *step, uint32_t k);

/* Returns whether the step computes a number for each segment, not for each element. */
static inline int hal_fuse_is_narrow(const hal_fuse_step_t *step) { return step->operand[0].has == CHAIN_EACH_SEGMENT; }

/* Returns the kernel of a launch; NULL = not one that may be a step, or no memory. */
const hal_fuse_kernel_t *hal_fuse_kernel(hal_fuse_t *fuse, uint32_t op, const hal_plugin_kernel_t *handle);

/* Names the kernels of bytes (bytes.c). */
void hal_fuse_name_bytes(hal_fuse_t *fuse);

/* Describes a copy or a fill within the device as a launch over `n` elements. Returns its kernel; NULL = its bytes are
 * not that many elements of a supported size. */
const hal_fuse_kernel_t *hal_fuse_bytes(const hal_fuse_t *fuse, const hal_command_t *command, uint64_t n,
                                        hal_fuse_bytes_t *bytes);

/* Returns the kernel that copies elements of a size; NULL = there is none. */
const hal_fuse_kernel_t *hal_fuse_copy_of(const hal_fuse_t *fuse, uint32_t size);

/* Finds the steps that compute the same as an earlier one: their readers read that one, and those whose results are
 * kept copy it (cse.c). Returns their number. */
uint32_t hal_fuse_share(const hal_fuse_t *fuse, hal_fuse_group_t *group);

/* Records the properties that distinguish the group on the plan (explain.c); does nothing without memory. */
void hal_fuse_note_traits(const hal_fuse_group_t *group, hal_fuse_plan_t *plan);

/* Describes a new plan, and how it differs from the nearest of the others. */
void hal_fuse_explain(const hal_fuse_t *fuse, const hal_fuse_plan_t *plan, uint64_t elements, char *text, size_t room);

/* Returns all addresses of a group, those that are read, followed by those of results that are not read: their number,
 * and for each result that is kept the number of its address. */
uint32_t hal_fuse_addresses(const hal_fuse_group_t *group, char *address[HAL_FUSE_POINTERS],
                            uint32_t store[HAL_FUSE_STEPS]);

/* ---- plans ---- */

/* Creates the object that a plan launches, the group as a chain of host kernels or as a kernel from source;
 * HAL_UNIMPLEMENTED = the group runs as it was recorded. */
hal_status_t hal_fuse_chain_make(const hal_fuse_group_t *group, void **out_made);
hal_status_t hal_fuse_source_make(hal_fuse_t *fuse, const hal_fuse_group_t *group, void **out_made);
hal_status_t hal_fuse_chain_launch(const hal_fuse_t *fuse, const hal_fuse_group_t *group, const hal_fuse_plan_t *plan,
                                   hal_stream_t *stream);
hal_status_t hal_fuse_source_launch(const hal_fuse_t *fuse, const hal_fuse_group_t *group, void *made,
                                    hal_stream_t *stream);

/* ---- chains that are compiled (emit_host.c, worker.c) ---- */

/* Reads HAL_LAZY_COMPILE: the number of runs before compilation; 0 = never. */
uint32_t hal_fuse_compile_after(const hal_device_t *device);

/* Returns whether a run over so many elements counts. */
int hal_fuse_counts(const hal_fuse_t *fuse, uint64_t elements);

/* Counts a run of a plan. Returns 1 for the last one that is counted. */
static inline int hal_fuse_count(hal_fuse_plan_t *plan, uint32_t limit) {
  const uint32_t runs = atomic_load_explicit(&plan->runs, memory_order_relaxed);
  if (runs >= limit) return 0;
  atomic_store_explicit(
      &plan->runs, runs + 1,
      memory_order_relaxed); /* a run that is lost because another thread counts at the same time is counted later */
  return runs + 1 == limit;
}

/* Returns the kernel that a chain is launched with. */
static inline hal_plugin_kernel_t *hal_fuse_chain_kernel(const hal_fuse_plan_t *plan,
                                                         hal_plugin_kernel_t *interpreter) {
  hal_plugin_kernel_t *const compiled = atomic_load_explicit(&plan->compiled, memory_order_acquire);
  return compiled ? compiled : interpreter;
}

/* Requests asynchronous compilation of the group's chain, if the results keep their bits; the plan gets the kernel. */
void hal_fuse_ask(hal_fuse_t *fuse, const hal_fuse_group_t *group, hal_fuse_plan_t *plan);

/* Passes a text, which the thread that compiles frees, to that thread, for a plan of a device. */
void hal_fuse_worker_push(hal_fuse_t *fuse, hal_fuse_plan_t *plan, const char *name, char *text);

/* Removes the jobs of a device, and waits for the one that is being compiled. */
void hal_fuse_worker_forget(const hal_fuse_t *fuse);

/* Launches the kernel of the group. Errors: the plugin's. */
hal_status_t hal_fuse_launch(const hal_fuse_t *fuse, hal_plugin_kernel_t *kernel, hal_stream_t *stream,
                             const hal_launch_t *launch);

/* Returns the bytes of a number among packed ones: each begins at a multiple of 8. */
static inline uint32_t hal_fuse_number_room(const hal_arg_t *number) { return (number->size + 7u) & ~7u; }

/* Packs the numbers of the steps that are kept, in the order of the steps. */
void hal_fuse_numbers(const hal_fuse_group_t *group, unsigned char bytes[HAL_FUSE_NUMBERS]);

#endif /* HAL_SRC_FUSION_FUSE_H_ */
