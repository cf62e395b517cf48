/* disk_cache.c: blobs in files. Every access uses the folder's descriptor, whose owner and mode were checked once,
 * because the target of the path may change meanwhile. */
#define _GNU_SOURCE /* O_CLOEXEC, utimensat, fdopendir */
#include "base/disk_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/host_malloc.h"
#include "base/text.h"
#include "hal/log.h"

#define MAGIC UINT64_C(0x316568636163616c) /* "lacache1", bytes in the order of the host */
enum { NAME_BYTES = 32 + sizeof ".blob" + 32, HEX = 32, LOOK_EVERY = 64 };

typedef struct header_s {
  uint64_t magic, key[2], size, check[2];
} header_t;

typedef struct name_s {
  char text[NAME_BYTES];
} name_t;

static name_t name_of(const hal_hash_t *key) {
  name_t name;
  snprintf(name.text, sizeof name.text, "%016llx%016llx.blob", (unsigned long long)hal_hash_high(key),
           (unsigned long long)hal_hash_low(key));
  return name;
}

static header_t header_of(const hal_hash_t *key, const void *data, size_t size) {
  hal_hash_t check = hal_hash_begin();
  hal_hash_add(&check, data, size);
  return (header_t){.magic = MAGIC,
                    .key = {hal_hash_high(key), hal_hash_low(key)},
                    .size = size,
                    .check = {hal_hash_high(&check), hal_hash_low(&check)}};
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

static void warn(hal_disk_cache_t *cache, const char *what, int code) {
  if (!cache->warned)
    hal_log(
        HAL_LOG_WARNING,
        "compiled kernels are not kept for later processes: %s %s: %s; make it a folder of yours, or name another in "
        "HAL_CACHE_DIR",
        what, cache->path, strerror(code));
  cache->warned = 1;
}

/* Creates the folders of a path, like mkdir -p. */
static void make_folders(const char *path) {
  char part[sizeof((hal_disk_cache_t *)0)->path];
  const size_t length = strlen(path);
  for (size_t i = 1; i <= length; i++) {
    if (path[i] != '/' && path[i] != '\0') continue;
    memcpy(part, path, i);
    part[i] = '\0';
    mkdir(part, 0700); /* opening the last folder reports a failure */
  }
}

/* Returns whether only the user and root can change the file or folder of the descriptor. */
static int is_ours(int file, mode_t kind) {
  struct stat info;
  return fstat(file, &info) == 0 && (info.st_mode & S_IFMT) == kind && (info.st_uid == geteuid() || info.st_uid == 0) &&
         !(info.st_mode & (S_IWGRP | S_IWOTH));
}

/* Opens the folder, and creates it if `make` is set. Returns whether it is open. */
static int open_folder(hal_disk_cache_t *cache, int make) {
  if (cache->folder >= 0) return 1;
  if (!cache->path[0] || (cache->tried && !make) || cache->warned) return 0;
  cache->tried = 1;
  if (make) make_folders(cache->path);
  const int folder = open(cache->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    if (make) warn(cache, "cannot open", errno);
    return 0;
  }
  if (!is_ours(folder, S_IFDIR)) {
    warn(cache, "others can write to", EACCES);
    close(folder);
    return 0;
  }
  cache->folder = folder;
  return 1;
}

void hal_disk_cache_init(hal_disk_cache_t *cache, const char *root, const char *name) {
  *cache = (hal_disk_cache_t){.folder = -1};
  if (!root || root[0] != '/') return;
  if (strlen(root) + strlen(name) + 2 > sizeof cache->path) return;
  hal_text_append(cache->path, sizeof cache->path, "%s/%s", root, name);
}

void hal_disk_cache_close(hal_disk_cache_t *cache) {
  if (cache->folder >= 0) close(cache->folder);
  cache->folder = -1;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int read_all(int file, void *data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t got = read(file, (char *)data + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    done += (size_t)got;
  }
  return 1;
}

/* Reads an open file; NULL if its content does not match its header. */
static void *read_blob(int file, const hal_hash_t *key, size_t *out_size) {
  header_t header;
  if (!is_ours(file, S_IFREG) || !read_all(file, &header, sizeof header)) return NULL;
  if (header.magic != MAGIC || header.size == 0 || header.size > HAL_DISK_CACHE_FILE_BYTES) return NULL;
  void *const data = hal_malloc((size_t)header.size);
  if (!data) return NULL;
  char further;
  if (read_all(file, data, (size_t)header.size) && read(file, &further, 1) == 0) {
    const header_t right = header_of(key, data, (size_t)header.size);
    if (memcmp(&right, &header, sizeof header) == 0) {
      *out_size = (size_t)header.size;
      return data;
    }
  }
  hal_free(data);
  return NULL;
}

void *hal_disk_cache_load(hal_disk_cache_t *cache, const hal_hash_t *key, size_t *out_size) {
  if (!open_folder(cache, 0)) return NULL;
  const name_t name = name_of(key);
  const int file = openat(cache->folder, name.text, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return NULL;
  void *const data = read_blob(file, key, out_size);
  close(file);
  if (data)
    utimensat(cache->folder, name.text, NULL, 0); /* the oldest file is removed first */
  else
    hal_disk_cache_drop(cache, key);
  return data;
}

void hal_disk_cache_drop(hal_disk_cache_t *cache, const hal_hash_t *key) {
  const name_t name = name_of(key);
  if (cache->folder >= 0) unlinkat(cache->folder, name.text, 0);
}

/* ---- limiting the size of the folder ----------------------------------------------------------------------------- */

typedef struct file_s {
  char name[NAME_BYTES];
  struct timespec used;
  uint64_t size;
} file_t;

static int by_age(const void *a, const void *b) {
  const struct timespec *const x = &((const file_t *)a)->used, *const y = &((const file_t *)b)->used;
  if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
  return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Returns all files, including those that a process wrote in part before it died. The caller frees the list. */
static file_t *list_files(DIR *folder, size_t *out_count, uint64_t *out_bytes) {
  file_t *files = NULL;
  size_t count = 0, room = 0;
  *out_bytes = 0;
  for (struct dirent *entry; (entry = readdir(folder));) {
    struct stat info;
    if (strlen(entry->d_name) >= NAME_BYTES || fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) ||
        !S_ISREG(info.st_mode))
      continue;
    if (count == room) {
      file_t *const more = hal_malloc((room = room ? 2 * room : 256) * sizeof *more);
      if (!more) break;
      if (files) memcpy(more, files, count * sizeof *more);
      hal_free(files);
      files = more;
    }
    file_t *const file = &files[count++];
    memcpy(file->name, entry->d_name, strlen(entry->d_name) + 1);
    file->used = info.st_mtim;
    file->size = (uint64_t)info.st_size;
    *out_bytes += file->size;
  }
  *out_count = count;
  return files;
}

/* Removes the oldest files of a folder that is too large, down to three quarters, so that not every store lists the
 * folder. */
static void trim(hal_disk_cache_t *cache) {
  const int again = openat(cache->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *const folder = again < 0 ? NULL : fdopendir(again);
  if (!folder) {
    if (again >= 0) close(again);
    return;
  }
  size_t count = 0;
  uint64_t bytes = 0;
  file_t *const files = list_files(folder, &count, &bytes);
  if (bytes > HAL_DISK_CACHE_BYTES) {
    qsort(files, count, sizeof *files, by_age);
    for (size_t i = 0; i < count && bytes > HAL_DISK_CACHE_BYTES / 4 * 3; i++)
      if (unlinkat(cache->folder, files[i].name, 0) == 0) bytes -= files[i].size;
  }
  hal_free(files);
  closedir(folder);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static int write_all(int file, const void *data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t put = write(file, (const char *)data + done, size - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return 0;
    done += (size_t)put;
  }
  return 1;
}

void hal_disk_cache_store(hal_disk_cache_t *cache, const hal_hash_t *key, const void *data, size_t size) {
  if (size == 0 || size > HAL_DISK_CACHE_FILE_BYTES || !open_folder(cache, 1)) return;
  const name_t name = name_of(key);
  name_t part;
  if (cache->stored++ % LOOK_EVERY == 0) trim(cache);
  snprintf(part.text, sizeof part.text, "%.*s.%x.%x", HEX, name.text, (unsigned)getpid(), (unsigned)cache->stored);
  int file = openat(cache->folder, part.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0 && errno == EEXIST) { /* left by a process that died and had this process's number */
    unlinkat(cache->folder, part.text, 0);
    file = openat(cache->folder, part.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  }
  if (file < 0) {
    warn(cache, "cannot write to", errno);
    return;
  }
  const header_t header = header_of(key, data, size);
  int whole = write_all(file, &header, sizeof header) && write_all(file, data, size);
  const int code = whole ? 0 : errno;
  whole = close(file) == 0 && whole;
  if (whole && renameat(cache->folder, part.text, cache->folder, name.text) == 0) return;
  unlinkat(cache->folder, part.text, 0);
  warn(cache, "cannot write to", code ? code : errno);
}
