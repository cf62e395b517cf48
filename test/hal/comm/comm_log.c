/* Tests of the log of collectives: the ring, its groups, and the file. test/python/distributed/desync.py reads the
   file in Python. */
#define _GNU_SOURCE /* memmem, usleep */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/log.h"
#include "comm/log_internal.h"
#include "hal/status.h"

static char file[64];
static char content[1 << 18];
static size_t size;

static void begin(void) { snprintf(file, sizeof file, "/tmp/hal-comm-log-%ld", (long)getpid()); }
static void end(void) { unlink(file); }

static void read_log(void) {
  cr_assert_eq(hal_comm_log_write(file), HAL_OK, "%s", hal_error_message());
  FILE *const stream = fopen(file, "rb");
  cr_assert(stream);
  size = fread(content, 1, sizeof content, stream);
  fclose(stream);
  cr_assert(size > 3 && size < sizeof content && !memcmp(content, "\x80\x02", 2) && content[size - 1] == '.');
}

static int has(const char *text) { return memmem(content, size, text, strlen(text)) != NULL; }

static uint64_t add(uint32_t group, const char *name, uint64_t sequence) {
  const int64_t sizes[2] = {3, (int64_t)sequence};
  const hal_comm_tensor_t tensors[2] = {{HAL_FLOAT32, 2, sizes}, {HAL_BFLOAT16, 1, sizes}};
  const hal_comm_entry_t entry = {.struct_size = sizeof entry,
                                  .group = group,
                                  .sequence = sequence,
                                  .name = name,
                                  .stack = "step\ttrain.py\t7\nbroken line\n",
                                  .input_count = 1,
                                  .output_count = 1,
                                  .tensors = tensors};
  return hal_comm_log_add(&entry, 1000000);
}

TestSuite(comm_log, .init = begin, .fini = end);

Test(comm_log, keeps_the_last_entries) {
  const uint64_t ranks[2] = {4, 7};
  uint32_t group, same;
  cr_assert_eq(hal_comm_log_configure(3, NULL), HAL_OK);
  cr_assert_eq(hal_comm_log_group("dp", "data parallel", ranks, 2, &group), HAL_OK);
  cr_assert_eq(hal_comm_log_group("dp", "data parallel", ranks, 2, &same), HAL_OK);
  cr_assert_eq(group, same);
  const char *const names[] = {"gloo:first", "gloo:second", "gloo:third", "gloo:fourth", "gloo:fifth"};
  uint64_t numbers[5];
  for (uint64_t i = 0; i < 5; i++) cr_assert_eq(numbers[i] = add(group, names[i], i + 1), i + 1);
  hal_comm_log_start(numbers[0]); /* overwritten: no effect */
  hal_comm_log_end(numbers[0], HAL_OK);
  read_log();
  for (int i = 0; i < 5; i++) cr_assert_eq(has(names[i]), i >= 2, "%s", names[i]);
  cr_assert(has("[4, 7]") && has("data parallel") && has("train.py") && has("float32") && has("bfloat16"));
  cr_assert(!has("broken line") && has("scheduled"));
  hal_comm_log_start(numbers[2]);
  hal_comm_log_start(numbers[3]);
  hal_comm_log_end(numbers[2], HAL_OK);
  hal_comm_log_end(numbers[3], HAL_ABORTED); /* stays "started" */
  read_log();
  cr_assert(memmem(content, size, "X\x09\0\0\0completed", 14));
  cr_assert(memmem(content, size, "X\x07\0\0\0started", 12) && memmem(content, size, "X\x09\0\0\0scheduled", 14));
}

static void add_with_stack(uint32_t group, const char *stack, uint32_t dims, const int64_t *sizes) {
  const hal_comm_tensor_t tensors[2] = {{HAL_FLOAT32, dims, sizes}, {HAL_FLOAT32, dims, sizes}};
  const hal_comm_entry_t entry = {.struct_size = sizeof entry,
                                  .group = group,
                                  .sequence = 1,
                                  .name = "gloo:all_reduce",
                                  .stack = stack,
                                  .input_count = 1,
                                  .output_count = 1,
                                  .tensors = tensors};
  hal_comm_log_add(&entry, 1000000);
}

/* Stacks of one length, more of them than the log remembers, and tensors of more sizes than an entry can contain. */
Test(comm_log, entries_share_equal_stacks) {
  enum { STACKS = 50, ENTRIES = 2 * STACKS };
  const uint64_t rank = 0;
  const int64_t sizes[7] = {1, 1, 1, 1, 1, 1, 12345};
  uint32_t group;
  char stack[32];
  cr_assert_eq(hal_comm_log_configure(ENTRIES, NULL), HAL_OK);
  cr_assert_eq(hal_comm_log_group("dp", "data parallel", &rank, 1, &group), HAL_OK);
  for (int round = 0; round < 3; round++)
    for (int i = 0; i < ENTRIES; i++) {
      snprintf(stack, sizeof stack, "line%02d\ttrain.py\t7\n", i / 2);
      add_with_stack(group, stack, i % 8, sizes);
    }
  const hal_comm_log_entry_t *const entries = hal_comm_log.entries;
  for (int i = 0; i < ENTRIES; i += 2) cr_assert_eq(entries[i].stack, entries[i + 1].stack, "entry %d", i);
  cr_assert_neq(entries[0].stack, entries[2].stack);
  read_log();
  for (int i = 0; i < STACKS; i++) {
    snprintf(stack, sizeof stack, "line%02d", i);
    cr_assert(has(stack), "%s", stack);
  }
  cr_assert(
      has("\x8a\x08"
          "90")); /* 12345 as an integer of 8 bytes */
  add_with_stack(group, NULL, 0, NULL);
  add_with_stack(group, "", 0, NULL);
  cr_assert(!entries[0].stack && !entries[1].stack);
  cr_assert_eq(hal_comm_log_configure(0, NULL), HAL_OK); /* frees all */
}

Test(comm_log, may_be_off) {
  cr_assert_eq(hal_comm_log_configure(0, NULL), HAL_OK);
  cr_assert_eq(add(0, "gloo:first", 1), 0);
  hal_comm_log_start(0);
  hal_comm_log_end(0, HAL_OK);
  read_log();
  cr_assert(has("entries") && !has("gloo:first"));
  cr_assert_eq(hal_comm_log_configure(UINT32_MAX, NULL), HAL_INVALID_ARGUMENT);
}

Test(comm_log, is_written_on_failure) {
  cr_assert_eq(hal_comm_log_configure(10, file), HAL_OK);
  hal_error_set(HAL_UNAVAILABLE, "the cause");
  hal_comm_log_failure();
  cr_assert_str_eq(hal_error_message(), "the cause");
  cr_assert_eq(access(file, R_OK), 0);
  cr_assert_eq(hal_comm_log_write("/nowhere/log"), HAL_UNAVAILABLE);
  cr_assert(strstr(hal_error_message(), "/nowhere/log"), "%s", hal_error_message());
  cr_assert_eq(hal_comm_log_configure(10, NULL), HAL_OK);
}

static void other(int number) { (void)number; }

static void wait_for_file(void) {
  for (int i = 0; i < 2000 && access(file, F_OK); i++) usleep(5000);
  cr_assert_eq(access(file, F_OK), 0, "no file within 10 s");
}

Test(comm_log, a_signal_writes_it) {
  struct sigaction present;
  const uint64_t rank = 0;
  uint32_t group;
  cr_assert_eq(hal_comm_log_group("dp", "data parallel", &rank, 1, &group), HAL_OK);
  add(group, "gloo:first", 1);
  cr_assert_eq(hal_comm_log_configure(2000, NULL), HAL_OK);
  cr_assert_eq(hal_comm_log_write_on(SIGUSR2), HAL_FAILED_PRECONDITION); /* no file */
  cr_assert_eq(hal_comm_log_configure(2000, file), HAL_OK);
  cr_assert_eq(hal_comm_log_write_on(SIGKILL), HAL_INVALID_ARGUMENT);
  signal(SIGUSR1, other);
  cr_assert_eq(hal_comm_log_write_on(SIGUSR1), HAL_FAILED_PRECONDITION, "%s", hal_error_message());
  for (int round = 0; round < 2; round++) {
    cr_assert_eq(hal_comm_log_write_on(SIGUSR2), HAL_OK, "%s", hal_error_message());
    cr_assert_eq(hal_comm_log_write_on(SIGUSR2), HAL_OK);
    raise(SIGUSR2);
    wait_for_file();
    read_log();
    cr_assert(has("gloo:first"));
    unlink(file);
    cr_assert_eq(hal_comm_log_write_on(0), HAL_OK);
    sigaction(SIGUSR2, NULL, &present);
    cr_assert_eq(present.sa_handler, SIG_DFL);
  }
}

Test(comm_log, a_forked_child_survives_the_signal) {
  int status;
  cr_assert_eq(hal_comm_log_configure(2000, file), HAL_OK);
  cr_assert_eq(hal_comm_log_write_on(SIGUSR2), HAL_OK, "%s", hal_error_message());
  const pid_t child = fork();
  if (!child) {
    raise(SIGUSR2);
    usleep(50000);
    _exit(access(file, F_OK) ? 0 : 1);
  }
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
