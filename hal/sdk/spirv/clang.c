/* clang.c: compiles OpenCL C to SPIR-V (hal/plugin_clang.h). clang and llvm-spirv are separate processes that read and
 * write files in memory. */
#define _POSIX_C_SOURCE 200809L
#include "hal/plugin_clang.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clang.h"
#include "freeze.h"
#include "hal/plugin_process.h"
#include "hal/plugin_setting.h"

enum { MOST_OPTIONS = 64, OPTION_BYTES = 4096, MOST_WORDS = MOST_OPTIONS + 24 };

/* ---- the tools --------------------------------------------------------------------------------------------------- */

static struct {
  pthread_once_t once;
  char clang[512], translator[512]; /* "" = not found */
} tools = {.once = PTHREAD_ONCE_INIT};

/* Searches a program on PATH, or in the system's folders in a privileged process. Returns whether it exists. */
static int on_path(const char *name, char *path, size_t room) {
  const char *const set = hal_setting("PATH"), *at = set ? set : "/usr/bin:/bin";
  for (; at && *at; at += *at == ':') {
    const int length = (int)strcspn(at, ":");
    if (length && snprintf(path, room, "%.*s/%s", length, at, name) < (int)room && access(path, X_OK) == 0) return 1;
    at += length;
  }
  return 0;
}

/* Both of one version, since each reads only its own bitcode; oldest first, because every driver supports its
 * SPIR-V. */
static void find_tools(void) {
  static const char *const versions[] = {"-14", "-15", "-16", "-17", "-18", "-19", "-20", ""};
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
    char clang[32], translator[32];
    snprintf(clang, sizeof clang, "clang%s", versions[i]);
    snprintf(translator, sizeof translator, "llvm-spirv%s", versions[i]);
    if (on_path(clang, tools.clang, sizeof tools.clang) &&
        on_path(translator, tools.translator, sizeof tools.translator))
      return;
  }
  tools.clang[0] = tools.translator[0] = '\0';
}

const char *hal_clang_path(void) {
  pthread_once(&tools.once, find_tools);
  return tools.clang[0] ? tools.clang : NULL;
}

/* Runs a program from one file to another, with its error output in a third. Returns its exit status, -1 if it cannot
 * be run or is killed. */
static int run(const char *const *words, int in, int out, int log, const int32_t *cancelled) {
  int error;
  return hal_process_run_wanted(words, in, out, log, cancelled, &error);
}

static int empty(int file) { return ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0; }

/* ---- compiling --------------------------------------------------------------------------------------------------- */

/* The translator does not support all results of the optimizer ("freeze"). Then `freeze` is removed if that changes
 * nothing, else there are fewer passes, and finally none: the driver's compiler optimizes. */
typedef enum attempt_e { OPTIMISED, THAWED, PLAIN, BARE, ATTEMPTS } attempt_e;

static int compile_to(int fp64, char *options, attempt_e attempt, int in, int out, int log, const int32_t *cancelled) {
  const char *words[MOST_WORDS] = {tools.clang,
                                   "-x",
                                   "cl",
                                   "-cl-std=CL1.2",
                                   "-target",
                                   "spir64-unknown-unknown",
                                   "-Xclang",
                                   "-finclude-default-header",
                                   "-O2",
                                   "-emit-llvm",
                                   attempt == THAWED ? "-S" : "-c"};
  int count = 11;
  if (!fp64) {
    words[count++] = "-Xclang";
    words[count++] = "-cl-ext=-cl_khr_fp64,-__opencl_c_fp64";
  }
  if (attempt == PLAIN) words[count++] = "-O1";
  if (attempt == BARE) {
    words[count++] = "-Xclang";
    words[count++] = "-disable-llvm-passes";
  }
  count = hal_process_words(options, words, count, count + MOST_OPTIONS);
  if (count < 0) return -1;
  words[count++] = "-o";
  words[count++] = "-";
  words[count++] = "-";
  words[count] = NULL;
  return run(words, in, out, log, cancelled);
}

/* Assembles text without `freeze` to bitcode, without a pass that might add it again. */
static int assemble(int in, int out, int log, const int32_t *cancelled) {
  const char *const words[] = {tools.clang,
                               "-x",
                               "ir",
                               "-target",
                               "spir64-unknown-unknown",
                               "-Xclang",
                               "-disable-llvm-passes",
                               "-emit-llvm",
                               "-c",
                               "-o",
                               "-",
                               "-",
                               NULL};
  return run(words, in, out, log, cancelled);
}

/* Replaces the text in a file by bitcode, through another file, which is empty afterwards. */
static int thaw(int file, int other, int log, const int32_t *cancelled) {
  const size_t size = hal_process_size(file);
  int code = -1;
  if (!size || ftruncate(file, (off_t)size + 1)) return -1; /* followed by a NUL */
  char *const text = mmap(NULL, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  if (text == MAP_FAILED) return -1;
  const int whole = hal_thaw(text) && hal_process_write(other, text, size);
  munmap(text, size + 1);
  if (whole && empty(file)) code = assemble(other, file, log, cancelled);
  return empty(other) ? code : -1;
}

static int translate(int in, int out, int log, const int32_t *cancelled) {
  const char *const words[] = {tools.translator, "--spirv-max-version=1.2", "-", "-o", "-", NULL};
  return lseek(in, 0, SEEK_SET) == 0 ? run(words, in, out, log, cancelled) : -1;
}

/* Makes the attempts one after the other; files: source, bitcode, SPIR-V, log. Returns 0, or the exit code of the
 * failure. */
static int attempt_all(const char *given, int fp64, const int *files, const int32_t *cancelled) {
  char options[OPTION_BYTES];
  int code = -1;
  for (attempt_e attempt = OPTIMISED; attempt < ATTEMPTS && code && !hal_is_cancelled(cancelled); attempt++) {
    snprintf(options, sizeof options, "%s", given);
    if (!empty(files[1]) || !empty(files[2]) || !empty(files[3]) || lseek(files[0], 0, SEEK_SET)) return -1;
    code = compile_to(fp64, options, attempt, files[0], files[1], files[3], cancelled);
    if (code) return code; /* the source is wrong */
    if (attempt == THAWED) code = thaw(files[1], files[2], files[3], cancelled);
    if (!code) code = translate(files[1], files[2], files[3], cancelled);
  }
  return code || hal_process_size(files[2]) ? code : -1;
}

hal_status_t hal_clang_spirv(const char *source, size_t size, const char *options, int fp64,
                             hal_clang_result_t *out_result) {
  return hal_clang_spirv_until(source, size, options, fp64, NULL, out_result);
}

hal_status_t hal_clang_spirv_until(const char *source, size_t size, const char *options, int fp64,
                                   const int32_t *cancelled, hal_clang_result_t *out_result) {
  int files[4] = {-1, -1, -1, -1}, good = 1;
  hal_status_t status = HAL_OK;
  *out_result = (hal_clang_result_t){.file = -1};
  if (!hal_clang_path() || strlen(options) >= OPTION_BYTES) {
    snprintf(out_result->log, sizeof out_result->log, "%s",
             hal_clang_path()
                 ? "the options are too long"
                 : "no compiler for OpenCL C was found on PATH; install clang and llvm-spirv of one version "
                   "(Debian: clang-14, llvm-spirv-14)");
    return hal_clang_path() ? HAL_INVALID_ARGUMENT : HAL_UNAVAILABLE;
  }
  for (int i = 0; i < 4; i++) good &= (files[i] = hal_process_file("hal_clang")) >= 0;
  if (!good || !hal_process_write(files[0], source, size)) {
    out_result->code = errno;
    snprintf(out_result->log, sizeof out_result->log, "no memory to compile a module of %zu bytes; free some memory",
             size);
    status = HAL_RESOURCE_EXHAUSTED;
  } else if ((out_result->code = attempt_all(options, fp64, files, cancelled)) != 0 || lseek(files[2], 0, SEEK_SET)) {
    hal_process_log(files[3], out_result->log, sizeof out_result->log);
    status = HAL_INVALID_ARGUMENT;
  } else {
    out_result->file = files[2];
    out_result->size = hal_process_size(files[2]);
    files[2] = -1;
  }
  for (int i = 0; i < 4; i++)
    if (files[i] >= 0) close(files[i]);
  return status;
}
