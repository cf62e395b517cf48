/* compilers.c: what compiles one module of a pack: clang and llvm-spirv, a command, or a plugin's device. */
#define _GNU_SOURCE /* mkdtemp */
#include <errno.h>
#include <fcntl.h>
#include <hal/plugin_clang.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/host_malloc.h"
#include "device/device.h"
#include "hal/device.h"
#include "hal/registry.h"
#include "hal/status.h"
#include "op/table.h"
#include "packing.h"

extern char **environ;

enum { MOST_OPTIONS = 16, PATH_ROOM = 512 };

/* Reads a whole file; NULL when it is empty or cannot be read. */
static void *read_file(int file, size_t *out_size) {
  struct stat facts;
  if (fstat(file, &facts) || facts.st_size <= 0) return NULL;
  const size_t size = (size_t)facts.st_size;
  char *const data = malloc(size);
  size_t done = 0;
  while (data && done < size) {
    const ssize_t got = pread(file, data + done, size - done, (off_t)done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      free(data);
      return NULL;
    }
    done += (size_t)got;
  }
  *out_size = size;
  return data;
}

void *packing_by_clang(const char *text, size_t size, const char *options, int fp64, size_t *out_size, char *log) {
  hal_clang_result_t result;
  if (hal_clang_spirv(text, size, options, fp64, &result)) {
    snprintf(log, PACKING_LOG, "%s", result.log);
    return NULL;
  }
  void *const data = read_file(result.file, out_size);
  if (!data) snprintf(log, PACKING_LOG, "no memory for %zu bytes", result.size);
  close(result.file);
  return data;
}

/* ---- a command ------------------------------------------------------------------------------------------------------- */

/* Runs a command in a shell, `command SOURCE OUTPUT OPTIONS...`, its messages in a file. Returns its exit status, -1 = it was killed. */
static int run(const char *command, const char *kernel, int fp64, char *source, char *output, char *options,
               const char *messages) {
  char line[PATH_ROOM + 64], name[PATH_ROOM], double_precision[32], *words[MOST_OPTIONS + 8], *rest = NULL;
  int count = 0, status = 0;
  pid_t child;
  posix_spawn_file_actions_t actions;
  snprintf(line, sizeof line, "%s \"$@\"", command);
  words[count++] = "/bin/sh", words[count++] = "-c", words[count++] = line, words[count++] = "hal-pack";
  words[count++] = source, words[count++] = output;
  for (char *word = strtok_r(options, " ", &rest); word && count < MOST_OPTIONS; word = strtok_r(NULL, " ", &rest))
    words[count++] = word;
  words[count] = NULL;
  size_t variables = 0;
  while (environ[variables]) variables++;
  char **const own = malloc((variables + 3) * sizeof *own);
  if (!own) return -1;
  memcpy(own + 2, environ, (variables + 1) * sizeof *own);
  snprintf(name, sizeof name, "HAL_PACK_KERNEL=%s", kernel);
  snprintf(double_precision, sizeof double_precision, "HAL_PACK_FP64=%d", fp64 != 0);
  own[0] = name, own[1] = double_precision;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, messages, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 2, 1);
  const int code = posix_spawn(&child, words[0], &actions, NULL, words, own);
  posix_spawn_file_actions_destroy(&actions);
  free(own);
  if (code) return -1;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void *take(const char *path, size_t *out_size) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  void *const data = file < 0 ? NULL : read_file(file, out_size);
  if (file >= 0) close(file);
  return data;
}

void *packing_by_command(const char *command, const char *kernel, const char *text, size_t size, const char *options,
                         int fp64, size_t *out_size, char *log) {
  const char *const temporary = getenv("TMPDIR");
  char folder[PATH_ROOM / 2], source[PATH_ROOM], output[PATH_ROOM], messages[PATH_ROOM], words[PATH_ROOM];
  snprintf(folder, sizeof folder, "%.200s/hal-pack.XXXXXX", temporary && *temporary ? temporary : "/tmp");
  if (!mkdtemp(folder)) return snprintf(log, PACKING_LOG, "%s: %s", folder, strerror(errno)), NULL;
  snprintf(source, sizeof source, "%s/source", folder);
  snprintf(output, sizeof output, "%s/output", folder);
  snprintf(messages, sizeof messages, "%s/messages", folder);
  snprintf(words, sizeof words, "%s", options);
  void *data = NULL;
  FILE *const file = fopen(source, "we");
  const int written = file && fwrite(text, 1, size, file) == size;
  if (!file || fclose(file) || !written) {
    snprintf(log, PACKING_LOG, "%s: %s", source, strerror(errno));
  } else {
    const int code = run(command, kernel, fp64, source, output, words, messages);
    size_t length = 0;
    if (!code) data = take(output, out_size);
    char *const said = data ? NULL : take(messages, &length);
    if (!data)
      snprintf(log, PACKING_LOG, "%s: %.*s", code ? "the compiler failed" : "the compiler wrote nothing", (int)length,
               said ? said : "");
    free(said);
  }
  unlink(source), unlink(output), unlink(messages), rmdir(folder);
  return data;
}

/* ---- a device ---------------------------------------------------------------------------------------------------------- */

int packing_device_open(packing_t *packing) {
  if (hal_registry_open(packing->plugin) || hal_device_ensure(0))
    return fprintf(stderr, "hal-pack: %s\n", hal_error_message()), 0;
  const hal_provider_t *const provider = &hal_op_table_of(&hal_devices[0])->provider;
  if (!provider->compiles || provider->native || !provider->binary)
    return fprintf(stderr, "hal-pack: the device %s takes '%s'; a pack of it needs a dialect of source and 'binary'\n",
                   hal_devices[0].info.name, hal_devices[0].info.dialects),
           0;
  packing->source = provider->dialect;
  packing->dialect = "binary";
  packing->maker = hal_devices[0].info.name;
  packing->forms[0] = provider->form;
  packing->form_count = 1;
  packing->fp64 = (hal_devices[0].info.flags & HAL_DEVICE_FP64) != 0;
  packing->without_fp64 = !packing->fp64;
  return 1;
}

void *packing_by_device(const char *kernel, size_t *out_size, char *log) {
  void *data = NULL, *copy = NULL;
  if (hal_provider_export(&hal_op_table_of(&hal_devices[0])->provider, kernel, &data, out_size))
    snprintf(log, PACKING_LOG, "%s", hal_error_message());
  else if ((copy = malloc(*out_size)))
    memcpy(copy, data, *out_size);
  hal_free(data);
  return copy;
}
