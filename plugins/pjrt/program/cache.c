/* cache.c: compiled programs in files, for later processes. A file has a seal (hal/plugin_binary.h) and the platform's
 * serialized program, because PJRT accepts a damaged one. Its name is the hash of the text, and the seal's maker
 * identifies the platform, so that a program of another version is compiled again. */
#define _GNU_SOURCE /* O_NOFOLLOW, openat */
#include <errno.h>
#include <fcntl.h>
#include <hal/plugin_binary.h>
#include <hal/plugin_setting.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../pjrt.h"

enum { FOLDER_BYTES = 1024, NAME_BYTES = 64, MOST_BYTES = 256 << 20 };

/* Writes the folder; returns 0 if programs are not stored. */
static int folder_of(char *folder) {
  const char *const setting = hal_setting("HAL_CACHE_DIR"), *const cache = hal_setting("XDG_CACHE_HOME"),
                    *const home = hal_setting("HOME");
  int size = 0;
  if (setting && !*setting) return 0;
  if (setting)
    size = snprintf(folder, FOLDER_BYTES, "%s/pjrt", setting);
  else if (cache && *cache)
    size = snprintf(folder, FOLDER_BYTES, "%s/torch_backend/pjrt", cache);
  else if (home && *home)
    size = snprintf(folder, FOLDER_BYTES, "%s/.cache/torch_backend/pjrt", home);
  return size > 0 && size < FOLDER_BYTES && folder[0] == '/';
}

/* Programs that cannot be stored are compiled in each process, so this is reported once. */
static void warn(const char *what, int code) {
  static atomic_int warned;
  char folder[FOLDER_BYTES], reason[128], line[512];
  if (!folder_of(folder) || atomic_exchange(&warned, 1)) return;
  snprintf(
      line, sizeof line,
      "pjrt: compiled programs are not kept for later processes: %s %.200s: %s; make it a folder of yours, or name "
      "another in HAL_CACHE_DIR",
      what, folder, strerror_r(code, reason, sizeof reason));
  hal_host->log(HAL_LOG_WARNING, line);
}

/* Opens the folder; `make`: creates it, and reports a failure. Only the user and root may change it. */
static int open_folder(int make) {
  char folder[FOLDER_BYTES];
  struct stat info;
  if (!folder_of(folder)) return -1;
  for (char *end = strchr(folder + 1, '/'); make && end; end = strchr(end + 1, '/')) {
    *end = '\0';
    mkdir(folder, 0700);
    *end = '/';
  }
  if (make) mkdir(folder, 0700);
  const int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) {
    if (make) warn("cannot open", errno);
    return -1;
  }
  if (fstat(file, &info) == 0 && (info.st_uid == geteuid() || info.st_uid == 0) &&
      !(info.st_mode & (S_IWGRP | S_IWOTH)))
    return file;
  if (make) warn("others can write to", EACCES);
  close(file);
  return -1;
}

/* Two 64-bit FNV-1a hashes with different beginnings. */
static void add_bytes(uint64_t hash[2], const char *bytes, size_t size) {
  for (size_t i = 0; i < size; i++)
    for (int k = 0; k < 2; k++) hash[k] = (hash[k] ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
}

/* Platforms have files of their own, so that none replaces those of another one. */
static void write_name(const char *text, size_t size, pjrt_level_t level, int32_t site, char *name) {
  const pjrt_platform_t *const platform = pjrt_platform_of(site);
  uint64_t hash[2] = {UINT64_C(0xcbf29ce484222325), UINT64_C(0x84222325cbf29ce4)};
  add_bytes(hash, platform->name, strlen(platform->name) + 1);
  add_bytes(hash, platform->version, strlen(platform->version) + 1);
  add_bytes(hash, text, size);
  snprintf(name, NAME_BYTES, "%016llx%016llx%s%s.program", (unsigned long long)hash[0], (unsigned long long)hash[1],
           level == PJRT_LOW ? ".low" : "", site < PJRT_MAX_DEVICES ? "" : ".single");
}

/* Programs contain machine code for the instruction sets of this processor, whose names differ where the sets do. */
static void write_maker(size_t text_size, pjrt_level_t level, int32_t site, char maker[HAL_BINARY_MAKER]) {
  const pjrt_platform_t *const platform = pjrt_platform_of(site);
  char line[256] = "", model[128] = "";
  FILE *const file = fopen("/proc/cpuinfo", "re");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "model name : %127[^\n]", model) == 1) break;
  if (file) fclose(file);
  snprintf(maker, HAL_BINARY_MAKER, "%s %.120s, API %d.%d, options %d, %zu bytes of text, %s", platform->name,
           platform->version, platform->table->major_version, platform->table->minor_version,
           level == PJRT_LOW ? 2 : platform->plain_options, text_size, model);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static char *read_file(const char *name, size_t *out_size) {
  struct stat info;
  char *data = NULL;
  const int folder = open_folder(0);
  const int file = folder < 0 ? -1 : openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (folder >= 0) close(folder);
  if (file < 0) return NULL;
  if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && (info.st_uid == geteuid() || info.st_uid == 0) &&
      info.st_size > HAL_BINARY_SEAL && info.st_size < MOST_BYTES)
    data = hal_host->mem_alloc((size_t)info.st_size, 16);
  size_t done = 0;
  while (data && done < (size_t)info.st_size) {
    const ssize_t got = read(file, data + done, (size_t)info.st_size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += (size_t)got;
  }
  close(file);
  if (data && done == (size_t)info.st_size) {
    *out_size = done;
    return data;
  }
  hal_host->mem_free(data);
  return NULL;
}

pjrt_loaded_t *pjrt_cache_load(const char *text, size_t size, pjrt_level_t level, int32_t site) {
  const pjrt_table_t *const table = pjrt_table_of(site);
  char name[NAME_BYTES], maker[HAL_BINARY_MAKER];
  size_t file_size = 0;
  const void *bytes;
  pjrt_failure_t failure;
  if (!PJRT_HAS(table, Executable_DeserializeAndLoad)) return NULL;
  write_name(text, size, level, site, name);
  char *const data = read_file(name, &file_size);
  if (!data) return NULL;
  write_maker(size, level, site, maker);
  const hal_module_desc_t sealed = {
      .struct_size = sizeof sealed, .dialect = "binary", .options = "", .data = data, .size = file_size};
  pjrt_Executable_DeserializeAndLoad_t load = {.client = pjrt_client_of(site)};
  if (hal_binary_open("pjrt", &sealed, maker, &bytes, &load.serialized_executable_size) == HAL_OK) {
    load.serialized_executable = bytes;
    if (pjrt_failed(table, PJRT_CALL(table, Executable_DeserializeAndLoad, load), &failure))
      load.loaded_executable = NULL;
  }
  hal_host->mem_free(data);
  return load.loaded_executable;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static int write_all(int file, const char *data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t put = write(file, data + done, size - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return 0;
    done += (size_t)put;
  }
  return 1;
}

/* Writes and closes a file, and renames it. */
static int store(int folder, int file, const char *part, const char *name, const char *data, size_t size) {
  const int whole = write_all(file, data, size), code = errno;
  if (close(file) == 0 && whole) return renameat(folder, part, folder, name) == 0;
  if (!whole) errno = code;
  return 0;
}

/* Another thread or process may write the same file: each writes its own and renames it. */
static void write_file(const char *name, const char *data, size_t size) {
  static atomic_uint number;
  char part[2 * NAME_BYTES];
  const int folder = open_folder(1);
  if (folder < 0) return;
  snprintf(part, sizeof part, "%s.%ld.%u", name, (long)getpid(), atomic_fetch_add(&number, 1));
  const int file = openat(folder, part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  const int stored = file >= 0 && store(folder, file, part, name, data, size);
  if (!stored) warn("cannot write to", errno);
  if (!stored && file >= 0) unlinkat(folder, part, 0);
  close(folder);
}

static void seal_and_write(const char *text, size_t size, pjrt_level_t level, int32_t site,
                           const pjrt_Executable_Serialize_t *serialized) {
  char name[NAME_BYTES], maker[HAL_BINARY_MAKER];
  const size_t bytes = serialized->serialized_bytes_size;
  char *const data = hal_host->mem_alloc(HAL_BINARY_SEAL + bytes, 16);
  if (!data) return;
  memcpy(data + HAL_BINARY_SEAL, serialized->serialized_bytes, bytes);
  write_name(text, size, level, site, name);
  write_maker(size, level, site, maker);
  hal_binary_seal(data, bytes, maker);
  write_file(name, data, HAL_BINARY_SEAL + bytes);
  hal_host->mem_free(data);
}

void pjrt_cache_store(const char *text, size_t size, pjrt_level_t level, int32_t site, pjrt_loaded_t *program) {
  const pjrt_table_t *const table = pjrt_table_of(site);
  pjrt_failure_t failure;
  pjrt_LoadedExecutable_GetExecutable_t get = {.loaded_executable = program};
  if (!PJRT_HAS(table, LoadedExecutable_GetExecutable) || !PJRT_HAS(table, Executable_Serialize) ||
      !PJRT_HAS(table, Executable_DeserializeAndLoad) || !PJRT_HAS(table, Executable_Destroy))
    return;
  if (pjrt_failed(table, PJRT_CALL(table, LoadedExecutable_GetExecutable, get), &failure)) return;
  pjrt_Executable_Serialize_t serialize = {.executable = get.executable};
  if (!pjrt_failed(table, PJRT_CALL(table, Executable_Serialize, serialize), &failure)) {
    seal_and_write(text, size, level, site, &serialize);
    if (serialize.serialized_executable_deleter)
      serialize.serialized_executable_deleter(serialize.serialized_executable);
  }
  pjrt_Executable_Destroy_t destroy = {.executable = get.executable};
  pjrt_failed(table, PJRT_CALL(table, Executable_Destroy, destroy), &failure);
}
