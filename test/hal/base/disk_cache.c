/* Tests of base/disk_cache.h: a stored blob is read back whole or not at all, even if other processes use the
   folder. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/disk_cache.h"
#include "base/host_malloc.h"
#include "support.h"

static char root[64];

static void make_root(void) {
  strcpy(root, "/tmp/hal_disk_cache_XXXXXX");
  cr_assert(mkdtemp(root));
}

static void remove_root(void) {
  char command[256];
  snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", root, root);
  cr_assert_eq(system(command), 0);
}

TestSuite(disk_cache, .init = make_root, .fini = remove_root);

static hal_hash_t key_of(const char *text) {
  hal_hash_t key = hal_hash_begin();
  hal_hash_add_text(&key, text);
  return key;
}

static hal_disk_cache_t open_cache(void) {
  hal_disk_cache_t cache;
  hal_disk_cache_init(&cache, root, "kernels");
  return cache;
}

static void store(const char *key, const void *data, size_t size) {
  hal_disk_cache_t cache = open_cache();
  const hal_hash_t hash = key_of(key);
  hal_disk_cache_store(&cache, &hash, data, size);
  hal_disk_cache_close(&cache);
}

/* Returns whether the blob exists and equals `data`. */
static int holds(const char *key, const void *data, size_t size) {
  hal_disk_cache_t cache = open_cache();
  const hal_hash_t hash = key_of(key);
  size_t got = 0;
  void *const found = hal_disk_cache_load(&cache, &hash, &got);
  const int same = found && got == size && memcmp(found, data, size) == 0;
  if (found) cr_assert(same);
  hal_free(found);
  hal_disk_cache_close(&cache);
  return same;
}

static void path_of(const char *key, char path[256]) {
  const hal_hash_t hash = key_of(key);
  snprintf(path, 256, "%s/kernels/%016llx%016llx.blob", root, (unsigned long long)hal_hash_high(&hash),
           (unsigned long long)hal_hash_low(&hash));
}

static int count_files(void) {
  char path[256];
  int count = 0;
  snprintf(path, sizeof path, "%s/kernels", root);
  DIR *const folder = opendir(path);
  for (struct dirent *entry; folder && (entry = readdir(folder));) count += entry->d_name[0] != '.';
  if (folder) closedir(folder);
  return count;
}

/* The published test vectors of 128-bit FNV-1a. */
Test(disk_cache, the_hash_is_fnv_1a) {
  hal_hash_t hash = hal_hash_begin();
  cr_assert_eq(hal_hash_high(&hash), UINT64_C(0x6c62272e07bb0142));
  hal_hash_add(&hash, "a", 1);
  cr_assert_eq(hal_hash_high(&hash), UINT64_C(0xd228cb696f1a8caf));
  cr_assert_eq(hal_hash_low(&hash), UINT64_C(0x78912b704e4a8964));
}

Test(disk_cache, a_blob_comes_back_in_another_process) {
  cr_assert_not(holds("a", "blob", 4));
  if (fork() == 0) {
    store("a", "blob", 4);
    _exit(0);
  }
  int status;
  wait(&status);
  cr_assert(holds("a", "blob", 4));
  cr_assert_not(holds("b", "blob", 4));
}

Test(disk_cache, a_new_blob_takes_the_place_of_the_old) {
  store("a", "old", 3);
  store("a", "newer", 5);
  cr_assert(holds("a", "newer", 5));
  cr_assert_eq(count_files(), 1);
}

Test(disk_cache, a_damaged_file_is_no_hit_and_is_removed) {
  char path[256], blob[1000];
  memset(blob, 7, sizeof blob);
  path_of("a", path);
  for (int kind = 0; kind < 5; kind++) {
    store("a", blob, sizeof blob);
    const int file = open(path, O_RDWR);
    cr_assert_geq(file, 0);
    struct stat info;
    fstat(file, &info);
    if (kind == 0) cr_assert_eq(ftruncate(file, info.st_size - 1), 0);
    if (kind == 1) cr_assert_eq(ftruncate(file, 0), 0);
    if (kind == 2) cr_assert_eq(pwrite(file, "x", 1, info.st_size - 1), 1);
    if (kind == 3) cr_assert_eq(pwrite(file, "x", 1, 3), 1);
    if (kind == 4) cr_assert_eq(pwrite(file, "x", 1, info.st_size), 1);
    close(file);
    cr_assert_not(holds("a", blob, sizeof blob), "damage of kind %d", kind);
    cr_assert_eq(count_files(), 0, "damage of kind %d", kind);
  }
}

Test(disk_cache, the_file_of_another_hash_is_no_hit) {
  char from[256], to[256];
  store("a", "blob", 4);
  path_of("a", from);
  path_of("b", to);
  cr_assert_eq(rename(from, to), 0);
  cr_assert_not(holds("b", "blob", 4));
}

Test(disk_cache, links_pipes_and_folders_are_no_hits) {
  char path[256], other[256];
  store("b", "blob", 4);
  path_of("a", path);
  path_of("b", other);
  cr_assert_eq(symlink(other, path), 0);
  cr_assert_not(holds("a", "blob", 4));
  unlink(path);
  cr_assert_eq(mkfifo(path, 0600), 0);
  cr_assert_not(holds("a", "blob", 4));
  unlink(path);
  cr_assert_eq(mkdir(path, 0700), 0);
  cr_assert_not(holds("a", "blob", 4));
}

Test(disk_cache, what_others_can_write_to_is_not_read) {
  char path[256];
  store("a", "blob", 4);
  path_of("a", path);
  cr_assert_eq(chmod(path, 0666), 0);
  cr_assert_not(holds("a", "blob", 4));
  store("a", "blob", 4);
  snprintf(path, sizeof path, "%s/kernels", root);
  cr_assert_eq(chmod(path, 0777), 0);
  cr_assert_not(holds("a", "blob", 4));
  store("b", "blob", 4);
  cr_assert_eq(chmod(path, 0700), 0);
  cr_assert_not(holds("b", "blob", 4));
}

Test(disk_cache, a_folder_that_cannot_be_made_is_a_cache_without_hits) {
  char path[256];
  snprintf(path, sizeof path, "%s/kernels", root);
  const int file = open(path, O_WRONLY | O_CREAT, 0600);
  close(file);
  store("a", "blob", 4);
  cr_assert_not(holds("a", "blob", 4));
}

Test(disk_cache, no_root_is_a_cache_without_hits) {
  static const char *const roots[] = {NULL, "", "relative"};
  for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
    hal_disk_cache_t cache;
    const hal_hash_t key = key_of("a");
    size_t size;
    hal_disk_cache_init(&cache, roots[i], "kernels");
    hal_disk_cache_store(&cache, &key, "blob", 4);
    cr_assert_null(hal_disk_cache_load(&cache, &key, &size));
    hal_disk_cache_close(&cache);
  }
}

Test(disk_cache, an_empty_or_huge_blob_is_not_kept) {
  store("a", "", 0);
  cr_assert_eq(count_files(), 0);
  void *const huge = calloc(1, HAL_DISK_CACHE_FILE_BYTES + 1);
  store("a", huge, HAL_DISK_CACHE_FILE_BYTES + 1);
  cr_assert_eq(count_files(), 0);
  free(huge);
}

/* A limit of the file size simulates a full disk. */
Test(disk_cache, a_full_disk_leaves_no_half_of_a_blob_and_the_old_one) {
  enum { BYTES = 50000, ROOM = 20000 };
  char *const blob = malloc(BYTES);
  memset(blob, 5, BYTES);
  store("a", "old", 3);
  struct rlimit limit;
  cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const struct rlimit small = {.rlim_cur = ROOM, .rlim_max = limit.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
  store("a", blob, BYTES);
  store("b", blob, BYTES);
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  cr_assert(holds("a", "old", 3));
  cr_assert_not(holds("b", blob, BYTES));
  cr_assert_eq(count_files(), 1);
  store("b", blob, BYTES);
  cr_assert(holds("b", blob, BYTES));
  free(blob);
}

/* In a process without privileges, for which permissions have an effect. */
static void use_read_only_folder(void) {
  char path[256];
  if (geteuid() == 0 && (setgid(65534) || setuid(65534))) _exit(1);
  store("a", "blob", 4);
  snprintf(path, sizeof path, "%s/kernels", root);
  if (!holds("a", "blob", 4) || chmod(path, 0500)) _exit(2);
  store("b", "blob", 4);
  store("a", "other", 5);
  if (!holds("a", "blob", 4) || holds("b", "blob", 4) || count_files() != 1) _exit(3);
  _exit(0);
}

Test(disk_cache, a_read_only_folder_is_read_and_not_written) {
  int state;
  if (geteuid() == 0) cr_assert_eq(chown(root, 65534, 65534), 0);
  const pid_t child = fork();
  if (child == 0) use_read_only_folder();
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert_eq(state, 0, "state 0x%x", (unsigned)state);
}

/* Large and unused files, sparse: their size counts. */
Test(disk_cache, the_oldest_files_go_when_the_folder_is_too_large) {
  char path[256];
  store("new", "blob", 4);
  for (int i = 0; i < 20; i++) {
    snprintf(path, sizeof path, "%s/kernels/%032x.blob", root, i);
    const int file = open(path, O_WRONLY | O_CREAT, 0600);
    cr_assert_eq(ftruncate(file, (off_t)(HAL_DISK_CACHE_BYTES / 16)), 0);
    const struct timespec old[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};
    cr_assert_eq(futimens(file, old), 0);
    close(file);
  }
  store("newer", "blob", 4);
  cr_assert(holds("new", "blob", 4));
  cr_assert(holds("newer", "blob", 4));
  cr_assert_eq(count_files(), 13); /* 11 of the 20: with 12, the small file would exceed three quarters of the limit */
  snprintf(path, sizeof path, "%s/kernels/%032x.blob", root, 0);
  cr_assert_neq(access(path, F_OK), 0);
}

Test(disk_cache, processes_that_fill_one_folder_find_whole_blobs_only) {
  enum { PROCESSES = 4, ROUNDS = 200, BYTES = 50000 };
  char *const blob = malloc(BYTES);
  memset(blob, 3, BYTES);
  for (int p = 0; p < PROCESSES; p++)
    if (fork() == 0) {
      for (int i = 0; i < ROUNDS; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i % 5);
        store(key, blob, BYTES);
        holds(key, blob, BYTES); /* what is found is whole */
      }
      _exit(0);
    }
  for (int p = 0; p < PROCESSES; p++) {
    int status;
    wait(&status);
    cr_assert_eq(status, 0);
  }
  cr_assert_eq(count_files(), 5);
  free(blob);
}
