/* emit_host.c: a chain of host kernels as one kernel in C, for devices whose compiler is the host's. It has the
 * arguments of the interpreter (kernels/pk_chain.h), so that launching a chain only needs another kernel. It computes
 * each element in registers, by the functions over which the steps' kernels loop. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fusion/emit.h"
#include "hal/host_memory.h"
#include "hal/log.h"
#include "op/source.h"
#include "op/table.h"

enum {
  DEFAULT_RUNS = 32,
  LEAST_ELEMENTS = 16384 /* with fewer elements the launch takes most of the time (test/bench/lazy_compiled.py) */
};

uint32_t hal_fuse_compile_after(const hal_device_t *device) {
  const char *const text = getenv("HAL_LAZY_COMPILE");
  const hal_provider_t *const provider = &hal_op_table_of(device)->provider;
  if (!provider->native || !provider->own) return 0;
  if (!text || !*text) return DEFAULT_RUNS;
  char *end = NULL;
  errno = 0;
  const unsigned long value = strtoul(text, &end, 10);
  if (*text >= '0' && *text <= '9' && !*end && !errno && value <= 1000000000) return (uint32_t)value;
  hal_log(HAL_LOG_WARNING,
          "HAL_LAZY_COMPILE is '%s' and is ignored; set it to a number of runs after which a group is compiled, or to "
          "0 for "
          "never",
          text);
  return DEFAULT_RUNS;
}

int hal_fuse_counts(const hal_fuse_t *fuse, uint64_t elements) {
  return fuse->compile_after && (elements >= LEAST_ELEMENTS || fuse->compile_after == 1);
}

/* Returns whether each step is a loop over its function, with operands in the order of memory. */
static int is_plain(const hal_fuse_group_t *group) {
  char instance[HAL_FUSE_NAME];
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_step_t *const step = &group->step[i];
    if (step->dropped) continue;
    hal_fuse_instance(step, instance);
    if (step->rows || step->segment || hal_fuse_is_narrow(step) || !hal_op_source_step_is_plain(instance)) return 0;
  }
  return 1;
}

static void add_number(hal_fuse_text_t *text, const char *instance, const char *type, char letter, uint32_t step,
                       uint32_t place) {
  hal_fuse_text_add(text, "  %s%s %c%u; memcpy(&%c%u, numbers.byte + %u, sizeof %c%u);\n", instance, type, letter,
                    (unsigned)step, letter, (unsigned)step, (unsigned)place, letter, (unsigned)step);
}

/* Adds the numbers of the steps as variables; they are packed as in hal_fuse_numbers. */
static void add_numbers(hal_fuse_text_t *text, const hal_fuse_group_t *group) {
  char instance[HAL_FUSE_NAME];
  uint32_t place = 0;
  for (uint32_t i = 0; i < group->steps; i++) {
    const hal_fuse_step_t *const step = &group->step[i];
    const hal_op_form_t *const form = &step->kernel->form;
    hal_fuse_instance(step, instance);
    for (uint32_t k = 0; !step->dropped && k < form->numbers; k++) {
      const int is_first = k == 0 && hal_fuse_has_first(step);
      add_number(text, instance, is_first ? "number_t" : "numbers_t", is_first ? 'b' : 's', i, place);
      place += hal_fuse_number_room(&step->launch->args[form->number_at + k]);
    }
  }
}

static hal_status_t write_text(hal_fuse_text_t *text, const hal_fuse_group_t *group, uint64_t block) {
  char *address[HAL_FUSE_POINTERS];
  uint32_t store[HAL_FUSE_STEPS];
  HAL_RETURN_IF_ERROR(hal_fuse_add_functions(text, group));
  hal_fuse_addresses(group, address, store);
  hal_fuse_text_add(text, "#undef PK_GRAIN\n#define PK_GRAIN 2\n");
  hal_fuse_text_add(text, "typedef struct { pk_u8 byte[%d]; } fused_numbers_t;\n#define FUSED_ARGS(X) ", CHAIN_NUMBERS);
  for (int i = 0; i < CHAIN_POINTERS; i++) hal_fuse_text_add(text, "X(BOTH, pk_u8, p%d), ", i);
  hal_fuse_text_add(text, "X(VALUE, pk_u64, plan), X(STRUCT, fused_numbers_t, numbers), X(VALUE, pk_u64, n)\n");
  hal_fuse_text_add(text, "PK_KERNEL(FUSED_NAME, FUSED_ARGS) { PK_PROLOGUE(FUSED_ARGS)\n");
  add_numbers(text, group);
  hal_fuse_text_add(text, "  const pk_u64 last = pk_range->end * %lluu;\n", (unsigned long long)block);
  hal_fuse_text_add(text,
                    "  PK_INDEPENDENT for (pk_u64 i = pk_range->begin * %lluu; i < (last < n ? last : n); i++) {\n",
                    (unsigned long long)block);
  hal_fuse_add_steps(text, group, 0, group->steps, store);
  hal_fuse_text_add(text, "  }\n}\n");
  return text->failed ? HAL_RESOURCE_EXHAUSTED : HAL_OK;
}

void hal_fuse_ask(hal_fuse_t *fuse, const hal_fuse_group_t *group, hal_fuse_plan_t *plan) {
  char name[HAL_FUSE_NAME];
  hal_fuse_text_t text = {.data = NULL};
  plan->requested = 1;
  if (atomic_load_explicit(&fuse->uncompiled, memory_order_relaxed) || !is_plain(group)) return;
  const hal_status_t status = write_text(&text, group, ((const chain_plan_t *)plan->made)->block);
  char *const whole = status ? NULL : hal_fuse_named(&text, name);
  if (whole) hal_fuse_worker_push(fuse, plan, name, whole);
  hal_free(text.data);
}
