/* disk_cache.h: blobs that outlive the process, one file each, found by the hash of what they were made from.
 *
 * Any number of processes share a folder without a lock: a file is written under another name and renamed, so that a
 * reader sees all of it or nothing, and its header detects damage. Only the user and root may have write access to the folder. A cache
 * that cannot be used is a cache without hits: no function here fails. Not thread-safe: the owner has a lock. Private to hal/src. */
#ifndef HAL_SRC_DISK_CACHE_H_
#define HAL_SRC_DISK_CACHE_H_

#include "base/hash.h"

typedef struct hal_disk_cache_s {
  int folder;      /* descriptor; -1 = not open */
  int tried;       /* opening was tried */
  int warned;      /* the user knows that nothing can be written */
  uint32_t stored; /* files written by this process */
  char path[1024]; /* of the folder; "" = no cache */
} hal_disk_cache_t;

/* Bytes that all files of a folder have at most, and those of one file. */
#define HAL_DISK_CACHE_BYTES (UINT64_C(512) << 20)
#define HAL_DISK_CACHE_FILE_BYTES (UINT64_C(32) << 20)

/* Names the folder <root>/<name>, which is made when something is stored; a root of NULL or "" is a cache that is off. */
void hal_disk_cache_init(hal_disk_cache_t *cache, const char *root, const char *name);
void hal_disk_cache_close(hal_disk_cache_t *cache);

/* Returns the blob of a hash, which the caller frees with hal_free; NULL when there is none that is whole. */
void *hal_disk_cache_load(hal_disk_cache_t *cache, const hal_hash_t *key, size_t *out_size);

/* Keeps a blob. The oldest files go when the folder gets too large. */
void hal_disk_cache_store(hal_disk_cache_t *cache, const hal_hash_t *key, const void *data, size_t size);

/* Forgets a blob that proved to be of no use. */
void hal_disk_cache_drop(hal_disk_cache_t *cache, const hal_hash_t *key);

#endif /* HAL_SRC_DISK_CACHE_H_ */
