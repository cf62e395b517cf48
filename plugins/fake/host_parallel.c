/* host_parallel.c: the plugin's extensions: its threads for code of the program, and the reports of lost memory. */
#include "hal/plugin_records.h"

#include "fake.h"
#include "sanitize/sanitize.h"

/* The arguments of a launch that computes parts of the program's code. */
typedef struct code_s {
  hal_host_part_fn_t fn;
  void *data;
} code_t;

static void run_parts(const hal_host_range_t *range, void *const *args) {
  const code_t *const code = args[0];
  for (uint64_t part = range->begin; part < range->end; part++) code->fn(code->data, part);
}

static const hal_host_kernel_t kernel = {
    .name = "code of the program", .fn = run_parts, .arg_count = 1, .unit = HAL_HOST_GROUPS, .grain = 1};

static void run(hal_host_part_fn_t fn, void *data, uint64_t parts) {
  code_t code = {fn, data};
  void *const args[] = {&code};
  const hal_host_range_t range = {0, parts};
  if (parts < 2 || fake.settings.threads == 1 || fake.settings.watched)
    run_parts(&range, args);
  else
    fake_run_parallel(NULL, &kernel, &range, args, (uintptr_t)fn);
}

static hal_host_parallel_t parallel = {
    .base = {.struct_size = HAL_STRUCT_SIZE(hal_host_parallel_t, reserved), .name = HAL_HOST_PARALLEL}, .run = run};

void fake_host_parallel_init(void) {
  parallel.threads = fake.settings.threads;
  parallel.base.next = fake_sanitize_extension();
}

hal_status_t hal_plugin_extensions(const hal_extension_t **out_first) {
  *out_first = &parallel.base;
  return HAL_OK;
}
