/* write.c: writes modules to a file, completely or not at all. Equal modules are stored once; the same modules result
 * in the same bytes. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "op/source.h"
#include "packing.h"

enum { PATH_ROOM = 4096 };

/* What the file has besides its header. */
typedef struct content_s {
  hal_pack_entry_t *entries;
  uint64_t count;
  const packed_t **blobs; /* one of each content, in the order of the file */
  uint64_t *places;       /* of them, from the first on */
  size_t blob_count;
  uint64_t bytes;
} content_t;

static hal_hash_t hash_of(const void *data, size_t size) {
  hal_hash_t hash = hal_hash_begin();
  hal_hash_add(&hash, data, size);
  return hash;
}

static int by_key(const void *a, const void *b) {
  const uint64_t *const x = ((const hal_pack_entry_t *)a)->key, *const y = ((const hal_pack_entry_t *)b)->key;
  if (x[0] != y[0]) return x[0] < y[0] ? -1 : 1;
  return (x[1] > y[1]) - (x[1] < y[1]);
}

/* Returns the position of a module's bytes, which may be stored already. */
static uint64_t place_of(content_t *content, const packed_t *module) {
  for (size_t i = 0; i < content->blob_count; i++)
    if (content->blobs[i]->size == module->size && memcmp(content->blobs[i]->data, module->data, module->size) == 0)
      return content->places[i];
  const uint64_t place = content->bytes;
  content->blobs[content->blob_count] = module;
  content->places[content->blob_count++] = place;
  content->bytes += module->size;
  return place;
}

static void add(content_t *content, const hal_hash_t *key, const packed_t *module, uint64_t place,
                const hal_hash_t *check) {
  content->entries[content->count++] = (hal_pack_entry_t){.key = {hal_hash_high(key), hal_hash_low(key)},
                                                          .check = {hal_hash_high(check), hal_hash_low(check)},
                                                          .offset = place,
                                                          .size = module->size};
}

static int collect(content_t *content, const packed_t *modules, size_t count) {
  *content = (content_t){.entries = calloc(2 * count + 1, sizeof *content->entries),
                         .blobs = calloc(count + 1, sizeof *content->blobs),
                         .places = calloc(count + 1, sizeof *content->places)};
  if (!content->entries || !content->blobs || !content->places) return 0;
  for (size_t i = 0; i < count; i++) {
    if (!modules[i].data) continue;
    const hal_hash_t check = hash_of(modules[i].data, modules[i].size);
    const uint64_t place = place_of(content, &modules[i]);
    add(content, &modules[i].key, &modules[i], place, &check);
    if (modules[i].same_without) add(content, &modules[i].key_without, &modules[i], place, &check);
  }
  qsort(content->entries, (size_t)content->count, sizeof *content->entries, by_key);
  uint64_t kept = 0; /* CUDA C is the same in both forms */
  for (uint64_t i = 0; i < content->count; i++)
    if (!kept || by_key(&content->entries[kept - 1], &content->entries[i]))
      content->entries[kept++] = content->entries[i];
  content->count = kept;
  const uint64_t begin = sizeof(hal_pack_header_t) + content->count * sizeof *content->entries;
  for (uint64_t i = 0; i < content->count; i++) content->entries[i].offset += begin;
  content->bytes += begin;
  return 1;
}

static int put(FILE *file, const packing_t *packing, const content_t *content) {
  hal_pack_header_t header = {.magic = HAL_PACK_MAGIC, .bytes = content->bytes, .count = content->count};
  hal_op_source_version(header.kernels);
  snprintf(header.source, sizeof header.source, "%s", packing->source);
  snprintf(header.dialect, sizeof header.dialect, "%s", packing->dialect);
  snprintf(header.maker, sizeof header.maker, "%s", packing->maker);
  const hal_hash_t check = hal_pack_check(&header, content->entries);
  header.check[0] = hal_hash_high(&check), header.check[1] = hal_hash_low(&check);
  int good = fwrite(&header, sizeof header, 1, file) == 1;
  if (content->count)
    good = good && fwrite(content->entries, sizeof *content->entries, (size_t)content->count, file) == content->count;
  for (size_t i = 0; i < content->blob_count && good; i++)
    good = fwrite(content->blobs[i]->data, 1, content->blobs[i]->size, file) == content->blobs[i]->size;
  return good && fflush(file) == 0 && fsync(fileno(file)) == 0;
}

int packing_write(const packing_t *packing, const packed_t *modules, size_t count) {
  content_t content;
  char part[PATH_ROOM];
  int good = 0;
  if (snprintf(part, sizeof part, "%s.%ld.part", packing->output, (long)getpid()) >= (int)sizeof part)
    return fprintf(stderr, "hal-pack: the path is too long: %s\n", packing->output), 0;
  if (collect(&content, modules, count)) {
    const int handle = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    FILE *const file = handle < 0 ? NULL : fdopen(handle, "w");
    good = file && put(file, packing, &content);
    if (file) good = fclose(file) == 0 && good;
    good = good && rename(part, packing->output) == 0;
  }
  if (good)
    printf("%s: %zu modules in '%s' under %llu keys, %llu bytes, by %s\n", packing->output, content.blob_count,
           packing->dialect, (unsigned long long)content.count, (unsigned long long)content.bytes, packing->maker);
  else
    fprintf(stderr, "hal-pack: %s cannot be written: %s\n", packing->output, strerror(errno)), unlink(part);
  free(content.entries), free(content.blobs), free(content.places);
  return good;
}
