/* compile.c: CUDA C by NVRTC, a library that is opened at run time: HAL_CUDA_NVRTC, else by the loader's search, first
 * that of the driver's own version, else in the toolkit's folder. */
#define _GNU_SOURCE /* RTLD_GLOBAL */
#include <dirent.h>
#include <dlfcn.h>
#include <hal/plugin_library.h>
#include <hal/plugin_setting.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "module.h"

enum { LOG_BYTES = 3000, LOG_MOST = 1 << 24, MOST_OPTIONS = 64, MOST_ARCHITECTURES = 64 };

/* ---- the library ------------------------------------------------------------------------------------------------ */

#define DECLARE(name, parameters) nvrtcResult(*name) parameters;
typedef struct compiler_s {
  NVRTC_CALLS(DECLARE)
} compiler_t;
static compiler_t rtc;

#define ROW(name, parameters) {#name, offsetof(compiler_t, name), 0},
static const hal_library_symbol_t symbols[] = {NVRTC_CALLS(ROW)};

static hal_library_t library = {
    .plugin = "cuda",
    .advice =
        "install NVIDIA's run-time compiler for CUDA C (a toolkit's libnvrtc, or the Python package "
        "nvidia-cuda-nvrtc), and set HAL_CUDA_NVRTC to its file if it is not found",
    CUDA_LIBRARY_CALLS(symbols, rtc)};
static char in_toolkit[PATH_MAX];

/* NVRTC loads its builtins by name only, so those next to a library that was opened by its path must be opened before.
 * */
static void open_builtins(const char *path) {
  char folder[PATH_MAX], file[2 * PATH_MAX];
  const char *const slash = strrchr(path, '/');
  if (!slash || slash - path >= (ptrdiff_t)sizeof folder) return;
  snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
  DIR *const list = opendir(folder);
  for (const struct dirent *entry; list && (entry = readdir(list));) {
    if (strncmp(entry->d_name, "libnvrtc-builtins.so", 20) != 0) continue;
    snprintf(file, sizeof file, "%s/%s", folder, entry->d_name);
    dlopen(file, RTLD_NOW | RTLD_GLOBAL); /* never closed, like the library itself */
  }
  if (list) closedir(list);
}

static void choose_names(void) {
  const char *const named = hal_setting("HAL_CUDA_NVRTC");
  size_t count = 0;
  if (named && *named) {
    open_builtins(named);
    library.names[0] = named;
    return;
  }
  const int driver =
      cuda_loader_cuda_version() / 1000; /* an older compiler's code runs on every driver, a newer one's may not */
  if (driver >= 13) library.names[count++] = "libnvrtc.so.13";
  library.names[count++] = "libnvrtc.so.12";
  library.names[count++] = driver >= 13 ? "libnvrtc.so.11.2" : "libnvrtc.so.13";
  if (cuda_find_in_toolkit("libnvrtc.so", in_toolkit, sizeof in_toolkit)) {
    open_builtins(in_toolkit);
    library.names[count] = in_toolkit;
  }
}

hal_status_t cuda_compiler_open(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  static atomic_int is_logged;
  pthread_once(&once, choose_names);
  const hal_status_t status = hal_library_open(&library);
  if (!status && !atomic_exchange(&is_logged, 1)) {
    char message[PATH_MAX + 64];
    void *function = NULL;
    int major = 0, minor = 0;
    memcpy(&function, &rtc.nvrtcVersion, sizeof function);
    rtc.nvrtcVersion(&major, &minor);
    snprintf(message, sizeof message, "cuda: the driver is %s, the compiler NVRTC %d.%d is %s", cuda_loader_version(),
             major, minor, cuda_file_of(function));
    hal_host->log(HAL_LOG_INFO, message);
  }
  return status;
}

/* ---- compiling -------------------------------------------------------------------------------------------------- */

/* Chooses the target of compiled code: the device if the compiler supports it, else the latest earlier architecture, as
 * PTX that the driver compiles. */
static hal_status_t choose_architecture(const cuda_device_t *device, char option[64], int *out_ptx) {
  int count = 0, list[MOST_ARCHITECTURES], best = 0;
  if (rtc.nvrtcGetNumSupportedArchs(&count) || count <= 0 || count > MOST_ARCHITECTURES ||
      rtc.nvrtcGetSupportedArchs(list))
    return cuda_error(HAL_INTERNAL, 0,
                      "cuda: the compiler does not report the devices that it supports; install another NVRTC");
  for (int i = 0; i < count; i++)
    if (list[i] <= device->capability && list[i] > best) best = list[i];
  if (!best) {
    int major = 0, minor = 0;
    rtc.nvrtcVersion(&major, &minor);
    return cuda_error(
        HAL_UNAVAILABLE, 0,
        "cuda: NVRTC %d.%d compiles for compute capability %d.%d and later, '%s' has %d.%d; install an older one, "
        "and set HAL_CUDA_NVRTC to its file",
        major, minor, list[0] / 10, list[0] % 10, device->name, device->capability / 10, device->capability % 10);
  }
  *out_ptx = best != device->capability;
  snprintf(option, 64, "--gpu-architecture=%s_%d", *out_ptx ? "compute" : "sm", best);
  return HAL_OK;
}

/* Splits the caller's options at spaces, in place. Returns their number, -1 if there are too many. */
static int part_options(char *options, const char **words, int count) {
  char *rest = NULL;
  for (char *word = strtok_r(options, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    if (count == MOST_OPTIONS) return -1;
    words[count++] = word;
  }
  return count;
}

/* Warnings precede errors, and may contain the word in a name. */
const char *cuda_log_error(const char *log) {
  const char *first = strstr(log, "error:");
  if (!first) first = strstr(log, "error");
  while (first && first > log && first[-1] != '\n') first--;
  return first ? first : log;
}

static hal_status_t say_log(const cuda_device_t *device, nvrtcProgram program, nvrtcResult code) {
  size_t bytes = 0;
  char *const log = !rtc.nvrtcGetProgramLogSize(program, &bytes) && bytes && bytes <= LOG_MOST
                        ? hal_host->mem_alloc(bytes + 1, 1)
                        : NULL;
  if (log) memset(log, 0, bytes + 1); /* it may be written only partly */
  if (log && rtc.nvrtcGetProgramLog(program, log)) log[0] = '\0';
  const hal_status_t status =
      cuda_error(HAL_INVALID_ARGUMENT, (int64_t)code,
                 "cuda: a module in 'cuda-c' cannot be compiled for '%s' (NVRTC error %d): %.*s", device->name,
                 (int)code, LOG_BYTES, log && *log ? cuda_log_error(log) : "the compiler left no log");
  hal_host->mem_free(log);
  return status;
}

static hal_status_t take_image(nvrtcProgram program, int ptx, char **out_image, size_t *out_size) {
  size_t size = 0;
  nvrtcResult code = ptx ? rtc.nvrtcGetPTXSize(program, &size) : rtc.nvrtcGetCUBINSize(program, &size);
  if (!code && !size) code = NVRTC_ERROR_INTERNAL_ERROR;
  if (code)
    return cuda_error(HAL_INTERNAL, (int64_t)code, "cuda: the compiler returned no code (NVRTC error %d)", (int)code);
  char *const image = hal_host->mem_alloc(size + 1, 16);
  if (!image)
    return cuda_error(HAL_RESOURCE_EXHAUSTED, 0, "cuda: no host memory for a module of %zu bytes; free some memory",
                      size);
  image[size] = '\0';
  code = ptx ? rtc.nvrtcGetPTX(program, image) : rtc.nvrtcGetCUBIN(program, image);
  if (code) {
    hal_host->mem_free(image);
    return cuda_error(HAL_INTERNAL, (int64_t)code, "cuda: the compiler returned no code (NVRTC error %d)", (int)code);
  }
  *out_image = image;
  *out_size = size;
  return HAL_OK;
}

/* `source` and `options` end with NUL. */
static hal_status_t compile_text(const cuda_device_t *device, const char *source, char *options, char **out_image,
                                 size_t *out_size) {
  const char *words[MOST_OPTIONS];
  char architecture[64];
  int ptx = 0;
  nvrtcProgram program = NULL;
  hal_status_t status = choose_architecture(device, architecture, &ptx);
  if (status) return status;
  words[0] = architecture;
  const int count = part_options(options, words, 1);
  if (count < 0)
    return cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: a module has more than %d options for the compiler",
                      MOST_OPTIONS - 1);
  nvrtcResult code = rtc.nvrtcCreateProgram(&program, source, "kernel.cu", 0, NULL, NULL);
  if (code || !program)
    return cuda_error(HAL_RESOURCE_EXHAUSTED, (int64_t)code, "cuda: the compiler cannot start (NVRTC error %d)",
                      (int)code);
  code = rtc.nvrtcCompileProgram(program, count, words);
  status = code ? say_log(device, program, code) : take_image(program, ptx, out_image, out_size);
  rtc.nvrtcDestroyProgram(&program);
  return status;
}

/* Returns a copy of the bytes that ends with a NUL; NULL = no memory. */
static char *copy_text(const char *text, size_t size) {
  char *const copy = hal_host->mem_alloc(size + 1, 1);
  if (!copy) return NULL;
  memcpy(copy, text, size);
  copy[size] = '\0';
  return copy;
}

hal_status_t cuda_compile(const cuda_device_t *device, const hal_module_desc_t *desc, char **out_image,
                          size_t *out_size) {
  const char *const given = desc->options ? desc->options : "";
  hal_status_t status = cuda_compiler_open();
  if (status) return status;
  char *const source = copy_text(desc->data, desc->size), *const options = copy_text(given, strlen(given));
  status = source && options
               ? compile_text(device, source, options, out_image, out_size)
               : cuda_error(HAL_RESOURCE_EXHAUSTED, 0,
                            "cuda: no host memory to compile a module of %zu bytes; free some memory", desc->size);
  hal_host->mem_free(source);
  hal_host->mem_free(options);
  return status;
}
