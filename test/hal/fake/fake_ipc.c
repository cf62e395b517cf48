/* fake_ipc.c: memory of the fake device that processes share: data must survive the move to a file, and invalid
 * handles are rejected. The conformance suite (ipc) tests the rest. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../ipc_handle.h"
#include "fake_support.h"

enum { SIZE = (4 << 20) + 4096 };

static void setup(void) { open_mode(1, 2); }
TestSuite(fake_ipc, .init = setup, .fini = close_plugin, .timeout = 60);

static char *allocate(void) {
  void *ptr = NULL;
  must(fake_api.memory_alloc(0, SIZE, 0, &ptr));
  return ptr;
}

static ipc_handle_t export(void *ptr) {
  ipc_handle_t handle = {.size = 0};
  must(fake_api.ipc_export(0, ptr, 0, handle.bytes, sizeof handle.bytes, &handle.size));
  return handle;
}

static char *open_it(const ipc_handle_t *handle) {
  void *ptr = NULL;
  must(fake_api.ipc_open(0, handle->bytes, handle->size, 0, &ptr));
  return ptr;
}

/* ---- moving ---- */

static atomic_int stop;

typedef struct writer_s {
  _Atomic uint64_t *words;
  uint64_t written;
} writer_t;

static void *count_up(void *argument) {
  writer_t *const writer = argument;
  const size_t words = SIZE / sizeof *writer->words;
  for (uint64_t i = 0; !atomic_load(&stop); i++, writer->written++)
    atomic_fetch_add(&writer->words[i * 521 % words], 1);
  return NULL;
}

/* The host may write to the memory, and threads write while it is moved: no write is lost. */
Test(fake_ipc, writes_while_memory_is_exported_are_kept) {
  for (int round = 0; round < 10; round++) {
    char *const memory = allocate();
    writer_t writers[2] = {{(_Atomic uint64_t *)memory, 0}, {(_Atomic uint64_t *)memory, 0}};
    pthread_t threads[2];
    uint64_t sum = 0;
    atomic_store(&stop, 0);
    for (int i = 0; i < 2; i++) cr_assert_eq(pthread_create(&threads[i], NULL, count_up, &writers[i]), 0);
    usleep(3000);
    const ipc_handle_t handle = export(memory);
    usleep(1000);
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) cr_assert_eq(pthread_join(threads[i], NULL), 0);
    char *const opened = open_it(&handle);
    for (size_t i = 0; i < SIZE / sizeof sum; i++) sum += ((uint64_t *)opened)[i];
    cr_assert_eq(sum, writers[0].written + writers[1].written);
    must(fake_api.ipc_close(0, opened));
    must(fake_api.memory_free(0, memory));
  }
}

Test(fake_ipc, memory_keeps_its_address_and_is_opened_any_number_of_times) {
  char *const memory = allocate();
  size_t before = 0, after = 0, total = 0;
  strcpy(memory + SIZE - 10, "kept");
  must(fake_api.memory_info(0, &before, &total));
  const ipc_handle_t handle = export(memory), again = export(memory);
  cr_assert(handle.size == again.size && !memcmp(handle.bytes, again.bytes, handle.size));
  char *const first = open_it(&handle), *const second = open_it(&again);
  cr_assert(first != second && first != memory && !strcmp(first + SIZE - 10, "kept"));
  memory[0] = 5;
  cr_assert(first[0] == 5 && second[0] == 5);
  must(fake_api.memory_info(0, &after, &total));
  cr_assert_eq(before, after, "opened memory counts where it was allocated");
  must(fake_api.ipc_close(0, first));
  second[1] = 6;
  cr_assert_eq(memory[1], 6);
  must_fail(fake_api.memory_free(0, second), HAL_INVALID_ARGUMENT, "not the start of such an allocation");
  must_fail(fake_api.ipc_close(0, memory), HAL_INVALID_ARGUMENT, "not open memory of another process");
  must_fail(fake_api.ipc_close(0, first), HAL_INVALID_ARGUMENT, "not open memory of another process");
  must(fake_api.memory_free(0, memory));
  second[2] = 7; /* the file exists until it is closed */
  must(fake_api.ipc_close(0, second));
}

Test(fake_ipc, what_is_opened_or_no_segment_is_not_exported) {
  char *const memory = allocate();
  const ipc_handle_t handle = export(memory);
  char *const opened = open_it(&handle);
  ipc_handle_t other;
  must_fail(fake_api.ipc_export(0, opened, 0, other.bytes, sizeof other.bytes, &other.size), HAL_INVALID_ARGUMENT,
            "not the start of an allocation");
  must_fail(fake_api.ipc_export(0, memory + 64, 0, other.bytes, sizeof other.bytes, &other.size), HAL_INVALID_ARGUMENT,
            "not the start of an allocation");
  must(fake_api.ipc_close(0, opened));
  must(fake_api.memory_free(0, memory));
}

/* ---- invalid handles ---- */

/* A handle consists of eight bytes of magic, the numbers of a process and of a file, and the nonce. */
static ipc_handle_t forged(const ipc_handle_t *handle, int32_t process, int32_t file) {
  ipc_handle_t other = *handle;
  memcpy(other.bytes + 8, &process, sizeof process);
  memcpy(other.bytes + 12, &file, sizeof file);
  return other;
}

static void refuse(const ipc_handle_t *handle, hal_status_t status, const char *text) {
  void *ptr = NULL;
  must_fail(fake_api.ipc_open(0, handle->bytes, handle->size, 0, &ptr), status, text);
  cr_assert_null(ptr);
}

Test(fake_ipc, a_handle_opens_no_file_but_the_memory_that_it_is_of) {
  char *const memory = allocate(), *const other = allocate();
  const ipc_handle_t handle = export(memory);
  export(other);
  const int other_memory = memfd_create("hal-fake-ipc", MFD_CLOEXEC), plain = open("/dev/zero", O_RDWR | O_CLOEXEC);
  cr_assert(other_memory >= 0 && plain >= 0 && !ftruncate(other_memory, SIZE + 4096));
  int32_t own;
  memcpy(&own, handle.bytes + 12, sizeof own);
  for (int32_t file = 0; file < 64; file++) {
    const ipc_handle_t wrong = forged(&handle, getpid(), file);
    if (file != own) refuse(&wrong, HAL_NOT_FOUND, "cannot be opened");
  }
  ipc_handle_t wrong = forged(&handle, 1, own);
  refuse(&wrong, HAL_NOT_FOUND, "memory of process 1 cannot be opened");
  wrong = forged(&handle, -1, own);
  refuse(&wrong, HAL_INVALID_ARGUMENT, "invalid IPC handle");
  wrong = handle;
  wrong.bytes[20] ^= 1;
  refuse(&wrong, HAL_NOT_FOUND, "cannot be opened");
  wrong = (ipc_handle_t){.size = handle.size};
  refuse(&wrong, HAL_INVALID_ARGUMENT, "invalid IPC handle");
  must(fake_api.memory_free(0, memory));
  refuse(&handle, HAL_NOT_FOUND, "has not freed the memory");
  must(fake_api.memory_free(0, other));
  close(other_memory);
  close(plain);
}

/* The process that owns the memory exits: mappings opened before remain valid, and nothing can be opened afterwards. */
Test(fake_ipc, memory_of_a_process_that_has_ended) {
  typedef struct shared_s {
    ipc_handle_t handle;
    atomic_int stage;
  } shared_t;
  shared_t *const shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(shared, MAP_FAILED);
  const pid_t child = fork();
  if (!child) {
    void *ptr = NULL;
    if (fake_api.memory_alloc(0, SIZE, 0, &ptr)) _exit(1);
    strcpy(ptr, "there");
    if (fake_api.ipc_export(0, ptr, 0, shared->handle.bytes, sizeof shared->handle.bytes, &shared->handle.size))
      _exit(2);
    atomic_store(&shared->stage, 1);
    for (;;) pause();
  }
  while (!atomic_load(&shared->stage)) {
    cr_assert_eq(waitpid(child, NULL, WNOHANG), 0);
    usleep(1000);
  }
  char *const opened = open_it(&shared->handle);
  cr_assert_str_eq(opened, "there");
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  cr_assert_str_eq(opened, "there");
  refuse(&shared->handle, HAL_NOT_FOUND, "check that the process is alive");
  must(fake_api.ipc_close(0, opened));
  munmap(shared, sizeof *shared);
}
