/* compile.c: OpenCL C to SPIR-V by clang and llvm-spirv of one version, each a process of its own that reads and writes memory files. */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "freeze.h"
#include "module.h"

extern char **environ;

enum { LOG_BYTES = 3000, MOST_OPTIONS = 64, MOST_WORDS = MOST_OPTIONS + 24 };

/* ---- the tools --------------------------------------------------------------------------------------------------------------- */

static struct {
  pthread_once_t once;
  char clang[512], translator[512]; /* "" = there are none */
} tools = {.once = PTHREAD_ONCE_INIT};

/* Looks for a program on PATH. Returns whether it is there. */
static int on_path(const char *name, char *path, size_t room) {
  const char *at = getenv("PATH");
  for (; at && *at; at += *at == ':') {
    const int length = (int)strcspn(at, ":");
    if (length && snprintf(path, room, "%.*s/%s", length, at, name) < (int)room && access(path, X_OK) == 0) return 1;
    at += length;
  }
  return 0;
}

/* Both of one version, since each reads only its own bitcode; oldest first, whose SPIR-V every driver knows. */
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

int npu_compiler_found(void) {
  pthread_once(&tools.once, find_tools);
  return tools.clang[0] != '\0';
}

/* ---- processes --------------------------------------------------------------------------------------------------------------- */

/* Runs a program from one file to another, its complaints to a third. Returns its exit status, -1 when it cannot be run or is killed. */
static int run(const char *const *words, int in, int out, int log) {
  posix_spawn_file_actions_t actions;
  pid_t child;
  int status = 0;
  if (posix_spawn_file_actions_init(&actions)) return -1;
  int code = posix_spawn_file_actions_adddup2(&actions, in, 0);
  if (!code) code = posix_spawn_file_actions_adddup2(&actions, out, 1);
  if (!code) code = posix_spawn_file_actions_adddup2(&actions, log, 2);
  if (!code) code = posix_spawn(&child, words[0], &actions, NULL, (char *const *)(uintptr_t)words, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code) return -1;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1; /* a program that ignores its children's ends: the files tell */
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int write_all(int file, const char *data, size_t size) {
  while (size) {
    const ssize_t written = write(file, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return 0;
    data += written;
    size -= (size_t)written;
  }
  return lseek(file, 0, SEEK_SET) == 0;
}

static int empty(int file) { return ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0; }

/* Reads a whole file, a NUL behind it; NULL when it is empty or there is no memory. */
static char *read_all(int file, size_t *out_size) {
  struct stat facts;
  if (fstat(file, &facts) || facts.st_size <= 0) return NULL;
  const size_t size = (size_t)facts.st_size;
  char *const data = hal_host->mem_alloc(size + 1, 16);
  size_t done = 0;
  while (data && done < size) {
    const ssize_t got = pread(file, data + done, size - done, (off_t)done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      hal_host->mem_free(data);
      return NULL;
    }
    done += (size_t)got;
  }
  if (data) data[size] = '\0';
  *out_size = size;
  return data;
}

/* ---- compiling --------------------------------------------------------------------------------------------------------------- */

/* The caller's options, parted at spaces in their own memory. Returns the number of words, -1 when there are too many. */
static int add_options(char *options, const char **words, int count) {
  char *rest = NULL;
  const int most = count + MOST_OPTIONS;
  for (char *word = strtok_r(options, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    if (count == most) return -1;
    words[count++] = word;
  }
  return count;
}

/* What optimisers make is not always in the translator's reach ("freeze"): then it is taken out where that changes nothing, and else there
 * are fewer passes. */
typedef enum attempt_e { OPTIMISED, THAWED, PLAIN, ATTEMPTS } attempt_e;

static int compile_to(const npu_device_t *device, char *options, attempt_e attempt, int in, int out, int log) {
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
  if (!(device->modules.flags & ZE_DEVICE_MODULE_FLAG_FP64)) {
    words[count++] = "-Xclang";
    words[count++] = "-cl-ext=-cl_khr_fp64,-__opencl_c_fp64";
  }
  if (attempt == PLAIN) words[count++] = "-O1";
  count = add_options(options, words, count);
  if (count < 0) return -1;
  words[count++] = "-o";
  words[count++] = "-";
  words[count++] = "-";
  words[count] = NULL;
  return run(words, in, out, log);
}

/* Text without `freeze` to bitcode, without a pass that might bring it back. */
static int assemble(int in, int out, int log) {
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
  return run(words, in, out, log);
}

/* Turns the text in a file into bitcode, by way of another, which it leaves empty. */
static int thaw(int file, int other, int log) {
  size_t size = 0;
  char *const text = read_all(file, &size);
  int code = -1;
  if (text && npu_thaw(text) && write_all(other, text, size) && empty(file)) code = assemble(other, file, log);
  hal_host->mem_free(text);
  return empty(other) ? code : -1;
}

static int translate(int in, int out, int log) {
  const char *const words[] = {tools.translator, "--spirv-max-version=1.2", "-", "-o", "-", NULL};
  return lseek(in, 0, SEEK_SET) == 0 ? run(words, in, out, log) : -1;
}

static hal_status_t say_log(const npu_device_t *device, int log, int code) {
  size_t size = 0;
  char *const text = read_all(log, &size);
  const char *first = text ? strstr(text, "error") : NULL;
  while (first && first > text && first[-1] != '\n') first--;
  const hal_status_t status =
      npu_error(HAL_INVALID_ARGUMENT, code, "npu: '%s' cannot build a module in 'opencl-c' (%s ended with %d): %.*s",
                device->facts.name, tools.clang, code, LOG_BYTES,
                first  ? first
                : text ? text
                       : "the compiler left no log");
  hal_host->mem_free(text);
  return status;
}

hal_status_t npu_compile(const npu_device_t *device, const hal_module_desc_t *desc, void **out_spirv,
                         size_t *out_size) {
  if (!npu_compiler_found())
    return npu_error(
        HAL_UNAVAILABLE, 0,
        "npu: no compiler for OpenCL C was found on PATH; install clang and llvm-spirv of one version (Debian: "
        "clang-14, llvm-spirv-14), or give the module in 'spirv'");
  int files[4] = {-1, -1, -1, -1}, good = 1; /* source, bitcode, SPIR-V, log */
  const char *const given = desc->options ? desc->options : "";
  const size_t length = strlen(given) + 1;
  char *const options = hal_host->mem_alloc(length, 1);
  for (int i = 0; i < 4; i++) good &= (files[i] = memfd_create("npu", MFD_CLOEXEC)) >= 0;
  hal_status_t status = HAL_OK;
  if (!options || !good || !write_all(files[0], desc->data, desc->size)) {
    status = npu_error(HAL_RESOURCE_EXHAUSTED, errno,
                       "npu: no memory to compile a module of %zu bytes; free some memory", desc->size);
    goto cleanup;
  }
  int code = -1;
  for (attempt_e attempt = OPTIMISED; attempt < ATTEMPTS && code; attempt++) {
    memcpy(options, given, length);
    if (!empty(files[1]) || !empty(files[2]) || !empty(files[3]) || lseek(files[0], 0, SEEK_SET)) break;
    code = compile_to(device, options, attempt, files[0], files[1], files[3]);
    if (code) break; /* the source is wrong */
    if (attempt == THAWED) code = thaw(files[1], files[2], files[3]);
    if (!code) code = translate(files[1], files[2], files[3]);
  }
  char *const spirv = code ? NULL : read_all(files[2], out_size);
  if (spirv)
    *out_spirv = spirv;
  else
    status = say_log(device, files[3], code);
cleanup:
  for (int i = 0; i < 4; i++)
    if (files[i] >= 0) close(files[i]);
  hal_host->mem_free(options);
  return status;
}
