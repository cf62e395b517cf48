/* memory_ipc.c: blocks that processes share, on the fake device: their owners, the time of their release, and
   invalid handles. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support.h"

enum { SIZE = 100000, BLOCKS = 1500 };

/* The state that the two processes share. */
typedef struct page_s {
  atomic_int stage;
  size_t size[4];
  uint8_t handle[4][HAL_MEMORY_SHARE_BYTES];
} page_t;
static page_t *page;

static void setup(void) {
  setenv("HAL_PLUGIN_PATH", PLUGIN_DIR, 1);
  page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(page, MAP_FAILED);
}
TestSuite(memory_ipc, .init = setup, .timeout = 60);

static void reach(int stage) { atomic_store(&page->stage, stage); }
static void await(int stage) {
  while (atomic_load(&page->stage) < stage) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void open_fake(void) { assert_ok(hal_registry_open("fake")); }

static hal_block_t *allocate(size_t size) {
  hal_block_t *block = NULL;
  assert_ok(hal_memory_allocate(0, NULL, size, &block));
  return block;
}

static void put(hal_block_t *block, const void *bytes, size_t size) {
  hal_stream_t *stream;
  assert_ok(hal_stream_current(0, &stream));
  assert_ok(hal_memory_copy(NULL, hal_memory_block_address(block), 0, bytes, HAL_HOST, size));
  assert_ok(hal_stream_synchronize(stream));
}

static void get(const hal_block_t *block, void *bytes, size_t size) {
  hal_stream_t *stream;
  assert_ok(hal_stream_current(0, &stream));
  assert_ok(hal_memory_copy(NULL, bytes, HAL_HOST, hal_memory_block_address(block), 0, size));
  assert_ok(hal_stream_synchronize(stream));
}

static int released, kept;
static void release(void *block) {
  released++;
  if (!kept) hal_memory_release(block);
}

/* Sends a block through a slot of the page. */
static void share(hal_block_t *block, int place) {
  assert_ok(
      hal_memory_share(block, NULL, release, block, page->handle[place], HAL_MEMORY_SHARE_BYTES, &page->size[place]));
}

static hal_status_t open_at(int place, hal_block_t **out_block) {
  return hal_memory_open(0, NULL, page->handle[place], page->size[place], out_block);
}

/* Runs `there` in another process. */
static pid_t start(void (*there)(void)) {
  const pid_t child = fork();
  if (child) return child;
  there();
  _exit(0);
}

static void end(pid_t child) {
  int status = 0;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the other process ended with 0x%x", (unsigned)status);
}

/* ---- */

static void receive_two(void) {
  hal_block_t *first = NULL, *second = NULL;
  char text[16];
  await(1);
  open_fake();
  assert_ok(open_at(0, &first));
  assert_ok(open_at(1, &second));
  cr_assert_eq(hal_memory_block_size(first), SIZE);
  get(first, text, sizeof text);
  cr_assert_str_eq(text, "the first");
  get(second, text, sizeof text);
  cr_assert_str_eq(text, "the second");
  put(first, "from there", 11);
  uint8_t handle[HAL_MEMORY_SHARE_BYTES];
  size_t size = 0;
  assert_fails(hal_memory_share(first, NULL, release, first, handle, sizeof handle, &size), HAL_FAILED_PRECONDITION,
               "received it from another one; copy it first");
  hal_block_t *again = NULL;
  assert_fails(open_at(0, &again), HAL_FAILED_PRECONDITION, "opened before");
  hal_memory_release(second);
  reach(2);
  await(3);
  hal_memory_release(first);
  reach(4);
  await(5);
}

Test(memory_ipc, a_block_is_kept_until_its_receiver_has_released_it) {
  const pid_t child = start(receive_two);
  open_fake();
  hal_block_t *const first = allocate(SIZE), *const second = allocate(SIZE);
  char text[16];
  put(first, "the first", 10);
  put(second, "the second", 11);
  share(first, 0);
  share(second, 1);
  cr_assert_eq(hal_memory_collect_shared(), 2, "sent and not opened");
  reach(1);
  await(2);
  cr_assert(hal_memory_collect_shared() == 1 && released == 1);
  get(first, text, sizeof text);
  cr_assert_str_eq(text, "from there");
  reach(3);
  await(4);
  hal_block_t *const large = allocate(8 << 20); /* a new segment: released blocks are processed first */
  cr_assert_eq(released, 2);
  hal_memory_release(large);
  cr_assert_eq(hal_memory_collect_shared(), 0);
  reach(5);
  end(child);
}

static void receive_and_hang(void) {
  hal_block_t *block = NULL;
  await(1);
  open_fake();
  assert_ok(open_at(0, &block));
  reach(2);
  for (;;) pause();
}

Test(memory_ipc, a_receiver_that_is_killed_has_released_its_blocks) {
  const pid_t child = start(receive_and_hang);
  open_fake();
  share(allocate(SIZE), 0);
  reach(1);
  await(2);
  cr_assert_eq(hal_memory_collect_shared(), 1);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  cr_assert(hal_memory_collect_shared() == 0 && released == 1);
}

static void send_and_end(void) {
  open_fake();
  hal_block_t *const block = allocate(SIZE);
  put(block, "it stays", 9);
  share(block, 0);
  share(allocate(8 << 20), 1); /* another segment */
  reach(1);
  await(2);
  kill(getpid(), SIGKILL);
}

Test(memory_ipc, a_sender_that_is_killed_leaves_what_was_opened) {
  const pid_t child = start(send_and_end);
  hal_block_t *block = NULL, *late = NULL;
  char text[16];
  await(1);
  open_fake();
  assert_ok(open_at(0, &block));
  reach(2);
  waitpid(child, NULL, 0);
  assert_fails(open_at(1, &late), HAL_NOT_FOUND, "cannot be opened");
  cr_assert_null(late);
  get(block, text, sizeof text);
  cr_assert_str_eq(text, "it stays");
  hal_memory_release(block);
}

Test(memory_ipc, the_process_that_sends_may_receive_and_decline) {
  open_fake();
  hal_block_t *const block = allocate(SIZE), *received = NULL;
  kept = 1; /* sent twice */
  share(block, 0);
  share(block, 1);
  cr_assert_eq(memcmp(page->handle[0], page->handle[1], HAL_MEMORY_SHARE_KEY_BYTES), 0);
  cr_assert_neq(memcmp(page->handle[0], page->handle[1], page->size[0]), 0);
  assert_ok(open_at(0, &received));
  cr_assert_eq(hal_memory_block_address(received), hal_memory_block_address(block));
  assert_ok(hal_memory_decline(page->handle[1], page->size[1]));
  assert_fails(hal_memory_decline(page->handle[0], page->size[0]), HAL_FAILED_PRECONDITION, "opened before");
  cr_assert_eq(hal_memory_collect_shared(), 1);
  hal_memory_release(received);
}

/* Slots are reused, and the handles exceed the capacity of one table. */
Test(memory_ipc, many_handles) {
  static uint8_t handles[BLOCKS][HAL_MEMORY_SHARE_BYTES];
  static size_t sizes[BLOCKS];
  open_fake();
  for (int round = 0; round < 3; round++) {
    released = 0;
    for (int i = 0; i < BLOCKS; i++) {
      hal_block_t *const block = allocate(64);
      assert_ok(hal_memory_share(block, NULL, release, block, handles[i], sizeof handles[i], &sizes[i]));
    }
    cr_assert_eq(hal_memory_collect_shared(), BLOCKS);
    for (int i = 0; i < BLOCKS; i++) assert_ok(hal_memory_decline(handles[i], sizes[i]));
    cr_assert(hal_memory_collect_shared() == 0 && released == BLOCKS);
  }
}

Test(memory_ipc, bytes_that_are_no_handle) {
  uint8_t bytes[HAL_MEMORY_SHARE_BYTES + 1] = {0};
  hal_block_t *opened = NULL;
  open_fake();
  hal_block_t *const block = allocate(SIZE);
  share(block, 0);
  for (size_t size = 0; size <= sizeof bytes; size++)
    assert_fails(hal_memory_open(0, NULL, bytes, size, &opened), HAL_INVALID_ARGUMENT, "invalid handle of memory");
  for (size_t size = 0; size < page->size[0]; size++)
    assert_fails(hal_memory_open(0, NULL, page->handle[0], size, &opened), HAL_INVALID_ARGUMENT, "invalid handle");
  /* Each byte is changed: the result is an error, or the memory itself if the byte is reserved, but never other
     memory. */
  for (size_t at = 0; at < page->size[0]; at++) {
    memcpy(bytes, page->handle[0], page->size[0]);
    bytes[at] ^= 0x55;
    if (hal_memory_open(0, NULL, bytes, page->size[0], &opened)) continue;
    cr_assert_eq(hal_memory_block_address(opened), hal_memory_block_address(block), "byte %zu", at);
    cr_assert_eq(hal_memory_block_size(opened), SIZE, "byte %zu", at);
    hal_memory_release(opened);
    kept = 1;
    share(block, 0);
  }
  cr_assert_eq(hal_memory_share(block, NULL, release, block, bytes, HAL_MEMORY_SHARE_BYTES - 1, &page->size[1]),
               HAL_INVALID_ARGUMENT);
}

Test(memory_ipc, memory_of_a_private_pool_and_adopted_memory) {
  hal_memory_pool_t *pool = NULL;
  hal_stream_t *stream = NULL;
  hal_block_t *adopted = NULL;
  static char bytes[SIZE];
  open_fake();
  assert_ok(hal_stream_acquire(0, 0, &stream));
  assert_ok(hal_memory_pool_create(0, &pool));
  assert_ok(hal_memory_pool_begin(pool, stream));
  hal_block_t *block = NULL;
  assert_ok(hal_memory_allocate(0, stream, SIZE, &block));
  assert_ok(hal_memory_pool_end(pool, stream));
  assert_fails(hal_memory_share(block, NULL, release, block, page->handle[0], HAL_MEMORY_SHARE_BYTES, &page->size[0]),
               HAL_FAILED_PRECONDITION, "private memory pool");
  assert_fails(hal_memory_check_share(block), HAL_FAILED_PRECONDITION, "private memory pool");
  assert_ok(hal_memory_adopt(0, NULL, bytes, SIZE, NULL, NULL, &adopted));
  assert_fails(hal_memory_check_share(adopted), HAL_UNIMPLEMENTED, "not memory of the caching allocator");
  hal_memory_release(adopted);
  hal_memory_release(block);
  hal_memory_pool_release(pool);
}
