/* compilers.c: compiles one module of a pack: clang and llvm-spirv, a command, or the device of a plugin. */
#define _GNU_SOURCE /* mkdtemp */
#include <errno.h>
#include <fcntl.h>
#include <hal/plugin_process.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/host_malloc.h"
#include "device/device.h"
#include "hal/device.h"
#include "hal/registry.h"
#include "hal/status.h"
#include "op/table.h"
#include "packing.h"
#include "spirv/clang.h"

enum { MOST_OPTIONS = 16, PATH_ROOM = 512 };

/* Returns the bytes of a whole file, which the caller frees; NULL if it is empty or cannot be read. */
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

void *packing_by_clang(const packing_source_t *source, size_t *out_size, char *log) {
  hal_clang_result_t result;
  if (hal_clang_spirv_until(source->text, source->size, source->options, source->fp64, source->cancelled, &result)) {
    snprintf(log, PACKING_LOG, "%s", result.log);
    return NULL;
  }
  void *const data = read_file(result.file, out_size);
  if (!data) snprintf(log, PACKING_LOG, "no memory for %zu bytes", result.size);
  close(result.file);
  return data;
}

/* ---- a command ---- */

/* The files of one run of a command, in a temporary folder. */
typedef struct command_files_s {
  char folder[PATH_ROOM / 2], source[PATH_ROOM], output[PATH_ROOM];
  int nothing, messages; /* standard input, and what the command prints */
} command_files_t;

/* Runs `command SOURCE OUTPUT OPTIONS...` in a shell. Returns its exit status; -1: a signal ended it, or it did not
 * start. */
static int run(const char *command, const packing_source_t *source, const command_files_t *files) {
  char line[PATH_ROOM + 64], name[PATH_ROOM], fp64[32], options[PATH_ROOM];
  const char *words[MOST_OPTIONS + 12] = {"env"};
  int count = 1, error;
  snprintf(line, sizeof line, "%s \"$@\"", command);
  snprintf(name, sizeof name, "HAL_PACK_KERNEL=%s", source->kernel);
  snprintf(fp64, sizeof fp64, "HAL_PACK_FP64=%d", source->fp64 != 0);
  snprintf(options, sizeof options, "%s", source->options);
  words[count++] = name, words[count++] = fp64;
  words[count++] = "/bin/sh", words[count++] = "-c", words[count++] = line, words[count++] = "hal-pack";
  words[count++] = files->source, words[count++] = files->output;
  count = hal_process_words(options, words, count, count + MOST_OPTIONS);
  if (count < 0) return -1;
  words[count] = NULL;
  return hal_process_run_wanted(words, files->nothing, files->messages, files->messages, source->cancelled, &error);
}

static int write_source(const packing_source_t *source, const char *path) {
  FILE *const file = fopen(path, "we");
  const int written = file && fwrite(source->text, 1, source->size, file) == source->size;
  return file && fclose(file) == 0 && written;
}

static int open_files(command_files_t *files, const packing_source_t *source, char *log) {
  const char *const temporary = getenv("TMPDIR");
  files->nothing = files->messages = -1;
  snprintf(files->folder, sizeof files->folder, "%.200s/hal-pack.XXXXXX", temporary && *temporary ? temporary : "/tmp");
  if (!mkdtemp(files->folder)) return snprintf(log, PACKING_LOG, "%s: %s", files->folder, strerror(errno)), 0;
  snprintf(files->source, sizeof files->source, "%s/source", files->folder);
  snprintf(files->output, sizeof files->output, "%s/output", files->folder);
  files->nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  files->messages = hal_process_file("hal_pack");
  if (files->nothing >= 0 && files->messages >= 0 && write_source(source, files->source)) return 1;
  return snprintf(log, PACKING_LOG, "%s: %s", files->source, strerror(errno)), 0;
}

static void close_files(const command_files_t *files) {
  if (files->nothing >= 0) close(files->nothing);
  if (files->messages >= 0) close(files->messages);
  unlink(files->source), unlink(files->output), rmdir(files->folder);
}

/* Writes the cause, and what the command printed. */
static void explain(char *log, const char *cause, int messages) {
  const int printed = hal_process_size(messages) != 0;
  const int used = snprintf(log, PACKING_LOG, "%s%s", cause, printed ? ": " : "");
  if (printed) hal_process_log(messages, log + used, PACKING_LOG - (size_t)used);
}

void *packing_by_command(const char *command, const packing_source_t *source, size_t *out_size, char *log) {
  command_files_t files = {.source = "", .output = ""};
  void *data = NULL;
  if (open_files(&files, source, log)) {
    const int code = run(command, source, &files);
    const int file = code ? -1 : open(files.output, O_RDONLY | O_CLOEXEC);
    if (file >= 0) data = read_file(file, out_size), close(file);
    if (!data) explain(log, code ? "the compiler failed" : "the compiler wrote no output", files.messages);
  }
  close_files(&files);
  return data;
}

/* ---- a device ---- */

int packing_device_open(packing_t *packing) {
  if (hal_registry_open(packing->plugin) || hal_device_ensure(0))
    return fprintf(stderr, "hal-pack: %s\n", hal_error_message()), 0;
  const hal_provider_t *const provider = &hal_op_table_of(&hal_devices[0])->provider;
  if (!provider->compiles || provider->native || !provider->binary)
    return fprintf(stderr,
                   "hal-pack: the device %s accepts '%s'; a pack of it needs a dialect of source and 'binary'\n",
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
