/* compile.c: see compile.h. The compiler reads the source from a file in memory and writes a library into a folder that
 * only this user can access, which is removed when the library is loaded. */
#define _GNU_SOURCE /* dladdr1 */
#include "compile.h"

#include <dlfcn.h>
#include <errno.h>
#include <hal/plugin_setting.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hal/plugin_process.h"
#include "sanitize/sanitize.h"

enum { MOST_WORDS = 256, COMMAND = 5120, LOG = 3000 };

/* The files of one compilation. */
typedef struct work_s {
  char folder[PATH_MAX], library[PATH_MAX + 16];
  int in, out, log;
} work_t;

int fake_compile_accepts(void) { return fake.settings.compiler[0] != '\0'; }

static hal_status_t begin(work_t *work, const hal_module_desc_t *desc) {
  const char *const place = hal_setting("TMPDIR");
  *work = (work_t){.in = hal_process_file("source"), .out = hal_process_file("output"), .log = hal_process_file("log")};
  size_t text_size = 0;
  const char *const text = fake.settings.sanitize ? fake_checked_text(&text_size) : "";
  if (work->in < 0 || work->out < 0 || work->log < 0 || !hal_process_write(work->in, desc->data, desc->size) ||
      (text_size && (lseek(work->in, 0, SEEK_END) < 0 || !hal_process_write(work->in, text, text_size))))
    return fake_error(HAL_RESOURCE_EXHAUSTED, errno,
                      "fake: no memory to compile a module of %zu bytes; free some memory", desc->size);
  const int length =
      snprintf(work->folder, sizeof work->folder, "%s/hal_fake_XXXXXX", place && *place ? place : "/tmp");
  if (length >= (int)sizeof work->folder || !mkdtemp(work->folder)) {
    const int error = length >= (int)sizeof work->folder ? ENAMETOOLONG : errno;
    work->folder[0] = '\0';
    return fake_error(HAL_FAILED_PRECONDITION, error,
                      "fake: no folder for a compiled module in '%s': %s; set TMPDIR to a folder that can be written",
                      place && *place ? place : "/tmp", strerror(error));
  }
  snprintf(work->library, sizeof work->library, "%s/module.so", work->folder);
  return HAL_OK;
}

static void end(const work_t *work) {
  const int files[] = {work->in, work->out, work->log};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (files[i] >= 0) close(files[i]);
  if (!work->folder[0]) return;
  unlink(work->library);
  rmdir(work->folder);
}

/* Sets the error message for a missing library. */
static hal_status_t refuse(const work_t *work, const char *compiler, int code, int error) {
  char log[LOG];
  if (error)
    return fake_error(HAL_UNIMPLEMENTED, error,
                      "fake: a module in the dialect 'c' needs the host's C compiler, and '%s' cannot be run: %s; "
                      "install one (Debian: gcc and libc6-dev), or set HAL_FAKE_CC",
                      compiler, strerror(error));
  hal_process_log(work->log, log, sizeof log);
  if (code < 0)
    return fake_error(HAL_INTERNAL, 0, "fake: the C compiler '%s' was killed; its output: %s", compiler, log);
  return fake_error(HAL_INVALID_ARGUMENT, code,
                    "fake: the C compiler '%s' refused a module (exit code %d); its output: %s", compiler, code, log);
}

/* Writes the command without its last words; -1 = it is too long. */
static int write_command(const hal_module_desc_t *desc, char command[COMMAND], const char *words[MOST_WORDS]) {
  const int length = snprintf(command, COMMAND,
                              "%s -x c -std=gnu11 -O3 -fno-strict-aliasing -fPIC -shared -pipe %s %s%s -Wl,-z,defs -o",
                              fake.settings.compiler, hal_host_kernel_options(), desc->options ? desc->options : "",
                              fake.settings.sanitize ? fake_checked_options() : "");
  return length < COMMAND ? hal_process_words(command, words, 0, MOST_WORDS - 4) : -1;
}

static hal_status_t compile(const work_t *work, const hal_module_desc_t *desc) {
  const int32_t *const cancelled = HAL_HAS_FIELD(desc, cancelled) ? desc->cancelled : NULL;
  char command[COMMAND];
  const char *words[MOST_WORDS];
  int count = write_command(desc, command, words), error = 0;
  if (count < 0)
    return fake_error(HAL_INVALID_ARGUMENT, 0,
                      "fake: the options of a module in the dialect 'c' are too long: '%.200s ...' after HAL_FAKE_CC",
                      desc->options ? desc->options : "");
  words[count++] = work->library;
  words[count++] = "-"; /* the source */
  words[count++] = "-lm";
  words[count] = NULL;
  const int code = hal_process_run_wanted(words, work->in, work->out, work->log, cancelled, &error);
  if (code < 0 && hal_is_cancelled(cancelled))
    return fake_error(HAL_ABORTED, 0,
                      "fake: the C compiler '%s' was ended, because the caller no longer waits for the module",
                      words[0]);
  return code || access(work->library, R_OK) ? refuse(work, words[0], code, error) : HAL_OK;
}

hal_status_t fake_compile(const hal_module_desc_t *desc, void **out_library) {
  work_t work;
  if (!desc->data)
    return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: a module in the dialect 'c' without a text; pass its source");
  hal_status_t status = begin(&work, desc);
  if (!status) status = compile(&work, desc);
  if (!status && !(*out_library = dlopen(work.library, RTLD_NOW | RTLD_LOCAL)))
    status = fake_error(
        HAL_FAILED_PRECONDITION, 0,
        "fake: a module that the C compiler created cannot be loaded: %s; if the folder is mounted noexec, set "
        "TMPDIR to another",
        dlerror());
  end(&work);
  if (!status && fake.settings.sanitize) fake_checked_connect(*out_library);
  return status;
}

/* A symbol of that name may belong to another library, or may not be a kernel. */
static const hal_host_kernel_t *kernel_at(void *library, const char *symbol, const char *name) {
  struct link_map *map = NULL;
  const ElfW(Sym) *entry = NULL;
  Dl_info found;
  void *const address = dlsym(library, symbol);
  if (!address || dlinfo(library, RTLD_DI_LINKMAP, &map)) return NULL;
  if (!dladdr1(address, &found, (void **)&entry, RTLD_DL_SYMENT) || !entry ||
      (uintptr_t)found.dli_fbase != (uintptr_t)map->l_addr || entry->st_size != sizeof(hal_host_kernel_t))
    return NULL;
  const hal_host_kernel_t *const kernel = address;
  return kernel->name && kernel->fn && strcmp(kernel->name, name) == 0 ? kernel : NULL;
}

hal_status_t fake_library_kernel(void *library, const char *name, const hal_host_kernel_t **out_kernel) {
  static const char prefix[] = "hal_host_kernel_";
  const size_t bytes = sizeof prefix + strlen(name); /* names have any length */
  char *const symbol = hal_host->mem_alloc(bytes, 1);
  if (!symbol)
    return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory to look up a kernel; free some memory");
  snprintf(symbol, bytes, "%s%s", prefix, name);
  *out_kernel = kernel_at(library, symbol, name);
  hal_host->mem_free(symbol);
  if (*out_kernel) return HAL_OK;
  return fake_error(HAL_NOT_FOUND, 0,
                    "fake: the module that was compiled has no kernel '%s'; it is a hal_host_kernel_t of the name "
                    "hal_host_kernel_%s, which PK_KERNEL defines",
                    name, name);
}
