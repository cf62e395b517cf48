/* cubin.c: real cubins, such as those of Triton's compiler. Their code is not for this machine and does not run. With
 * CUDA_MOCK_CUBINS=<file> they load, and each load and each launch appends a line to that file. The arguments are those
 * that the cubin's own tables list, as the real driver reads them. */
#define _POSIX_C_SOURCE 200809L
#include "cubin.h"

#include <elf.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  CUDA_MACHINE = 190,
  NEW_FLAGS_VERSION = 8,
  ATTRIBUTE_PARAMETER = 0x17,
  ATTRIBUTE_THREADS = 0x10,
  WITH_BYTES = 4
};
enum { MOST_KERNELS = 8, MOST_PARAMETERS = 256, LINE_BYTES = 16384 };

/* Of one kernel: the sizes of its arguments, and the threads of a block that it requires (0: any). */
typedef struct table_s {
  unsigned sizes[MOST_PARAMETERS], threads[3];
} table_t;

struct cubin_s {
  module_image_t image;
  module_kernel_t kernels[MOST_KERNELS];
  table_t tables[MOST_KERNELS];
  char *names[MOST_KERNELS];
};

/* ---- the file ---- */

typedef struct line_s {
  char text[LINE_BYTES];
  size_t size;
} line_t;

static void put(line_t *line, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const int written = vsnprintf(line->text + line->size, sizeof line->text - line->size, format, list);
  va_end(list);
  line->size += (size_t)written;
  if (line->size >= sizeof line->text) abort(); /* a test's line must be whole */
}

/* One write, so that lines of several threads and processes do not mix. */
static void append(line_t *line) {
  const int file = open(getenv("CUDA_MOCK_CUBINS"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  put(line, "\n");
  if (file < 0 || write(file, line->text, line->size) != (ssize_t)line->size) abort();
  close(file);
}

/* ---- modules ---- */

/* Returns the bytes of an ELF file, whose header and tables of sections and programs may come in any order. */
static size_t size_of(const Elf64_Ehdr *head) {
  const size_t sections = head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
  const size_t programs = head->e_phoff + (size_t)head->e_phnum * head->e_phentsize;
  return sections > programs ? sections : programs;
}

static uint64_t hash_of(const unsigned char *bytes, size_t size) { /* FNV-1a */
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
  return hash;
}

/* Reads the attributes of a kernel: each has a format, a number, and the bytes that follow or a value of two bytes. */
static unsigned read_table(const unsigned char *at, const unsigned char *end, table_t *table) {
  unsigned count = 0;
  while (at + 4 <= end) {
    const unsigned format = at[0], attribute = at[1], bytes = at[2] | (unsigned)at[3] << 8;
    at += 4;
    if (format != WITH_BYTES) continue;
    if (attribute == ATTRIBUTE_THREADS) memcpy(table->threads, at, sizeof table->threads);
    if (attribute == ATTRIBUTE_PARAMETER) { /* number of the entry, of the argument, its offset; flags and its size */
      const unsigned index = at[4] | (unsigned)at[5] << 8;
      uint32_t flags;
      memcpy(&flags, at + 8, sizeof flags);
      if (index >= MOST_PARAMETERS) abort();
      table->sizes[index] = flags >> 18;
      if (index >= count) count = index + 1;
    }
    at += bytes;
  }
  return count;
}

static void read_kernels(cubin_t *cubin, const Elf64_Ehdr *head) {
  static const char prefix[] = ".nv.info.";
  const char *const data = (const char *)head;
  const Elf64_Shdr *const sections = (const Elf64_Shdr *)(data + head->e_shoff);
  const char *const names = data + sections[head->e_shstrndx].sh_offset;
  for (unsigned i = 0; i < head->e_shnum && cubin->image.count < MOST_KERNELS; i++) {
    const char *const name = names + sections[i].sh_name;
    const unsigned char *const at = (const unsigned char *)data + sections[i].sh_offset;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) continue;
    const unsigned k = cubin->image.count++;
    cubin->names[k] = strdup(name + sizeof prefix - 1);
    cubin->kernels[k] = (module_kernel_t){.name = cubin->names[k],
                                          .sizes = cubin->tables[k].sizes,
                                          .count = read_table(at, at + sections[i].sh_size, &cubin->tables[k])};
  }
}

int cubin_is_one(const void *image) {
  const Elf64_Ehdr *const head = image;
  return memcmp(image, ELFMAG, SELFMAG) == 0 && head->e_machine == CUDA_MACHINE;
}

CUresult cubin_open(const void *image, unsigned capability, cubin_t **out_cubin) {
  const Elf64_Ehdr *const head = image;
  const int is_new = head->e_ident[EI_ABIVERSION] >= NEW_FLAGS_VERSION;
  const unsigned architecture = (is_new ? head->e_flags >> 8 : head->e_flags) & 0xff;
  if (!getenv("CUDA_MOCK_CUBINS") || architecture / 10 != capability / 10 || architecture > capability)
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  cubin_t *const cubin = calloc(1, sizeof *cubin);
  line_t *const line = calloc(1, sizeof *line);
  if (!cubin || !line) abort();
  cubin->image = (module_image_t){.version = 1, .architecture = architecture, .kernels = cubin->kernels};
  read_kernels(cubin, head);
  const size_t size = size_of(head);
  put(line, "module bytes=%zu fnv=%016llx", size, (unsigned long long)hash_of(image, size));
  append(line);
  free(line);
  *out_cubin = cubin;
  return CUDA_SUCCESS;
}

const module_image_t *cubin_image(const cubin_t *cubin) { return &cubin->image; }

void cubin_close(cubin_t *cubin) {
  for (unsigned i = 0; cubin && i < cubin->image.count; i++) free(cubin->names[i]);
  free(cubin);
}

/* ---- launches ---- */

int cubin_takes(const cubin_t *cubin, const module_kernel_t *kernel, const unsigned block[3]) {
  const unsigned *const threads = cubin->tables[kernel - cubin->kernels].threads;
  return !threads[0] || (threads[0] == block[0] && threads[1] == block[1] && threads[2] == block[2]);
}

void cubin_record(const module_kernel_t *kernel, const module_range_t *range, unsigned shared_bytes,
                  const char *attributes, void *const *arguments) {
  line_t *const line = calloc(1, sizeof *line);
  if (!line) abort();
  put(line, "launch %s grid=%u,%u,%u block=%u,%u,%u shared=%u attributes=%s args=", kernel->name, range->grid[0],
      range->grid[1], range->grid[2], range->block[0], range->block[1], range->block[2], shared_bytes, attributes);
  for (unsigned i = 0; i < kernel->count; i++) {
    if (i) put(line, ",");
    for (unsigned k = 0; k < kernel->sizes[i]; k++) put(line, "%02x", ((const unsigned char *)arguments[i])[k]);
  }
  append(line);
  free(line);
}
