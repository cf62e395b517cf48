/* files.c: files that another version, a full disk or another user may have written: packs of kernels, and modules in
 * the cache on disk. The first byte selects the file; with its highest bit set, check sums are corrected, so that what
 * follows them is read, too. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/disk_cache.h"
#include "base/host_malloc.h"
#include "op/pack.h"

static char folder[64];

static void require(int holds) {
  if (!holds) abort();
}

static void write_file(const char *path, const void *data, size_t size) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  require(file >= 0 && write(file, data, size) == (ssize_t)size && close(file) == 0);
}

/* ---- packs ---- */

/* Writes the check sums, sizes and order that hal-pack would write. */
static void correct_pack(uint8_t *bytes, size_t size) {
  hal_pack_header_t header;
  if (size < sizeof header) return;
  memcpy(&header, bytes, sizeof header);
  header.magic = HAL_PACK_MAGIC;
  header.bytes = size;
  header.count %= (size - sizeof header) / sizeof(hal_pack_entry_t) + 1;
  hal_pack_entry_t *const entries = malloc(header.count * sizeof *entries + 1);
  require(entries != NULL);
  memcpy(entries, bytes + sizeof header, header.count * sizeof *entries);
  for (uint64_t i = 0; i < header.count; i++) {
    hal_pack_entry_t *const entry = &entries[i];
    entry->key[0] = i;
    if (entry->offset > size || entry->size > size - entry->offset) continue;
    hal_hash_t module = hal_hash_begin();
    hal_hash_add(&module, bytes + entry->offset, entry->size);
    entry->check[0] = hal_hash_high(&module), entry->check[1] = hal_hash_low(&module);
  }
  memcpy(bytes + sizeof header, entries, header.count * sizeof *entries);
  const hal_hash_t check = hal_pack_check(&header, entries);
  header.check[0] = hal_hash_high(&check), header.check[1] = hal_hash_low(&check);
  memcpy(bytes, &header, sizeof header);
  free(entries);
}

static void read_packs(const char *plugin) {
  hal_packs_t *const packs = hal_packs_open(plugin);
  for (hal_pack_t *pack = hal_packs_first(packs); pack; pack = pack->next)
    for (uint64_t i = 0; i < pack->header.count && i < 16; i++) {
      const hal_hash_t key = {(hal_uint128_t)pack->entries[i].key[0] << 64 | pack->entries[i].key[1]};
      size_t size = 0;
      void *const module = hal_pack_load(pack, &key, &size);
      require(!module || size > 0);
      hal_free(module);
    }
  hal_packs_close(packs);
}

static void fuzz_pack(uint8_t *bytes, size_t size, int corrected) {
  char plugin[128], path[128];
  snprintf(plugin, sizeof plugin, "%s/libhal_fuzz.so", folder);
  snprintf(path, sizeof path, "%s/libhal_fuzz.pack", folder);
  if (corrected) correct_pack(bytes, size);
  write_file(path, bytes, size);
  read_packs(plugin);
  unlink(path);
}

/* ---- the cache ---- */

/* Replaces the only file in the cache's folder. */
static void damage(const char *path, const uint8_t *bytes, size_t size) {
  DIR *const entries = opendir(path);
  require(entries != NULL);
  for (const struct dirent *entry; (entry = readdir(entries));) {
    char file[PATH_MAX];
    if (entry->d_name[0] == '.') continue;
    snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
    write_file(file, bytes, size);
  }
  closedir(entries);
}

/* Whether a file ends in a blob and has the check sum of the blob before it. The fuzzer learns check sums from
 * comparisons, and a file with a correct one is loaded. */
static int has_check(const uint8_t *bytes, size_t size, const void *blob, size_t blob_size) {
  hal_hash_t hash = hal_hash_begin();
  hal_hash_add(&hash, blob, blob_size);
  const uint64_t check[] = {hal_hash_high(&hash), hal_hash_low(&hash)};
  return size >= sizeof check + blob_size && memcmp(bytes + size - blob_size, blob, blob_size) == 0 &&
         memcmp(bytes + size - blob_size - sizeof check, check, sizeof check) == 0;
}

static void fuzz_cache(const uint8_t *bytes, size_t size) {
  static const char blob[] = "a module";
  hal_disk_cache_t cache;
  hal_hash_t key;
  size_t loaded_size = 0;
  char path[128];
  memset(&key, 7, sizeof key);
  snprintf(path, sizeof path, "%s/kernels", folder);
  hal_disk_cache_init(&cache, folder, "kernels");
  hal_disk_cache_store(&cache, &key, blob, sizeof blob);
  damage(path, bytes, size);
  char *const loaded = hal_disk_cache_load(&cache, &key, &loaded_size);
  require(!loaded || has_check(bytes, size, loaded, loaded_size));
  hal_free(loaded);
  hal_disk_cache_drop(&cache, &key);
  hal_disk_cache_close(&cache);
}

static void remove_folder(void) {
  char path[128];
  snprintf(path, sizeof path, "%s/kernels", folder);
  rmdir(path);
  rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  if (!folder[0]) {
    snprintf(folder, sizeof folder, "/tmp/torch-backend-fuzz-XXXXXX");
    require(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
    setenv("HAL_LOG", "error", 1);
  }
  uint8_t *const bytes = malloc(size - 1);
  if (!bytes) return 0;
  memcpy(bytes, data + 1, size - 1);
  if (data[0] & 1)
    fuzz_cache(bytes, size - 1);
  else
    fuzz_pack(bytes, size - 1, data[0] >> 7);
  free(bytes);
  return 0;
}
