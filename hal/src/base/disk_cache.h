/* disk_cache.h: blobs that outlive the process, one file each, identified by the hash of their source.
 *
 * Any number of processes share a folder without a lock. A file is written under another name and renamed, so that a
 * reader sees all of it or nothing, and its header detects damage. Only the user and root may have write access to the
 * folder. A cache that cannot be used has no hits: no function here fails. Not thread-safe: the owner has a lock.
 * Private to hal/src. */
#ifndef HAL_SRC_DISK_CACHE_H_
#define HAL_SRC_DISK_CACHE_H_

#include "base/hash.h"

typedef struct hal_disk_cache_s {
  int folder;      /* descriptor; -1 = not open */
  int tried;       /* 1 after opening was tried */
  int warned;      /* 1 after a warning that nothing can be written */
  uint32_t stored; /* files written by this process */
  char path[1024]; /* path of the folder; "" = no cache */
} hal_disk_cache_t;

/* The maximum size of all files of a folder, and of one file, in bytes. */
#define HAL_DISK_CACHE_BYTES (UINT64_C(512) << 20)
#define HAL_DISK_CACHE_FILE_BYTES (UINT64_C(32) << 20)

/* Sets the folder <root>/<name>, which the first store creates; a root of NULL or "" disables the cache. */
void hal_disk_cache_init(hal_disk_cache_t *cache, const char *root, const char *name);
void hal_disk_cache_close(hal_disk_cache_t *cache);

/* Returns the blob of a hash, which the caller frees with hal_free; NULL if there is none or it is damaged. */
void *hal_disk_cache_load(hal_disk_cache_t *cache, const hal_hash_t *key, size_t *out_size);

/* Stores a blob. If the folder gets too large, the oldest files are removed. */
void hal_disk_cache_store(hal_disk_cache_t *cache, const hal_hash_t *key, const void *data, size_t size);

/* Removes a blob that turned out to be unusable. */
void hal_disk_cache_drop(hal_disk_cache_t *cache, const hal_hash_t *key);

#endif /* HAL_SRC_DISK_CACHE_H_ */
