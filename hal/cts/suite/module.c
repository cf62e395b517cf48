/* module.c: kernels of the suite's own, in a dialect that carries them: "opencl-c", "cuda-c", or "host" for devices that are the host's CPU. */
#include <stdio.h>

#include "cts.h"
#include "hal/plugin_kernels.h"
#include "hal/status.h"

enum { COUNT = 5000, BLOCK = 64 };

/* One text in two languages, by what a kernel, its pointers and its place are called in them. */
#define SOURCE(KERNEL, GLOBAL, PLACE)                    \
  KERNEL "void cts_ramp(" GLOBAL                         \
         "int *to, int value, int count) {\n"            \
         "  int i = (int)" PLACE                         \
         ";\n"                                           \
         "  if (i < count) to[i] = value + 3 * i;\n"     \
         "}\n" KERNEL "void cts_add(" GLOBAL             \
         "int *to, int value, int count) {\n"            \
         "  int i = (int)" PLACE                         \
         ";\n"                                           \
         "  if (i < count) to[i] = to[i] * 2 + value;\n" \
         "}\n"
#define WRONG(KERNEL, GLOBAL) KERNEL "void broken(" GLOBAL "int *to) { to[0] = there_is_no_such_name; }"

typedef struct language_s {
  const char *dialect, *source, *wrong;
} language_t;
static const language_t languages[] = {
    {"opencl-c", SOURCE("__kernel ", "__global ", "get_global_id(0)"), WRONG("__kernel ", "__global ")},
    {"cuda-c", SOURCE("extern \"C\" __global__ ", "", "(blockIdx.x * blockDim.x + threadIdx.x)"),
     WRONG("extern \"C\" __global__ ", "")}};

static void ramp(const hal_host_range_t *range, void *const *args) {
  int32_t *const to = *(int32_t *const *)args[0];
  const int32_t value = *(const int32_t *)args[1], count = *(const int32_t *)args[2];
  for (uint64_t i = range->begin; i < range->end; i++)
    if ((int64_t)i < count) to[i] = value + 3 * (int32_t)i;
}

static void add(const hal_host_range_t *range, void *const *args) {
  int32_t *const to = *(int32_t *const *)args[0];
  const int32_t value = *(const int32_t *)args[1], count = *(const int32_t *)args[2];
  for (uint64_t i = range->begin; i < range->end; i++)
    if ((int64_t)i < count) to[i] = to[i] * 2 + value;
}

/* Dialects stand with a comma between them. */
static int is_listed(const cts_t *t, const char *dialect) {
  char list[sizeof t->info.dialects + 2], word[34];
  snprintf(list, sizeof list, ",%.63s", t->info.dialects);
  for (char *at = list; *at; at++)
    if (*at == ' ' || *at == ';') *at = ',';
  const size_t length = strlen(list);
  list[length] = ',', list[length + 1] = '\0';
  snprintf(word, sizeof word, ",%.31s,", dialect);
  return strstr(list, word) != NULL;
}

/* The first language of ours that the device lists, NULL = none. */
static const language_t *language_of(const cts_t *t) {
  for (size_t i = 0; i < sizeof languages / sizeof *languages; i++)
    if (is_listed(t, languages[i].dialect)) return &languages[i];
  return NULL;
}

#define NO_LANGUAGE "the suite has kernels in \"opencl-c\", \"cuda-c\" and \"host\", the device takes \"%s\""

static hal_plugin_module_t *load(cts_t *t) {
  static const hal_host_kernel_t kernels[] = {
      {.name = "cts_add", .fn = add, .arg_count = 3, .unit = HAL_HOST_ITEMS, .grain = 256},
      {.name = "cts_ramp", .fn = ramp, .arg_count = 3, .unit = HAL_HOST_ITEMS, .grain = 256}};
  hal_plugin_module_t *module = NULL;
  hal_module_desc_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_module_desc_t, size), .options = ""};
  const language_t *const language = language_of(t);
  if (language) {
    desc.dialect = language->dialect, desc.data = language->source, desc.size = strlen(language->source);
  } else if (is_listed(t, "host") ||
             is_listed(t, "native")) { /* a CPU that takes our portable kernels may take these, too */
    desc.dialect = "host", desc.data = kernels, desc.size = sizeof kernels;
  } else {
    cts_skip(t, NO_LANGUAGE, t->info.dialects);
  }
  const hal_status_t status = cts_module_load(t, t->device, &desc, &module);
  if (status == HAL_UNIMPLEMENTED && !is_listed(t, desc.dialect)) cts_skip(t, NO_LANGUAGE, t->info.dialects);
  cts_expect_ok(t, HAL_SLOT_module_load, status);
  CTS_CHECK(t, module, "module_load gave HAL_OK and no module");
  return module;
}

static hal_plugin_kernel_t *find(cts_t *t, hal_plugin_module_t *module, const char *name) {
  hal_plugin_kernel_t *kernel = NULL;
  CTS_OK(t, kernel_get, module, name, &kernel);
  CTS_CHECK(t, kernel, "kernel_get gave HAL_OK and no kernel");
  return kernel;
}

/* Queues a kernel, and makes everything that it was given useless when the call has returned. */
static void launch(cts_t *t, hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream, void *to, int32_t value,
                   int32_t count) {
  hal_arg_t args[3] = {
      {&to, sizeof to, HAL_ARG_POINTER}, {&value, sizeof value, HAL_ARG_VALUE}, {&count, sizeof count, HAL_ARG_VALUE}};
  hal_launch_t launch = {.struct_size = HAL_STRUCT_SIZE(hal_launch_t, reserved),
                         .grid = {((uint32_t)count + BLOCK - 1) / BLOCK, 1, 1},
                         .block = {BLOCK, 1, 1},
                         .arg_count = 3,
                         .args = args};
  CTS_OK(t, kernel_launch, kernel, stream, &launch);
  to = NULL, value = -1, count = 0;
  memset(args, 0, sizeof args);
  memset(&launch, 0, sizeof launch);
  __asm__ volatile(""
                   :
                   : "r"(&to), "r"(&value), "r"(&count), "r"(args), "r"(&launch)
                   : "memory"); /* the stores happen */
}

void cts_case_module_loads(cts_t *t) {
  for (int i = 0; i < 3; i++) {
    hal_plugin_module_t *const module = load(t);
    find(t, module, "cts_ramp");
    find(t, module, "cts_add");
    CTS_OK(t, module_unload, module);
  }
}

static void check(cts_t *t, const void *device, int32_t value, int32_t factor, int32_t more, const char *what) {
  int32_t *const got = (int32_t *)(void *)cts_host(t, COUNT * 4), *const expected =
                                                                      (int32_t *)(void *)cts_host(t, COUNT * 4);
  for (int32_t i = 0; i < COUNT; i++) expected[i] = (value + 3 * i) * factor + more;
  cts_get(t, NULL, got, device, COUNT * 4);
  cts_same(t, got, expected, COUNT * 4, what);
}

void cts_case_module_launch(cts_t *t) {
  hal_plugin_kernel_t *const kernel = find(t, load(t), "cts_ramp");
  uint8_t *const device = cts_alloc(t, COUNT * 4 + 512);
  hal_plugin_stream_t *const stream = cts_stream(t);
  launch(t, kernel, NULL, device, 7, COUNT);
  check(t, device, 7, 1, 0, "the result of a kernel on the NULL stream");
  launch(t, kernel, stream, device, 1000, COUNT);
  cts_sync(t, stream);
  check(t, device, 1000, 1, 0, "the result of a kernel on a stream");
  launch(t, kernel, NULL, device + 512, -5, COUNT);
  check(t, device + 512, -5, 1, 0, "the result of a kernel at an offset of its memory");
}

void cts_case_module_copies_arguments(cts_t *t) {
  enum { LAUNCHES = 10 };
  static cts_gate_t gate;
  hal_plugin_kernel_t *const kernel = find(t, load(t), "cts_ramp");
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *devices[LAUNCHES];
  for (int i = 0; i < LAUNCHES; i++) devices[i] = cts_alloc(t, COUNT * 4);
  launch(t, kernel, stream, devices[0], 0, COUNT); /* compiled, if it is done at the first launch */
  cts_sync(t, stream);
  cts_gate_close(t, &gate, stream);
  for (int32_t i = 0; i < LAUNCHES; i++) launch(t, kernel, stream, devices[i], i * 100, COUNT);
  cts_gate_open(&gate);
  cts_sync(t, stream);
  for (int32_t i = 0; i < LAUNCHES; i++)
    check(t, devices[i], i * 100, 1, 0, "a kernel whose arguments changed once it was queued");
}

void cts_case_module_order(cts_t *t) {
  hal_plugin_module_t *const module = load(t);
  hal_plugin_kernel_t *const first = find(t, module, "cts_ramp"), *const second = find(t, module, "cts_add");
  hal_plugin_stream_t *const stream = cts_stream(t);
  void *const a = cts_alloc(t, COUNT * 4), *const b = cts_alloc(t, COUNT * 4);
  CTS_GENERAL(t, "but runs in order");
  for (int32_t i = 0; i < 50; i++) {
    launch(t, first, stream, a, i, COUNT);
    launch(t, second, stream, a, 5, COUNT);
    CTS_OK(t, memory_copy, stream, b, t->device, a, t->device, COUNT * 4);
    launch(t, second, stream, b, 1, COUNT);
    launch(t, first, stream, a, -1, COUNT);
    cts_sync(t, stream);
    check(t, b, i, 4, 11, "the result of kernels and a copy in a row on one stream");
  }
}

void cts_case_module_no_kernel(cts_t *t) {
  hal_plugin_kernel_t *const mark = (hal_plugin_kernel_t *)(void *)t;
  hal_plugin_kernel_t *kernel = mark;
  CTS_STATUS(t, HAL_NOT_FOUND, kernel_get, load(t), "cts_there_is_no_such_kernel", &kernel);
  CTS_GENERAL(t, "stay untouched on failure");
  CTS_CHECK(t, kernel == mark, "kernel_get failed and wrote to its out-parameter");
}

void cts_case_module_no_dialect(cts_t *t) {
  hal_plugin_module_t *module = NULL;
  const hal_module_desc_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_module_desc_t, size),
                                  .dialect = "cts-no-such-dialect",
                                  .options = "",
                                  .data = "x",
                                  .size = 1};
  CTS_STATUS(t, HAL_UNIMPLEMENTED, module_load, t->device, &desc, &module);
}

void cts_case_module_wrong_source(cts_t *t) {
  hal_plugin_module_t *module = NULL;
  const language_t *const language = language_of(t);
  if (!language) cts_skip(t, NO_LANGUAGE, t->info.dialects);
  const hal_module_desc_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_module_desc_t, size),
                                  .dialect = language->dialect,
                                  .options = "",
                                  .data = language->wrong,
                                  .size = strlen(language->wrong)};
  CTS_STATUS(t, HAL_INVALID_ARGUMENT, module_load, t->device, &desc, &module);
  CTS_CHECK(t, strstr(hal_error_message(), "there_is_no_such_name"),
            "the message of module_load has no compiler's log: %s", hal_error_message());
}
