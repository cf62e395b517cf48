/* fake_testing.h: opens libhal_fake.so and returns its function table, without the HAL: for tests, the stress
 * program and benchmarks of the plugin alone. The plugin is searched in the directories of HAL_PLUGIN_PATH.
 * Criterion is not used here. */
#ifndef TEST_HAL_FAKE_TESTING_H_
#define TEST_HAL_FAKE_TESTING_H_

#include <dlfcn.h>
#include <hal/plugin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Thread_local char fake_message[512]; /* of the thread's last error */

static inline hal_status_t fake_host_error_set(hal_status_t code, int64_t native_code, const char *message) {
  (void)native_code;
  snprintf(fake_message, sizeof fake_message, "%s", message);
  return code;
}

static inline void fake_host_log(int32_t level, const char *message) {
  if (level <= HAL_LOG_WARNING) fprintf(stderr, "log: %s\n", message);
}

static inline void *fake_host_mem_alloc(size_t size, size_t alignment) {
  return aligned_alloc(alignment < 16 ? 16 : alignment,
                       (size + alignment + 15) / (alignment < 16 ? 16 : alignment) * (alignment < 16 ? 16 : alignment));
}

static inline void fake_host_mem_free(void *ptr) { free(ptr); }

static _Thread_local uint64_t fake_correlation; /* of the work that this thread submits */
static inline uint64_t fake_host_correlation(void) { return fake_correlation; }

static const hal_host_api_t fake_host = {.struct_size = sizeof(hal_host_api_t),
                                         .major = HAL_ABI_MAJOR,
                                         .minor = HAL_ABI_MINOR,
                                         .error_set = fake_host_error_set,
                                         .log = fake_host_log,
                                         .mem_alloc = fake_host_mem_alloc,
                                         .mem_free = fake_host_mem_free,
                                         .profile_correlation = fake_host_correlation};

static hal_plugin_api_t fake_api = {.struct_size = sizeof(hal_plugin_api_t)};

/* Loads the plugin, without initialization. On failure, prints an error message and exits. */
static inline void fake_load(void) {
  char path[4096] = "";
#ifdef PLUGIN_DIR
  const char *directory = PLUGIN_DIR;
#else
  const char *directory = getenv("HAL_PLUGIN_PATH");
#endif
  for (; directory && *directory; directory += strcspn(directory, ":"), directory += *directory == ':') {
    snprintf(path, sizeof path, "%.*s/libhal_fake.so", (int)strcspn(directory, ":"), directory);
    if (access(path, R_OK) == 0) break;
  }
  void *library = *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  hal_plugin_entry_fn_t entry = NULL;
  if (library) *(void **)&entry = dlsym(library, "hal_plugin_entry");
  if (!entry || entry(&fake_host, &fake_api)) {
    fprintf(stderr, "libhal_fake.so not loaded (%s); set HAL_PLUGIN_PATH to its directory\n",
            library ? path : dlerror());
    exit(2);
  }
}

/* Loads and initializes the plugin. */
static inline void fake_open(void) {
  fake_load();
  if (fake_api.init("")) {
    fprintf(stderr, "init: %s\n", fake_message);
    exit(2);
  }
}

static inline int64_t fake_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void fake_sleep_ms(int milliseconds) {
  const struct timespec pause = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000};
  nanosleep(&pause, NULL);
}

/* A host function that holds its stream until `open` is set. */
typedef struct fake_gate_s {
  atomic_int entered, open;
} fake_gate_t;

static inline void fake_gate_wait(void *gate) {
  fake_gate_t *self = gate;
  atomic_store(&self->entered, 1);
  while (!atomic_load(&self->open)) fake_sleep_ms(1);
}

/* The kernel `name` of device 0. */
static inline hal_plugin_kernel_t *fake_kernel(const char *name) {
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "native", .options = "", .data = "", .size = 0};
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* tests enqueue from several threads */
  static hal_plugin_module_t *module;
  hal_plugin_kernel_t *kernel = NULL;
  pthread_mutex_lock(&lock);
  if ((!module && fake_api.module_load(0, &desc, &module)) || fake_api.kernel_get(module, name, &kernel)) {
    fprintf(stderr, "kernel %s: %s\n", name, fake_message);
    exit(2);
  }
  pthread_mutex_unlock(&lock);
  return kernel;
}

/* A launch of out[i] = a[i] + alpha * b[i] over n floats, by add_f32_contig. */
typedef struct fake_add_s {
  float *out;
  const float *a, *b;
  float alpha;
  uint64_t n;
  hal_arg_t args[5];
  hal_launch_t launch;
} fake_add_t;

static inline void fake_add_set(fake_add_t *add, float *out, const float *a, const float *b, float alpha, uint64_t n) {
  const uint32_t block = 256;
  add->out = out, add->a = a, add->b = b, add->alpha = alpha, add->n = n;
  add->args[0] = (hal_arg_t){&add->out, sizeof add->out, HAL_ARG_POINTER};
  add->args[1] = (hal_arg_t){&add->a, sizeof add->a, HAL_ARG_POINTER};
  add->args[2] = (hal_arg_t){&add->b, sizeof add->b, HAL_ARG_POINTER};
  add->args[3] = (hal_arg_t){&add->alpha, sizeof add->alpha, HAL_ARG_VALUE};
  add->args[4] = (hal_arg_t){&add->n, sizeof add->n, HAL_ARG_VALUE};
  add->launch = (hal_launch_t){.struct_size = sizeof add->launch,
                               .grid = {(uint32_t)((n + block - 1) / block), 1, 1},
                               .block = {block, 1, 1},
                               .arg_count = 5,
                               .args = add->args};
}

#endif /* TEST_HAL_FAKE_TESTING_H_ */
