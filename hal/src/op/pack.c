/* pack.c: reads packs (pack.h). Entries are read when a pack is opened, a module when it is requested. */
#define _GNU_SOURCE /* O_CLOEXEC */
#include "op/pack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/callback.h"
#include "base/host_malloc.h"
#include "base/text.h"
#include "hal/log.h"
#include "hal/status.h"
#include "op/source.h"
#include "plugin/file_check.h"
#include "plugin/search_path.h"

#define PACK_VERSION "torch_backend pack 1"
enum { MOST_FILES = 16, ENDING = sizeof ".pack" - 1 };

hal_hash_t hal_pack_key(const char *source_dialect, const char *options, int fp64, const char *text, size_t size) {
  hal_hash_t key = hal_hash_begin();
  hal_hash_add_text(&key, PACK_VERSION);
  hal_hash_add_text(&key, source_dialect);
  hal_hash_add_text(&key, options);
  hal_hash_add_text(&key, fp64 ? "fp64" : "");
  hal_hash_add(&key, text, size);
  return key;
}

hal_hash_t hal_pack_check(const hal_pack_header_t *header, const hal_pack_entry_t *entries) {
  hal_hash_t check = hal_hash_begin();
  hal_hash_add(&check, &header->count, sizeof *header - offsetof(hal_pack_header_t, count));
  hal_hash_add(&check, entries, header->count * sizeof *entries);
  return check;
}

/* ---- one file ---------------------------------------------------------------------------------------------------- */

static int read_all(int file, void *data, size_t size, uint64_t offset) {
  for (size_t done = 0; done < size;) {
    const ssize_t got = pread(file, (char *)data + done, size - done, (off_t)(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    done += (size_t)got;
  }
  return 1;
}

static int is_text(const char *text, size_t room) { return memchr(text, '\0', room) != NULL; }

static int key_order(const uint64_t a[2], const uint64_t b[2]) {
  if (a[0] != b[0]) return a[0] < b[0] ? -1 : 1;
  return (a[1] > b[1]) - (a[1] < b[1]);
}

/* Reads header and entries. Returns the problem, NULL = none. */
static const char *read_head(hal_pack_t *pack) {
  hal_pack_header_t *const header = &pack->header;
  struct stat facts;
  if (fstat(pack->file, &facts) || !S_ISREG(facts.st_mode)) return "it is not a file";
  if (!read_all(pack->file, header, sizeof *header, 0)) return "it is too short";
  if (header->magic != HAL_PACK_MAGIC)
    return (header->magic ^ HAL_PACK_MAGIC) >> 56 && !((header->magic ^ HAL_PACK_MAGIC) << 8)
               ? "its format is that of another version"
               : "it is not a pack for this kind of machine";
  if (header->bytes != (uint64_t)facts.st_size) return "its length is wrong";
  if (header->count > HAL_PACK_MOST || !is_text(header->source, sizeof header->source) ||
      !is_text(header->dialect, sizeof header->dialect) || !is_text(header->maker, sizeof header->maker))
    return "its header is damaged";
  const size_t size = (size_t)header->count * sizeof *pack->entries, begin = sizeof *header + size;
  pack->entries = hal_malloc(size ? size : 1);
  if (!pack->entries) return "there is no memory for it";
  if (!read_all(pack->file, pack->entries, size, sizeof *header)) return "it is too short";
  const hal_hash_t check = hal_pack_check(header, pack->entries);
  if (hal_hash_high(&check) != header->check[0] || hal_hash_low(&check) != header->check[1])
    return "its index is damaged";
  for (uint64_t i = 0; i < header->count; i++) {
    const hal_pack_entry_t *const entry = &pack->entries[i];
    if (entry->offset < begin || entry->offset > header->bytes || entry->size > header->bytes - entry->offset ||
        !entry->size || (i && key_order(entry[-1].key, entry->key) >= 0))
      return "its index is invalid";
  }
  return NULL;
}

static void warn(hal_pack_t *pack, const char *what, const char *why) {
  if (atomic_exchange(&pack->warned, 1)) return;
  hal_log(HAL_LOG_WARNING, "the pack %s %s: %s; create it again with torch-backend pack, or remove it", pack->path,
          what, why);
}

static void close_pack(hal_pack_t *pack) {
  if (pack->file >= 0) close(pack->file);
  hal_free(pack->entries);
  hal_free(pack);
}

/* Opens a file; NULL if it cannot be used. */
static hal_pack_t *open_pack(const char *path) {
  const size_t length = strlen(path) + 1;
  uint64_t version[2];
  hal_pack_t *const pack = hal_calloc(1, sizeof *pack + length);
  if (!pack) return NULL;
  memcpy(pack->path, path, length);
  const char *why = NULL;
  pack->file = -1;
  if (hal_file_check_owner(path))
    why = hal_error_message();
  else if ((pack->file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)) < 0)
    why = strerror(errno);
  else
    why = read_head(pack);
  if (why) warn(pack, "is not used", why);
  if (why) {
    close_pack(pack);
    return NULL;
  }
  hal_op_source_version(version);
  if (memcmp(version, pack->header.kernels, sizeof version) != 0)
    warn(pack, "is used in part", "some of its kernels were compiled from another version's sources");
  return pack;
}

void *hal_pack_load(hal_pack_t *pack, const hal_hash_t *key, size_t *out_size) {
  const uint64_t wanted[2] = {hal_hash_high(key), hal_hash_low(key)};
  size_t low = 0, high = (size_t)pack->header.count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (key_order(pack->entries[middle].key, wanted) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  const hal_pack_entry_t *const entry = &pack->entries[low];
  if (low == pack->header.count || key_order(entry->key, wanted) || atomic_load(&pack->damaged)) return NULL;
  void *const data = hal_malloc((size_t)entry->size);
  if (!data) return NULL;
  hal_hash_t check = hal_hash_begin();
  if (read_all(pack->file, data, (size_t)entry->size, entry->offset)) {
    hal_hash_add(&check, data, (size_t)entry->size);
    if (hal_hash_high(&check) == entry->check[0] && hal_hash_low(&check) == entry->check[1]) {
      *out_size = (size_t)entry->size;
      return data;
    }
  }
  hal_free(data);
  atomic_store(&pack->damaged, 1);
  atomic_store(&pack->warned, 0); /* an earlier warning may have had another cause */
  warn(pack, "is not used any more", "a module in it is damaged");
  return NULL;
}

void hal_pack_refused(hal_pack_t *pack, const char *kernel, const char *why) {
  char text[1024] = "";
  hal_text_append(text, sizeof text, "the device rejects the kernel \"%s\": %s", kernel, why);
  warn(pack, "is used in part", text);
}

/* ---- packs of a plugin ------------------------------------------------------------------------------------------- */

struct hal_packs_s {
  hal_packs_t *next;
  hal_pack_t *first;
  int users; /* number of devices of the plugin */
  char plugin[];
};

static hal_packs_t *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns whether a file's name is <stem>.pack or <stem>.<anything>.pack. */
static int is_pack_of(const char *name, const char *stem, size_t length) {
  const size_t size = strlen(name);
  return size >= length + ENDING && memcmp(name, stem, length) == 0 && name[length] == '.' &&
         strcmp(name + size - ENDING, ".pack") == 0;
}

/* Orders the name without an addition first. */
static int by_name(const void *a, const void *b) {
  const char *const x = *(char *const *)a, *const y = *(char *const *)b;
  const size_t n = strlen(x) - ENDING, m = strlen(y) - ENDING;
  const int order = memcmp(x, y, n < m ? n : m);
  return order ? order : (n > m) - (n < m);
}

/* Returns the names of packs in a folder, which the caller frees. */
static size_t list_packs(const char *folder, const char *stem, size_t length, char *names[MOST_FILES]) {
  size_t count = 0;
  DIR *const list = opendir(folder);
  for (const struct dirent *entry; list && count < MOST_FILES && (entry = readdir(list));) {
    if (!is_pack_of(entry->d_name, stem, length)) continue;
    const size_t size = strlen(entry->d_name) + 1;
    char *const name = hal_malloc(size);
    if (!name) break;
    memcpy(name, entry->d_name, size);
    names[count++] = name;
  }
  if (list) closedir(list);
  qsort(names, count, sizeof *names, by_name);
  return count;
}

static void open_all(hal_packs_t *packs) {
  char folder[PATH_MAX], path[PATH_MAX], *names[MOST_FILES];
  const char *const slash = strrchr(packs->plugin, '/');
  if (!slash || strlen(packs->plugin) >= sizeof folder) return;
  const size_t size = strlen(slash + 1), length = size > 3 && strcmp(slash + size - 2, ".so") == 0 ? size - 3 : size;
  memcpy(folder, packs->plugin, (size_t)(slash - packs->plugin));
  folder[slash - packs->plugin] = '\0';
  const size_t count = list_packs(folder[0] ? folder : "/", slash + 1, length, names);
  hal_pack_t **last = &packs->first;
  for (size_t i = 0; i < count; i++) {
    path[0] = '\0';
    hal_text_append(path, sizeof path, "%s/%s", folder, names[i]);
    hal_free(names[i]);
    if ((*last = open_pack(path))) last = &(*last)->next;
  }
}

hal_packs_t *hal_packs_open(const char *plugin_path) {
  if (!plugin_path || hal_process_is_privileged()) return NULL;
  hal_mutex_lock_and_defer(&lock);
  hal_packs_t *packs = all;
  while (packs && strcmp(packs->plugin, plugin_path) != 0) packs = packs->next;
  const size_t length = strlen(plugin_path) + 1;
  if (!packs && (packs = hal_calloc(1, sizeof *packs + length))) {
    memcpy(packs->plugin, plugin_path, length);
    open_all(packs);
    packs->next = all;
    all = packs;
  }
  if (packs) packs->users++;
  hal_mutex_unlock_and_run(&lock);
  return packs;
}

void hal_packs_close(hal_packs_t *packs) {
  if (!packs) return;
  hal_mutex_lock_and_defer(&lock);
  const int over = --packs->users == 0;
  hal_packs_t **at = &all;
  while (over && *at != packs) at = &(*at)->next;
  if (over) *at = packs->next;
  hal_mutex_unlock_and_run(&lock);
  if (!over) return;
  for (hal_pack_t *pack = packs->first, *next; pack; pack = next) {
    next = pack->next;
    close_pack(pack);
  }
  hal_free(packs);
}

hal_pack_t *hal_packs_first(const hal_packs_t *packs) { return packs ? packs->first : NULL; }
