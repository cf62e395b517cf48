/* probe.c: determines where the programs of a platform compute, with a small program, and so how memory is used. */
#include <hal/plugin_setting.h>
#include <stdio.h>
#include <string.h>

#include "opaque.h"

enum { TEST_COUNT = 64 };

/* Runs the program in memory of this process. `*out_moved`: its result was elsewhere. */
static hal_status_t run_addressed(pjrt_run_t *run, float *memory, uint32_t *out_moved, char *why) {
  for (int i = 0; i < TEST_COUNT; i++) memory[i] = (float)i, memory[TEST_COUNT + i] = -1;
  return pjrt_run(run, out_moved, why);
}

static hal_status_t check_result(const float *result) {
  for (int i = 0; i < TEST_COUNT; i++)
    if (result[i] != (float)(2 * i))
      return pjrt_error(HAL_DATA_LOSS, "pjrt: a test program of the platform returned %g instead of %d",
                        (double)result[i], 2 * i);
  return HAL_OK;
}

/* Runs the program in memory of the platform. */
static hal_status_t run_opaque(pjrt_run_t *run, float *memory, char *why) {
  float result[TEST_COUNT];
  hal_status_t status = pjrt_opaque_write(memory, 2 * TEST_COUNT * sizeof *memory, why);
  for (int i = 0; i < TEST_COUNT; i++) memory[i] = (float)i, memory[TEST_COUNT + i] = -1;
  if (!status) status = pjrt_opaque_run(run, why);
  if (!status) status = pjrt_opaque_read(result, memory + TEST_COUNT, sizeof result, why);
  if (status) return pjrt_error(status, "pjrt: the platform cannot run a test program: %s", why);
  return check_result(result);
}

static hal_status_t test_opaque(pjrt_run_t *run) {
  char why[PJRT_WHY] = "";
  float *const memory = pjrt_opaque_alloc(2 * TEST_COUNT * sizeof *memory);
  if (!memory) return pjrt_error(HAL_RESOURCE_EXHAUSTED, "pjrt: no host memory to test the platform");
  const pjrt_span_t spans[] = {{memory, PJRT_F32, TEST_COUNT, 0, NULL},
                               {memory + TEST_COUNT, PJRT_F32, TEST_COUNT, 0, NULL}};
  run->arguments = spans, run->results = spans + 1;
  const hal_status_t status = run_opaque(run, memory, why);
  pjrt_opaque_free(memory);
  return status;
}

/* Whether a program computes in memory of this process. `why` is empty or has the platform's message. */
static int computes_in_place(pjrt_run_t *run, char *why) {
  uint32_t moved = 0;
  float *const memory = hal_host->mem_alloc(2 * TEST_COUNT * sizeof *memory, PJRT_ALIGNMENT);
  if (!memory) return 0;
  const pjrt_span_t spans[] = {{memory, PJRT_F32, TEST_COUNT, 0, NULL},
                               {memory + TEST_COUNT, PJRT_F32, TEST_COUNT, 0, NULL}};
  run->arguments = spans, run->results = spans + 1;
  const hal_status_t status = run_addressed(run, memory, &moved, why);
  const int placed = !status && !moved;
  const int right = placed && check_result(memory + TEST_COUNT) == HAL_OK;
  hal_host->mem_free(memory);
  return right;
}

static hal_status_t compile_test(pjrt_platform_t *platform, pjrt_loaded_t **out_program) {
  static const char text[] =
      "module { func.func @main(%a: tensor<64xf32>, %to: tensor<64xf32> {tf.aliasing_output = 0 : i32}) -> "
      "tensor<64xf32> { %0 = stablehlo.add %a, %a : tensor<64xf32> return %0 : tensor<64xf32> } }";
  pjrt_failure_t failure;
  platform->plain_options = 0;
  if (!pjrt_compile(text, strlen(text), PJRT_FULL, platform->first, out_program, &failure)) return HAL_OK;
  platform->plain_options = 1;
  if (!pjrt_compile(text, strlen(text), PJRT_FULL, platform->first, out_program, &failure)) return HAL_OK;
  return pjrt_failure_report("the platform cannot compile a test program", &failure);
}

/* Reads HAL_PJRT_MEMORY. */
static hal_status_t read_setting(int *out_addressed, int *out_opaque) {
  const char *const setting = hal_setting("HAL_PJRT_MEMORY");
  *out_addressed = setting && strcmp(setting, "addressed") == 0;
  *out_opaque = setting && strcmp(setting, "opaque") == 0;
  if (!setting || !*setting || *out_addressed || *out_opaque || strcmp(setting, "auto") == 0) return HAL_OK;
  return pjrt_error(HAL_INVALID_ARGUMENT,
                    "pjrt: invalid HAL_PJRT_MEMORY='%.40s': expected 'auto', 'addressed' or 'opaque'", setting);
}

/* Runs the program of each platform in memory of this process. One that computes elsewhere makes the memory of all
 * platforms opaque. */
static hal_status_t test_addressed(pjrt_run_t *runs, int requested) {
  for (int32_t i = 0; i < pjrt.platform_count; i++) {
    char why[PJRT_WHY] = "";
    if (computes_in_place(&runs[i], why)) continue;
    if (requested)
      return pjrt_error(HAL_UNAVAILABLE,
                        "pjrt: the platform '%s' does not compute in memory of the host%s%s; HAL_PJRT_MEMORY=addressed "
                        "requires that, so use 'opaque'",
                        pjrt.platforms[i].name, *why ? ": " : "", why);
    pjrt.opaque = 1;
  }
  return HAL_OK;
}

hal_status_t pjrt_probe_memory(void) {
  static const uint32_t place = 1;
  pjrt_run_t runs[PJRT_MAX_PLATFORMS];
  int addressed;
  hal_status_t status = read_setting(&addressed, &pjrt.opaque);
  for (int32_t i = 0; i < pjrt.platform_count; i++) {
    runs[i] = (pjrt_run_t){.site = pjrt.platforms[i].first, .argument_count = 2, .result_count = 1, .places = &place};
    if (!status) status = compile_test(&pjrt.platforms[i], &runs[i].program);
  }
  if (!status && !pjrt.opaque) status = test_addressed(runs, addressed);
  for (int32_t i = 0; i < pjrt.platform_count && !status && pjrt.opaque; i++) status = test_opaque(&runs[i]);
  for (int32_t i = 0; i < pjrt.platform_count; i++) pjrt_program_release(runs[i].site, runs[i].program);
  return status;
}
