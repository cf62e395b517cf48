/* Tests of files that processes share (hal/plugin_shared_event.h), and of all objects opened by handles of such
 * files. A handle forged by another process can open only objects of the handle's kind. hal_memory_ipc and
 * hal_fake_ipc test the handles of memory. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <hal/plugin_shared_event.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/sdk_testing.h"

TestSuite(shared_memory, .init = begin, .timeout = 60);

enum { SIZE = 5000 };

static int open_files(void) {
  int count = 0;
  DIR *const folder = opendir("/proc/self/fd");
  cr_assert_not_null(folder);
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}

typedef struct made_s {
  hal_shared_handle_t handle;
  int file;
  char *memory;
} made_t;

static made_t make(const char *kind) {
  made_t made = {.file = -1};
  cr_assert_eq(hal_shared_file_create(kind, SIZE, &made.file, &made.handle), HAL_OK, "%s", strerror(errno));
  made.memory = hal_shared_file_map(made.file, SIZE);
  cr_assert_not_null(made.memory);
  return made;
}

static void drop(made_t made) {
  hal_shared_file_unmap(made.memory, SIZE);
  close(made.file);
}

static hal_status_t open_it(const char *kind, const hal_shared_handle_t *handle) {
  size_t size = 0;
  int file = -1;
  const int before = open_files();
  const hal_status_t status = hal_shared_file_open(kind, handle, &file, &size);
  if (!status) {
    cr_assert_eq(size, SIZE);
    close(file);
  } else {
    cr_assert_eq(file, -1);
  }
  cr_assert_eq(open_files(), before, "a descriptor stayed open");
  return status;
}

Test(shared_memory, a_file_is_shared_and_has_its_size_for_ever) {
  made_t made = make("mine");
  size_t size = 0;
  int file = -1;
  struct stat facts;
  for (int i = 0; i < SIZE; i++) cr_assert_eq(made.memory[i], 0);
  cr_assert_eq(hal_shared_file_open("mine", &made.handle, &file, &size), HAL_OK);
  cr_assert_eq(size, SIZE);
  char *const memory = hal_shared_file_map(file, size);
  cr_assert(memory && memory != made.memory);
  strcpy(memory + SIZE - 6, "there");
  cr_assert_str_eq(made.memory + SIZE - 6, "there");
  cr_assert_eq(fstat(file, &facts), 0);
  cr_assert(ftruncate(file, 0) && errno == EPERM && ftruncate(file, 1 << 20) && errno == EPERM);
  cr_assert(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE) && errno == EPERM);
  hal_shared_file_unmap(memory, size);
  hal_shared_file_unmap(NULL, size);
  close(file);
  drop(made);
}

Test(shared_memory, sizes_that_cannot_be) {
  hal_shared_handle_t handle;
  int file = -1;
  cr_assert_eq(hal_shared_file_create("mine", SIZE_MAX - 5, &file, &handle), HAL_RESOURCE_EXHAUSTED);
  cr_assert(file == -1 && errno == EOVERFLOW);
  cr_assert_eq(hal_shared_file_pages(SIZE_MAX), 0);
  cr_assert_eq(hal_shared_file_pages(1), (size_t)sysconf(_SC_PAGESIZE));
}

Test(shared_memory, a_kind_has_eight_characters_at_most_and_counts) {
  const made_t eight = make("12345678"), more = make("123456789"), less = make("1234567");
  cr_assert_eq(open_it("12345678", &eight.handle), HAL_OK);
  cr_assert_eq(open_it("12345678", &more.handle), HAL_OK);
  cr_assert_eq(open_it("12345678", &less.handle), HAL_INVALID_ARGUMENT);
  hal_shared_handle_t lie = less.handle; /* a file of another kind */
  memcpy(lie.kind, eight.handle.kind, sizeof lie.kind);
  cr_assert_eq(open_it("12345678", &lie), HAL_NOT_FOUND);
  drop(eight), drop(more), drop(less);
}

/* ---- handles with arbitrary bytes ---- */

/* Opens a handle by the rules of each kind: 1 = refused without side effects. */
static hal_status_t open_event(const void *bytes, size_t size) {
  hal_shared_event_t *event = NULL;
  const hal_status_t status = hal_shared_event_open("mine", bytes, size, &event);
  hal_shared_event_release(event);
  return status;
}
static hal_status_t open_semaphore(const void *bytes, size_t size) {
  hal_plugin_semaphore_t *semaphore = NULL;
  const hal_status_t status = hal_plugin_semaphore_open(0, bytes, size, 0, &semaphore);
  hal_plugin_semaphore_destroy(semaphore);
  return status;
}
static hal_status_t open_plain(const void *bytes, size_t size) {
  hal_shared_handle_t handle = {.process = 0};
  if (size != sizeof handle) return HAL_INVALID_ARGUMENT;
  memcpy(&handle, bytes, size);
  return open_it("mine", &handle);
}

typedef hal_status_t (*open_t)(const void *bytes, size_t size);
static const struct {
  const char *name;
  open_t open;
} users[] = {{"an event", open_event}, {"a semaphore", open_semaphore}, {"a file", open_plain}};
enum { USERS = sizeof users / sizeof *users };

/* Creates one object of each kind in this process: their handles, in the order above. */
static void export_all(hal_shared_handle_t handles[USERS]) {
  hal_shared_event_t *event = NULL;
  hal_plugin_semaphore_t *semaphore = NULL;
  size_t size = 0;
  cr_assert_eq(hal_shared_event_make("mine", &event), HAL_OK);
  hal_shared_event_export(event, &handles[0], sizeof *handles, &size);
  cr_assert_eq(size, sizeof *handles);
  cr_assert_eq(hal_plugin_semaphore_create(0, 0, HAL_SEMAPHORE_INTERPROCESS, &semaphore), HAL_OK);
  cr_assert_eq(hal_plugin_semaphore_export(semaphore, 0, &handles[1], sizeof *handles, &size), HAL_OK);
  cr_assert_eq(size, sizeof *handles);
  handles[2] = make("mine").handle;
}

/* Runs `body` in a separate process, for which the objects of this process belong to another process. It exits with
   0. */
static void elsewhere(void (*body)(const hal_shared_handle_t *handles)) {
  hal_shared_handle_t handles[USERS];
  int state = 1;
  export_all(handles);
  const pid_t child = fork();
  if (!child) {
    body(handles);
    _exit(0);
  }
  cr_assert_eq(waitpid(child, &state, 0), child);
  cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "%d", state);
}

/* In the other process, a failed check prints its line and exits. */
#define HOLDS(condition) ((condition) ? (void)0 : _exit(__LINE__ % 250 + 1))

static void refuse(open_t open, const void *bytes, size_t size) {
  const hal_status_t status = open(bytes, size);
  HOLDS(status == HAL_INVALID_ARGUMENT || status == HAL_NOT_FOUND);
}

static void try_bytes(const hal_shared_handle_t *handles) {
  uint64_t state = 1;
  const int files = open_files();
  for (int user = 0; user < USERS; user++) {
    HOLDS(users[user].open(&handles[user], sizeof *handles) == HAL_OK);
    for (size_t size = 0; size < sizeof *handles; size++)
      HOLDS(users[user].open(&handles[user], size) == HAL_INVALID_ARGUMENT);
    HOLDS(users[user].open == open_plain || users[user].open(NULL, sizeof *handles) == HAL_INVALID_ARGUMENT);
    for (int round = 0; round < 2000; round++) {
      unsigned char bytes[sizeof *handles];
      memcpy(bytes, &handles[user], sizeof bytes);
      state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
      const size_t at = (state >> 32) % sizeof bytes;
      bytes[at] ^= (unsigned char)(1 + (state >> 40) % 255);
      const size_t process = offsetof(hal_shared_handle_t, process); /* the id of a thread also finds the file */
      if (at < process || at >= process + sizeof(int32_t)) refuse(users[user].open, bytes, sizeof bytes);
    }
    /* A handle of another kind, unchanged and with the expected magic. */
    for (int other = 0; other < USERS; other++)
      if (other != user) {
        hal_shared_handle_t wrong = handles[other];
        HOLDS(users[user].open(&wrong, sizeof wrong) == HAL_INVALID_ARGUMENT);
        memcpy(wrong.kind, handles[user].kind, sizeof wrong.kind);
        HOLDS(users[user].open(&wrong, sizeof wrong) == HAL_NOT_FOUND);
      }
  }
  HOLDS(open_files() == files);
}
Test(shared_memory, any_other_bytes_are_refused_by_all) {
  hal_shared_handle_t empty;
  memset(&empty, 0, sizeof empty);
  cr_assert_eq(open_plain(&empty, sizeof empty), HAL_INVALID_ARGUMENT);
  elsewhere(try_bytes);
}

/* ---- handles that name other descriptors of a process ---- */

static struct {
  int fifo[2], sockets[2], zero, exe, folder, terminal, memory, named;
  pid_t process;
} open_there;

/* Descriptors that a process may have open: objects that opening would change or block on, and memory files not
   created by these functions. */
static void open_all_sorts(void) {
  open_there.process = getpid();
  cr_assert(!pipe2(open_there.fifo, O_CLOEXEC) && !socketpair(AF_UNIX, SOCK_STREAM, 0, open_there.sockets));
  open_there.zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
  open_there.exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  open_there.folder = open("/proc/self", O_RDONLY | O_CLOEXEC);
  open_there.terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC); /* may be missing: -1 is also refused */
  open_there.memory = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  open_there.named = memfd_create("hal-shared", MFD_CLOEXEC); /* the expected name, but it can be truncated */
  cr_assert(open_there.zero >= 0 && open_there.exe >= 0 && open_there.folder >= 0 && open_there.memory >= 0);
  cr_assert(!ftruncate(open_there.memory, 1 << 16) && !ftruncate(open_there.named, 1 << 16));
}

static void try_descriptors(const hal_shared_handle_t *handles) {
  const int files[] = {open_there.fifo[0],
                       open_there.fifo[1],
                       open_there.sockets[0],
                       open_there.sockets[1],
                       open_there.zero,
                       open_there.exe,
                       open_there.folder,
                       open_there.terminal,
                       open_there.memory,
                       open_there.named,
                       0,
                       1,
                       2,
                       1000,
                       INT32_MAX,
                       -1};
  for (int user = 0; user < USERS; user++)
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
      hal_shared_handle_t wrong = handles[user];
      wrong.file = files[i];
      refuse(users[user].open, &wrong, sizeof wrong);
      wrong = handles[user];
      wrong.process =
          (const int32_t[]){0, -1, INT32_MIN, INT32_MAX, 1, 2}[i % 6]; /* process 1 may belong to another user */
      refuse(users[user].open, &wrong, sizeof wrong);
    }
}
Test(shared_memory, other_descriptors_of_the_process_are_not_opened) {
  char byte = 'x';
  open_all_sorts();
  elsewhere(try_descriptors);
  cr_assert(write(open_there.fifo[1], &byte, 1) == 1 && read(open_there.fifo[0], &byte, 1) == 1 && byte == 'x');
}

/* A file created by hand with the right name, seals and last page belongs to a process of this user and is opened. A
   file that is one byte shorter is refused. */
Test(shared_memory, only_whole_sealed_files_are_opened) {
  const made_t made = make("mine");
  const size_t pages = hal_shared_file_pages(SIZE), page = (size_t)sysconf(_SC_PAGESIZE);
  for (int fault = 0; fault < 5; fault++) {
    struct {
      char kind[8];
      unsigned char nonce[16];
      uint64_t size;
    } trailer = {.size = SIZE};
    memcpy(trailer.kind, made.handle.kind, 8);
    memcpy(trailer.nonce, made.handle.nonce, 16);
    const int file = memfd_create(fault == 1 ? "hal-share" : "hal-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fault == 2) trailer.size = SIZE + 2 * page;
    if (fault == 3) trailer.size = 0;
    cr_assert(!ftruncate(file, (off_t)(pages + page)));
    cr_assert_eq(pwrite(file, &trailer, sizeof trailer, (off_t)pages), (ssize_t)sizeof trailer);
    cr_assert(
        !fcntl(file, F_ADD_SEALS, fault == 4 ? F_SEAL_GROW | F_SEAL_SEAL : F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL));
    hal_shared_handle_t handle = made.handle;
    handle.file = file;
    cr_assert_eq(open_it("mine", &handle), fault ? HAL_NOT_FOUND : HAL_OK, "%d", fault);
    close(file);
  }
  drop(made);
}

/* ---- processes that exit ---- */

Test(shared_memory, what_a_process_had_ends_with_it) {
  hal_shared_handle_t *const handles =
      mmap(NULL, USERS * sizeof *handles, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int pipes[2];
  char byte;
  cr_assert(handles != MAP_FAILED && !pipe(pipes));
  const pid_t child = fork();
  if (!child) {
    export_all(handles);
    if (write(pipes[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  cr_assert_eq(read(pipes[0], &byte, 1), 1);
  for (int user = 0; user < USERS; user++)
    cr_assert_eq(users[user].open(&handles[user], sizeof *handles), HAL_OK, "%s", users[user].name);
  kill(child, SIGKILL);
  cr_assert_eq(waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT), 0); /* not yet waited for */
  for (int user = 0; user < USERS; user++)
    cr_assert_eq(users[user].open(&handles[user], sizeof *handles), HAL_NOT_FOUND, "%s", users[user].name);
  cr_assert_eq(waitpid(child, NULL, 0), child);
  for (int user = 0; user < USERS; user++)
    cr_assert_eq(users[user].open(&handles[user], sizeof *handles), HAL_NOT_FOUND, "%s", users[user].name);
}
