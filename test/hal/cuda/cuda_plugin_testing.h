/* cuda_plugin_testing.h: direct calls of the CUDA plugin's functions, for functions that the host does not call yet. */
#ifndef TEST_HAL_CUDA_PLUGIN_TESTING_H_
#define TEST_HAL_CUDA_PLUGIN_TESTING_H_

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <hal/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver_testing.h"

static hal_plugin_api_t api;
static int32_t device_count;
static int32_t mock_devices = 2;
static char message[4096];

static hal_status_t keep_message(hal_status_t code, int64_t native_code, const char *text) {
  (void)native_code;
  snprintf(message, sizeof message, "%s", text);
  return code;
}
static void say_nothing(int32_t level, const char *text) { (void)level, (void)text; }
static void *allocate(size_t size, size_t alignment) {
  void *ptr = NULL;
  return posix_memalign(&ptr, alignment < sizeof(void *) ? sizeof(void *) : alignment, size) ? NULL : ptr;
}
static uint64_t correlate(void) { return 1; }
static const hal_host_api_t host_api = {.struct_size = sizeof host_api,
                                        .major = HAL_ABI_MAJOR,
                                        .minor = HAL_ABI_MINOR,
                                        .error_set = keep_message,
                                        .log = say_nothing,
                                        .mem_alloc = allocate,
                                        .mem_free = free,
                                        .profile_correlation = correlate};

#define OK(call) cr_assert_eq((call), HAL_OK, #call ": %s", message)
#define FAILS(call, status, says)                             \
  do {                                                        \
    cr_assert_eq((call), (status), #call ": %s", message);    \
    cr_assert_not_null(strstr(message, says), "%s", message); \
  } while (0)

static inline void open_plugin_with(const hal_host_api_t *host) {
  hal_plugin_entry_fn_t entry = NULL;
  int32_t count = 0;
  char devices[16];
  snprintf(devices, sizeof devices, "%d", (int)mock_devices);
  setenv("CUDA_MOCK_DEVICES", devices, 1);
  void *const plugin = dlopen(PLUGIN_DIR "/libhal_cuda.so", RTLD_NOW | RTLD_LOCAL);
  cr_assert_not_null(plugin, "%s", dlerror());
  void *const symbol = dlsym(plugin, "hal_plugin_entry");
  memcpy(&entry, &symbol, sizeof entry);
  api.struct_size = sizeof api;
  cr_assert_eq(entry(host, &api), HAL_OK);
  OK(api.device_count(&count));
  if (is_on_mock()) cr_assert_eq(count, mock_devices);
  device_count = count;
  OK(api.init(""));
}
static inline void open_plugin(void) { open_plugin_with(&host_api); }

static inline uint32_t *words_on(int32_t device, size_t bytes) {
  void *ptr = NULL;
  OK(api.memory_alloc(device, bytes, 0, &ptr));
  OK(api.memory_fill(NULL, device, ptr, &(char){0}, 1, bytes));
  return ptr;
}

static inline uint32_t word_at(int32_t device, const uint32_t *from) {
  uint32_t word = 0;
  OK(api.memory_copy(NULL, &word, HAL_HOST, from, device, sizeof word));
  return word;
}

/* A kernel that adds its second argument to the number at its first one. */
static inline hal_plugin_kernel_t *adder(int32_t device) {
  static const char source[] = "extern \"C\" __global__ void add(unsigned *to, unsigned number) { *to += number; }";
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "cuda-c", .options = "", .data = source, .size = sizeof source - 1};
  hal_plugin_module_t *module = NULL;
  hal_plugin_kernel_t *kernel = NULL;
  OK(api.module_load(device, &desc, &module));
  OK(api.kernel_get(module, "add", &kernel));
  return kernel;
}

static inline hal_status_t queue_add(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream, uint32_t *to,
                                     uint32_t number) {
  const hal_arg_t args[] = {{&to, sizeof to, HAL_ARG_POINTER}, {&number, sizeof number, HAL_ARG_VALUE}};
  const hal_launch_t launch = {
      .struct_size = sizeof launch, .grid = {1, 1, 1}, .block = {1, 1, 1}, .arg_count = 2, .args = args};
  return api.kernel_launch(kernel, stream, &launch);
}

#endif /* TEST_HAL_CUDA_PLUGIN_TESTING_H_ */
