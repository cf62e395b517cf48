/* compiler.c: the suite's kernels in a dialect of the vendor's, by the command of --compiler, which is called as by
 * torch-backend pack: COMMAND SOURCE OUTPUT, with the kernels as OpenCL C. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernel.h"

/* Writes the first dialect that the device lists. */
static const char *first_dialect(const cts_t *t, char *dialect, size_t room) {
  snprintf(dialect, room, "%.63s", t->info.dialects);
  dialect[strcspn(dialect, ",; ")] = '\0';
  return dialect;
}

static int write_file(const char *path, const char *text) {
  FILE *const file = fopen(path, "we");
  const int written = file && fputs(text, file) >= 0;
  return file && fclose(file) == 0 && written;
}

/* Returns the bytes of a file in memory that is never freed; NULL = it does not exist or is empty. */
static void *read_file(cts_t *t, const char *path, size_t *out_size) {
  FILE *const file = fopen(path, "re");
  if (!file) return NULL;
  fseek(file, 0, SEEK_END);
  const long size = ftell(file);
  void *const bytes = size > 0 ? cts_host(t, (size_t)size + 1) : NULL;
  rewind(file);
  const int whole = bytes && fread(bytes, 1, (size_t)size, file) == (size_t)size;
  fclose(file);
  *out_size = (size_t)size;
  return whole ? bytes : NULL;
}

hal_module_desc_t cts_compile(cts_t *t, const char *source) {
  static char dialect[64];
  char folder[] = "/tmp/hal-cts.XXXXXX", command[PATH_MAX], text[64], output[64], messages[64];
  hal_module_desc_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_module_desc_t, size), .options = ""};
  CTS_CHECK(t, mkdtemp(folder), "error of the suite: no folder %s can be created", folder);
  snprintf(text, sizeof text, "%s/source", folder), snprintf(output, sizeof output, "%s/output", folder);
  snprintf(messages, sizeof messages, "%s/messages", folder);
  CTS_CHECK(t, write_file(text, source), "error of the suite: %s cannot be written", text);
  snprintf(command, sizeof command, "HAL_PACK_KERNEL=cts HAL_PACK_FP64=%d %s %s %s >%s 2>&1 </dev/null",
           (t->info.flags & HAL_DEVICE_FP64) != 0, t->compiler, text, output, messages);
  const int code = system(command);
  desc.data = read_file(t, output, &desc.size);
  size_t size = 0;
  const char *const printed = read_file(t, messages, &size);
  unlink(text), unlink(output), unlink(messages), rmdir(folder);
  if (code || !desc.data)
    cts_skip(t, "the command of --compiler failed for the suite's kernels: %.600s",
             printed ? printed : "it wrote no output");
  desc.dialect = t->dialect ? t->dialect : first_dialect(t, dialect, sizeof dialect);
  return desc;
}
