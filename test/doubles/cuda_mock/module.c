/* module.c: modules: shared objects from compile.c, as they are ("cubin") or as text that is compiled here ("PTX"), and
 * real cubins (cubin.c). */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compile.h"
#include "mock.h"

/* The log options. */
typedef struct log_s {
  char *text;
  size_t room;
} log_t;

static log_t log_of(unsigned count, const CUjit_option *options, void *const *values) {
  log_t log = {NULL, 0};
  for (unsigned i = 0; i < count; i++) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log.text = values[i];
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) log.room = (size_t)(uintptr_t)values[i];
  }
  return log;
}

static void say(const log_t *log, const char *text) {
  if (log->text && log->room) snprintf(log->text, log->room, "%s", text);
}

/* Linkers put the table of sections last. */
static size_t size_of(const Elf64_Ehdr *head) { return head->e_shoff + (size_t)head->e_shnum * head->e_shentsize; }

static int write_all(int file, const char *data, size_t size) {
  while (size) {
    const ssize_t written = write(file, data, size);
    if (written <= 0) return 0;
    data += written;
    size -= (size_t)written;
  }
  return 1;
}

/* A separate file for each: libraries are identified by their paths, and the path of a memory file would be reused. */
static CUresult open_image(CUmodule module, const void *data, size_t size, const log_t *log) {
  const char *const tmp = getenv("TMPDIR");
  char path[256];
  if (snprintf(path, sizeof path, "%s/cuda_mock_module.XXXXXX", tmp && *tmp ? tmp : "/tmp") >= (int)sizeof path)
    return CUDA_ERROR_OPERATING_SYSTEM;
  const int file = mkstemp(path);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (write_all(file, data, size)) module->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  close(file);
  unlink(path);
  if (!module->library) {
    const char *const why = dlerror();
    say(log, why ? why : "error: this is no shared object");
    return CUDA_ERROR_INVALID_IMAGE;
  }
  module->image = dlsym(module->library, "cuda_mock_image");
  if (!module->image || module->image->version != 1) return CUDA_ERROR_INVALID_IMAGE;
  if (module->image->yield) *module->image->yield = fibre_yield;
  const unsigned own = (unsigned)setting("CUDA_MOCK_CAPABILITY", 90), its = module->image->architecture;
  return its / 10 == own / 10 && its % 10 <= own % 10 ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult open_cubin(CUmodule module, const void *image) {
  const CUresult code = cubin_open(image, (unsigned)setting("CUDA_MOCK_CAPABILITY", 90), &module->cubin);
  if (!code) module->image = cubin_image(module->cubin);
  return code;
}

/* The driver's own compiler for PTX. */
static CUresult open_text(CUmodule module, const char *ptx, const log_t *log) {
  const unsigned architecture = (unsigned)setting("CUDA_MOCK_CAPABILITY", 90);
  char *binary = NULL, *words = NULL;
  size_t size = 0;
  const int status = mock_assemble(ptx, architecture, &binary, &size, &words);
  if (status) say(log, words ? words : "the mock driver's compiler could not run");
  const CUresult code = status ? CUDA_ERROR_INVALID_PTX : open_image(module, binary, size, log);
  free(binary);
  free(words);
  return code;
}

void module_release(CUmodule module) {
  if (atomic_fetch_sub(&module->users, 1) != 1) return;
  for (CUfunction function = module->functions, next; function; function = next) {
    next = function->next;
    free(function);
  }
  if (module->library) dlclose(module->library);
  cubin_close(module->cubin);
  pthread_mutex_destroy(&module->lock);
  free(module);
}

API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                                void **values) {
  CUcontext context;
  CUresult code = enter(&context);
  const log_t log = log_of(count, options, values);
  if (code) return code;
  if (!image) return CUDA_ERROR_INVALID_VALUE;
  if (fault_takes(FAULT_MODULE)) {
    say(&log, "error: refused on demand");
    return CUDA_ERROR_INVALID_PTX;
  }
  CUmodule const made = calloc(1, sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made->context = context;
  made->users = 1;
  pthread_mutex_init(&made->lock, NULL);
  const Elf64_Ehdr *const head = image;
  if (memcmp(image, ELFMAG, SELFMAG) != 0)
    code = open_text(made, image, &log);
  else if (cubin_is_one(image))
    code = open_cubin(made, image);
  else if (head->e_machine != EM_X86_64 && head->e_machine != EM_AARCH64)
    code = CUDA_ERROR_NO_BINARY_FOR_GPU;
  else
    code = open_image(made, image, size_of(head), &log);
  if (code)
    module_release(made);
  else
    *module = made;
  return code;
}

API CUresult cuModuleUnload(CUmodule module) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  module_release(module);
  return CUDA_SUCCESS;
}

static const module_kernel_t *find(const module_image_t *image, const char *name) {
  for (unsigned i = 0; i < image->count; i++)
    if (strcmp(image->kernels[i].name, name) == 0) return &image->kernels[i];
  return NULL;
}

API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  CUcontext context;
  const CUresult code = enter(&context);
  if (code) return code;
  if (!module || !name) return CUDA_ERROR_INVALID_VALUE;
  const module_kernel_t *const kernel = find(module->image, name);
  if (!kernel) return CUDA_ERROR_NOT_FOUND;
  CUfunction const made = calloc(1, sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made->module = module;
  made->kernel = kernel;
  made->most_shared = 48 << 10;
  pthread_mutex_lock(&module->lock);
  made->next = module->functions;
  module->functions = made;
  pthread_mutex_unlock(&module->lock);
  *function = made;
  return CUDA_SUCCESS;
}
