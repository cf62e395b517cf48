/* fuse.c: groups of element-wise kernels, identified by their computation, and queued as one kernel. */
#include "fusion/fuse.h"

#include <string.h>

#include "hal/host_memory.h"
#include "hal/log.h"
#include "hal/status.h"

enum {
  MOST_KEY = 64 + HAL_FUSE_STEPS * (16 + 4 * CHAIN_OPERANDS + 48 + sizeof(pk_rows_t)),
  MOST_PLANS = 65536, /* limits the memory for shapes that keep changing: further groups run as they were recorded */
};

/* ---- tables by hash ---------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash) {
  hash ^= hash >> 32; /* Fibonacci hashing, after folding the upper half */
  return hash * UINT64_C(0x9E3779B97F4A7C15);
}

/* Doubles a table of pointers that is half full. `place` finds the position of an item in the new one. */
static int grow(void ***table, uint32_t count, uint32_t *room, uint64_t (*hash_of)(const void *item)) {
  if (2 * count < *room) return 1;
  const uint32_t wanted = *room ? 2 * *room : 64;
  void **const grown = hal_calloc(wanted, sizeof *grown);
  if (!grown) return 0;
  for (uint32_t i = 0; i < *room; i++) {
    if (!(*table)[i]) continue;
    uint64_t at = hash_of((*table)[i]) & (wanted - 1);
    while (grown[at]) at = (at + 1) & (wanted - 1);
    grown[at] = (*table)[i];
  }
  hal_free(*table);
  *table = grown;
  *room = wanted;
  return 1;
}

static uint64_t hash_of_handle(const hal_plugin_kernel_t *handle) { return mix((uint64_t)(uintptr_t)handle) >> 16; }
static uint64_t hash_of_kernel(const void *item) { return hash_of_handle(((const hal_fuse_kernel_t *)item)->handle); }
static uint64_t hash_of_plan(const void *item) { return ((const hal_fuse_plan_t *)item)->hash; }

const hal_fuse_kernel_t *hal_fuse_kernel(hal_fuse_t *fuse, uint32_t op, const hal_plugin_kernel_t *handle) {
  if (!grow((void ***)&fuse->kernels, fuse->kernel_count, &fuse->kernel_room, hash_of_kernel)) return NULL;
  uint64_t at = hash_of_handle(handle) & (fuse->kernel_room - 1);
  for (; fuse->kernels[at]; at = (at + 1) & (fuse->kernel_room - 1))
    if (fuse->kernels[at]->handle == handle) return fuse->kernels[at]->fits ? fuse->kernels[at] : NULL;
  hal_fuse_kernel_t *const kernel = hal_calloc(1, sizeof *kernel);
  if (!kernel) return NULL;
  kernel->handle = handle;
  kernel->fits = hal_op_form_of(fuse->device, op, handle, &kernel->form);
  fuse->kernels[at] = kernel;
  fuse->kernel_count++;
  return kernel->fits ? kernel : NULL;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

typedef struct key_s {
  size_t size;
  unsigned char bytes[MOST_KEY];
} key_t;

static void put(key_t *key, const void *data, size_t size) {
  memcpy(key->bytes + key->size, data, size);
  key->size += size;
}

/* Writes the rows of a step's operands, without those of unused dimensions, which are not set. */
static void put_rows(key_t *key, const hal_fuse_step_t *step) {
  const pk_rows_t *const rows = step->rows;
  const size_t bytes = (size_t)rows->ndim * sizeof rows->size[0];
  put(key, &rows->ndim, sizeof rows->ndim);
  put(key, rows->size, bytes);
  for (uint32_t k = 0; k < step->kernel->form.operands; k++) put(key, rows->stride[k], bytes);
}

static void put_segments(key_t *key, const hal_fuse_step_t *step) {
  put(key, step->flag, sizeof step->flag);
  put(key, &step->reduce.divisor, sizeof step->reduce.divisor);
  put(key, &step->reduce.final, sizeof step->reduce.final);
}

/* Returns the number of a result's address among the group's; HAL_FUSE_POINTERS: it is not one of those that are
 * read. */
static uint32_t pointer_of(const hal_fuse_group_t *group, const char *address) {
  uint32_t at = 0;
  while (at < group->pointers && group->address[at] != address) at++;
  return at < group->pointers ? at : HAL_FUSE_POINTERS;
}

static void make_key(const hal_fuse_group_t *group, key_t *key) {
  key->size = 0;
  put(key, &group->steps, sizeof group->steps);
  put(key, &group->segment, sizeof group->segment);
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_step_t *const step = &group->step[i];
    const uint8_t operands = (uint8_t)step->kernel->form.operands;
    const uint8_t head[5] = {step->dropped, step->dead, step->rows != NULL,
                             (uint8_t)pointer_of(group, step->operand[0].address), (uint8_t)hal_fuse_is_narrow(step)};
    put(key, &step->kernel, sizeof step->kernel);
    put(key, head, sizeof head);
    for (uint8_t k = 1; k < operands; k++) {
      const hal_fuse_operand_t *const operand = &step->operand[k];
      const uint8_t at[2] = {(uint8_t)(operand->value + 1), operand->value < 0 ? (uint8_t)operand->pointer : 0};
      put(key, at, sizeof at);
    }
    if (step->rows) put_rows(key, step);
    if (step->segment) put_segments(key, step);
  }
}

static uint64_t hash_key(const key_t *key) {
  uint64_t hash = key->size, word;
  size_t at = 0;
  for (; at + sizeof word <= key->size; at += sizeof word) {
    memcpy(&word, key->bytes + at, sizeof word);
    hash = mix(hash ^ word);
  }
  word = 0;
  memcpy(&word, key->bytes + at, key->size - at);
  return mix(hash ^ word);
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* Returns how the device launches a group: determined once. */
static int way_of(hal_fuse_t *fuse) {
  if (fuse->way) return fuse->way;
  const hal_status_t status = hal_op_chain_kernel(fuse->device, &fuse->chain);
  fuse->way = status == HAL_OK ? HAL_FUSE_CHAIN : HAL_FUSE_SOURCE;
  return fuse->way;
}

static hal_status_t make(hal_fuse_t *fuse, hal_fuse_plan_t *plan) {
  plan->way = way_of(fuse);
  hal_status_t status = HAL_UNIMPLEMENTED;
  if (plan->way == HAL_FUSE_CHAIN) status = hal_fuse_chain_make(&fuse->group, &plan->made);
  if (plan->way == HAL_FUSE_SOURCE) status = hal_fuse_source_make(fuse, &fuse->group, &plan->made);
  if (!status || status == HAL_RESOURCE_EXHAUSTED) return status;
  if (status != HAL_UNIMPLEMENTED)
    hal_log(HAL_LOG_WARNING, "device %s: operators that could be one kernel run as they were recorded: %s",
            fuse->device->label, hal_error_message());
  plan->way = HAL_FUSE_NOT;
  return HAL_OK;
}

/* Finds the plan of the group, or creates it. NULL = there are too many. */
static hal_status_t find_plan(hal_fuse_t *fuse, const key_t *key, hal_lazy_info_t *info, hal_fuse_plan_t **out_plan,
                              int *out_new) {
  const uint64_t hash = hash_key(key) & fuse->hash_mask;
  *out_plan = NULL;
  *out_new = 0;
  if (!grow((void ***)&fuse->plans, fuse->plan_count, &fuse->plan_room, hash_of_plan)) return HAL_OK;
  uint64_t at = hash & (fuse->plan_room - 1);
  for (hal_fuse_plan_t *plan; (plan = fuse->plans[at]); at = (at + 1) & (fuse->plan_room - 1)) {
    if (plan->hash != hash || plan->size != key->size || memcmp(plan->key, key->bytes, key->size)) continue;
    info->cached++;
    *out_plan = plan;
    return HAL_OK;
  }
  if (fuse->plan_count == MOST_PLANS) {
    if (!fuse->warned)
      hal_log(HAL_LOG_WARNING,
              "device %s: %d groups of operators were compiled for lazy work, the maximum: further ones run "
              "one by one. Broadcast "
              "operands whose shapes keep changing cause that",
              fuse->device->label, MOST_PLANS);
    fuse->warned = 1;
    return HAL_OK;
  }
  hal_fuse_plan_t *const plan = hal_calloc(1, sizeof *plan + key->size);
  if (!plan) return HAL_OK;
  plan->hash = hash;
  plan->size = key->size;
  memcpy(plan->key, key->bytes, key->size);
  const int64_t begin = hal_metric_begin();
  const hal_status_t status = make(fuse, plan);
  if (status) {
    hal_free(plan);
    return status;
  }
  hal_metric_end(&fuse->metrics, HAL_LAZY_COMPILE_NS, begin);
  info->compiled++;
  fuse->plan_count++;
  hal_fuse_note_traits(&fuse->group, plan);
  *out_plan = fuse->plans[at] = plan;
  *out_new = 1;
  return HAL_OK;
}

/* ---- queueing ---------------------------------------------------------------------------------------------------- */

void hal_fuse_numbers(const hal_fuse_group_t *group, unsigned char bytes[HAL_FUSE_NUMBERS]) {
  uint32_t at = 0;
  memset(bytes, 0, HAL_FUSE_NUMBERS);
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_step_t *const step = &group->step[i];
    const hal_op_form_t *const form = &step->kernel->form;
    for (uint32_t k = 0; !step->dropped && k < form->numbers; k++) {
      const hal_arg_t *const number = &step->launch->args[form->number_at + k];
      memcpy(bytes + at, number->value, number->size);
      at += hal_fuse_number_room(number);
    }
  }
}

hal_status_t hal_fuse_launch(const hal_fuse_t *fuse, hal_plugin_kernel_t *kernel, hal_stream_t *stream,
                             const hal_launch_t *launch) {
  hal_plugin_t *const plugin = stream->device->plugin;
  const hal_status_t status = hal_direct_launch(&stream->direct, kernel, launch);
  if (!status && fuse->making) fuse->making->launched(fuse->making, &fuse->group, fuse->plan, kernel, launch);
  return hal_error_plugin(plugin, HAL_SLOT_kernel_launch, status);
}

/* Returns whether the device can launch the group: as many blocks as elements, in the worst case, and at addresses that
 * were not planned as operands of kernels, such as those of fills. */
static int is_within_limits(const hal_fuse_t *fuse, const hal_fuse_group_t *group) {
  const hal_device_info_t *const info = &fuse->device->info;
  if (!fuse->device->plans_first) return 1;
  return !info->max_binding && info->binding_alignment <= 1 && group->n <= fuse->device->few_blocks;
}

static hal_status_t queue(hal_fuse_t *fuse, hal_fuse_plan_t *plan, hal_stream_t *stream) {
  if (plan->way != HAL_FUSE_CHAIN) return hal_fuse_source_launch(fuse, &fuse->group, plan->made, stream);
  fuse->plan = hal_fuse_counts(fuse, fuse->group.n) ? plan : NULL;
  if (fuse->plan) {
    hal_fuse_count(plan, fuse->compile_after);
    if (!plan->requested && atomic_load_explicit(&plan->runs, memory_order_relaxed) >= fuse->compile_after)
      hal_fuse_ask(fuse, &fuse->group, plan);
  }
  const hal_status_t status = hal_fuse_chain_launch(fuse, &fuse->group, plan, stream);
  fuse->plan = NULL;
  return status;
}

static __attribute__((noinline)) void tell(const hal_fuse_t *fuse, const hal_fuse_plan_t *plan,
                                           const hal_command_list_t *list, uint32_t begin,
                                           hal_command_list_observer_t *observer) {
  char text[1024];
  hal_fuse_explain(fuse, plan, fuse->group.n, text, sizeof text);
  while (list->commands[begin].op == HAL_NO_OP && begin + 1 < fuse->group.end)
    begin++; /* bytes that no operator moves */
  const uint32_t op = list->commands[begin].op;
  observer->compiled(observer, op == HAL_NO_OP ? 0 : list->ops[op].origin, text);
}

/* Collects the group that begins with a command and finds how it is launched. Returns the number of its steps;
 * `*out_plan` NULL: it runs as it was recorded, if any of it is kept. */
static hal_status_t collect(hal_fuse_t *fuse, const hal_fuse_work_t *work, uint32_t begin, int with_segments,
                            uint32_t *out_steps, hal_fuse_plan_t **out_plan) {
  const hal_fuse_group_t *const group = &fuse->group;
  key_t key;
  int is_new;
  *out_plan = NULL;
  const uint32_t steps = *out_steps = hal_fuse_collect(fuse, work, begin, with_segments);
  if (steps < 2 || !group->kept) return HAL_OK;
  make_key(group, &key);
  HAL_RETURN_IF_ERROR(find_plan(fuse, &key, work->info, out_plan, &is_new));
  if (is_new && work->observer) tell(fuse, *out_plan, work->list, begin, work->observer);
  if (*out_plan && ((*out_plan)->way == HAL_FUSE_NOT || !is_within_limits(fuse, group))) *out_plan = NULL;
  return HAL_OK;
}

/* hal_fuse_group; the caller holds the lock. */
static hal_status_t queue_group(hal_fuse_t *fuse, const hal_fuse_work_t *work, uint32_t begin, uint32_t *out_end,
                                int *out_queued) {
  hal_fuse_group_t *const group = &fuse->group;
  hal_lazy_info_t *const info = work->info;
  hal_fuse_plan_t *plan;
  uint32_t steps;
  const int with_segments = way_of(fuse) == HAL_FUSE_CHAIN ? HAL_FUSE_SEGMENTS_ALL : HAL_FUSE_SEGMENTS_FOLD;
  hal_status_t status = collect(fuse, work, begin, with_segments, &steps, &plan);
  if (!status && !plan && group->segment && steps > 1) { /* it may be too long */
    hal_fuse_mark(group, work->accesses, HAL_TO_DO);
    status = collect(fuse, work, begin, HAL_FUSE_SEGMENTS_NONE, &steps, &plan);
  }
  *out_end = steps ? group->end : begin + 1;
  *out_queued = 0;
  const int runs = !status && steps && (plan || !group->kept);
  hal_fuse_mark(group, work->accesses, runs ? HAL_DONE : HAL_TO_DO);
  if (!runs) return status;
  if (plan) {
    fuse->making = work->making;
    HAL_RETURN_IF_ERROR(queue(fuse, plan, work->stream));
    info->queued++;
    info->groups++;
    info->fused += group->kept;
  } else if (work->making) {
    work->making->launched(work->making, group, NULL, NULL, NULL);
  }
  info->dropped += steps - group->kept;
  info->common += group->common;
  *out_queued = 1;
  return HAL_OK;
}

hal_status_t hal_fuse_group(hal_fuse_t *fuse, const hal_fuse_work_t *work, uint32_t begin, uint32_t *out_end,
                            int *out_queued) {
  hal_lock(&fuse->lock);
  const hal_status_t status = queue_group(fuse, work, begin, out_end, out_queued);
  hal_unlock(&fuse->lock);
  return status;
}

int hal_fuse_accesses(hal_fuse_t *fuse, hal_accesses_t *accesses, const hal_command_list_t *list) {
  hal_lock(&fuse->lock);
  const int made = hal_accesses_make(accesses, fuse, list);
  hal_unlock(&fuse->lock);
  return made;
}

/* ---- lifetime ---------------------------------------------------------------------------------------------------- */

hal_status_t hal_fuse_create(hal_device_t *device, hal_fuse_t **out_fuse) {
  hal_fuse_t *const fuse = hal_calloc(1, sizeof *fuse);
  if (!fuse)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "device %s: the host has no memory for groups", device->label);
  fuse->device = device;
  hal_fuse_name_bytes(fuse);
  fuse->hash_mask = UINT64_MAX;
  fuse->compile_after = hal_fuse_compile_after(device);
  *out_fuse = fuse;
  return HAL_OK;
}

hal_fuse_t *hal_fuse_of(hal_device_t *device) { return hal_device_slot_make(device, HAL_COMPONENT_FUSION); }

void hal_fuse_destroy(hal_fuse_t *fuse) {
  if (!fuse) return;
  hal_fuse_worker_forget(fuse);
  for (uint32_t i = 0; i < fuse->kernel_room; i++) hal_free(fuse->kernels[i]);
  for (uint32_t i = 0; i < fuse->plan_room; i++) {
    if (!fuse->plans[i]) continue;
    hal_free(fuse->plans[i]->made);
    hal_free(fuse->plans[i]->traits);
    hal_free(fuse->plans[i]);
  }
  hal_free(fuse->kernels);
  hal_free(fuse->plans);
  hal_free(fuse);
}
