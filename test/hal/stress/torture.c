/* torture.c: makes each fallible call of a scenario fail in turn. For n = 1, 2, ... a child process runs the
 * scenario with the n-th call of the plugin (HAL_FAULT=*:n) or the n-th host allocation (host_malloc:n) failing,
 * until a run encounters no failure. Each run must report the injected status, or none if the HAL has an
 * alternative. It must succeed when it is repeated, must leave no object in the plugin, and must not leak under the
 * address sanitizer. A plain program: it forks. */
#define _POSIX_C_SOURCE 200809L
#include <hal/hal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
int __lsan_do_recoverable_leak_check(void);
#else
static int __lsan_do_recoverable_leak_check(void) { return 0; }
#endif

/* A status that is not used otherwise, so that it can only be the injected one. */
#define INJECTED HAL_DATA_LOSS

enum {
  RUN_INJECTED = 10,
  RUN_UNTOUCHED = 11,
  RUN_WRONG_STATUS = 12,
  RUN_LEAK = 13,
  RUN_NO_MESSAGE = 14,
  RUN_LASTING = 15
};

static int errors_logged;
static void count_errors(int32_t level, const char *message, void *unused) {
  (void)unused;
  if (level != HAL_LOG_ERROR) return;
  fprintf(stderr, "%s\n", message);
  errors_logged++;
}

static hal_status_t use_kernel(hal_stream_t *stream) {
  hal_module_t *module = NULL;
  hal_kernel_t *store = NULL;
  hal_block_t *block = NULL;
  int32_t value = 5, *address = NULL;
  const hal_module_desc_t desc = {.struct_size = sizeof desc, .dialect = "tally", .options = ""};
  const hal_arg_t arguments[] = {{&address, sizeof address, HAL_ARG_POINTER}, {&value, sizeof value, HAL_ARG_VALUE}};
  const hal_launch_t launch = {
      .struct_size = sizeof launch, .grid = {1, 1, 1}, .block = {1, 1, 1}, .arg_count = 2, .args = arguments};
  hal_status_t status = hal_memory_allocate(0, stream, sizeof *address, &block);
  if (!status) address = hal_memory_block_address(block);
  if (!status) status = hal_module_load(0, &desc, &module);
  if (!status) status = hal_kernel_get(module, "store", &store);
  if (!status) status = hal_kernel_launch(store, stream, &launch);
  if (!status) status = hal_stream_synchronize(stream);
  if (!status && *address != value) status = HAL_INTERNAL;
  hal_memory_release(block);
  hal_module_unload(module);
  return status == HAL_UNIMPLEMENTED ? HAL_OK : status; /* not every plugin has modules */
}

static hal_status_t use_events(hal_stream_t *stream) {
  hal_event_t *start = NULL, *end = NULL;
  int64_t ns;
  hal_status_t status = hal_event_create(0, HAL_EVENT_TIMING, &start);
  if (!status) status = hal_event_create(0, HAL_EVENT_TIMING, &end);
  if (!status) status = hal_event_record(start, stream);
  if (!status) status = hal_event_record(end, stream);
  if (!status) status = hal_stream_wait_event(NULL, end);
  if (!status) status = hal_event_query(end);
  if (!status) status = hal_event_synchronize(end);
  if (!status) status = hal_event_elapsed(start, end, &ns);
  hal_event_destroy(start);
  hal_event_destroy(end);
  return status;
}

static hal_status_t use_memory(hal_stream_t *stream) {
  hal_block_t *block = NULL;
  uint32_t back[256], pattern = 0xC0FFEE;
  hal_status_t status = hal_memory_allocate(0, stream, sizeof back, &block);
  if (!status)
    status = hal_memory_fill(stream, 0, hal_memory_block_address(block), &pattern, sizeof pattern, sizeof back);
  if (!status) status = hal_memory_copy(stream, back, HAL_HOST, hal_memory_block_address(block), 0, sizeof back);
  if (!status) status = hal_stream_synchronize(stream);
  for (int i = 0; !status && i < 256; i++) status = back[i] == pattern ? HAL_OK : HAL_INTERNAL;
  hal_memory_release(block);
  return status;
}

static hal_status_t use_host_memory(hal_stream_t *stream) {
  hal_block_t *block = NULL;
  void *staging = NULL;
  hal_status_t status = hal_host_allocate(0, 1000, &staging);
  if (!status) status = hal_memory_allocate(0, stream, 1000, &block);
  if (!status) status = hal_host_record_stream(staging, stream);
  if (!status) memset(staging, 7, 1000);
  if (!status) status = hal_memory_copy(stream, hal_memory_block_address(block), 0, staging, HAL_HOST, 1000);
  const hal_status_t freed = hal_host_free(staging);
  hal_memory_release(block);
  if (!status) status = hal_host_empty_cache(0);
  return status ? status : freed;
}

static hal_status_t scenario(const char *path) {
  hal_stream_t *stream = NULL;
  hal_generator_t *generator = NULL;
  void *native;
  hal_status_t status = hal_registry_open(path);
  if (!status) status = hal_stream_acquire(0, 0, &stream);
  if (!status) status = hal_stream_acquire(0, -1, &stream);
  if (!status) status = hal_stream_native(stream, &native);
  if (!status) status = hal_generator_default(0, &generator);
  if (!status) status = use_events(stream);
  if (!status) status = use_kernel(stream);
  if (!status) status = use_memory(stream);
  if (!status) status = use_host_memory(stream);
  if (!status) status = hal_device_synchronize(0);
  if (!status) status = hal_memory_empty_cache(0);
  return status;
}

static const char *layers; /* the failures are injected with and without the validate layer, which logs its reports */

/* The main function of a child; its exit status shows the result of the run. */
static int run(const char *path, const char *fault, hal_status_t injected) {
  setenv("HAL_LAYERS", layers, 1);
  setenv("HAL_FAULT", fault, 1);
  hal_log_set_sink(count_errors, NULL);
  const hal_status_t status = scenario(path);
  if (status && status != injected) return RUN_WRONG_STATUS;
  if (status && !strstr(hal_error_message(), " ")) return RUN_NO_MESSAGE;
  /* A fault is injected once: the failed call must work now. A failed init persists, and is reported again. */
  const hal_status_t again = status ? scenario(path) : HAL_OK;
  if (again && !(again == injected && strstr(hal_error_message(), ", init: "))) {
    fprintf(stderr, "%s: again: %s\n", fault, hal_error_message());
    return RUN_LASTING;
  }
  hal_registry_close();
  if (errors_logged || __lsan_do_recoverable_leak_check()) return RUN_LEAK;
  return status ? RUN_INJECTED : RUN_UNTOUCHED;
}

/* Runs the scenario with failure `format` % n for n = 1, 2, ... Returns how many runs failed as injected. */
static int torture(const char *path, const char *format, hal_status_t injected, int *mistakes) {
  int reported = 0, unnoticed = 0;
  for (int n = 1; n < 1000; n++) {
    char fault[64];
    int status = 0;
    snprintf(fault, sizeof fault, format, n);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) _exit(run(path, fault, injected));
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    const int result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (result == RUN_INJECTED) {
      reported++;
      unnoticed = 0;
    } else if (result == RUN_UNTOUCHED) {
      /* Either the HAL does not depend on that call, or the scenario has fewer calls than n. Several such runs in a
         row end the loop. */
      if (++unnoticed == 16) break;
    } else {
      fprintf(stderr, "%s with %s: run ended with %d\n", path, fault, result);
      ++*mistakes;
    }
  }
  return reported;
}

int main(void) {
  static const char *const plugins[] = {FIXTURE_DIR "/libhal_tally.so", FIXTURE_DIR "/libhal_old.so"};
  int mistakes = 0;
  static const char *const choices[] = {"fault", "validate,fault"};
  for (size_t i = 0; i < 2 * sizeof plugins / sizeof plugins[0]; i++) {
    const char *const plugin = plugins[i / 2];
    layers = choices[i % 2];
    const int calls = torture(plugin, "*:%d:DATA_LOSS", INJECTED, &mistakes);
    const int allocations = torture(plugin, "host_malloc:%d", HAL_RESOURCE_EXHAUSTED, &mistakes);
    printf("%s, %s: %d calls and %d allocations failed one by one\n", plugin, layers, calls, allocations);
    if (calls < 20 || allocations < 5) mistakes++; /* the scenario did not run correctly */
  }
  printf("%d mistakes\n", mistakes);
  return mistakes != 0;
}
