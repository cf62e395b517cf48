/* semaphore_ipc.c: timeline semaphores between two processes, and their handles. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hal/status.h"
#include "peer.h"
#include "semaphore.h"

enum { ROUNDS = 50 };

#define A_WHILE_NS INT64_C(60000000000)

typedef struct handle_s {
  size_t size;
  uint8_t bytes[256];
} handle_t;

static handle_t export(cts_t *t, hal_plugin_semaphore_t *semaphore) {
  handle_t handle = {.size = 0};
  CTS_OK(t, semaphore_export, semaphore, 0, handle.bytes, sizeof handle.bytes, &handle.size);
  CTS_CHECK(t, handle.size && handle.size <= sizeof handle.bytes, "a handle has %zu bytes", handle.size);
  return handle;
}

static hal_plugin_semaphore_t *open_it(cts_t *t, const handle_t *handle) {
  hal_plugin_semaphore_t *semaphore = NULL;
  CTS_OK(t, semaphore_open, t->device, handle->bytes, handle->size, 0, &semaphore);
  CTS_CHECK(t, semaphore, "semaphore_open returned HAL_OK and no semaphore");
  return semaphore;
}

/* ---- two processes ---- */

/* The other side: opens the handles that it receives, and takes turns with the first process, by its streams and by its
 * host. */
static void take_turns(cts_peer_t *peer) {
  cts_t *const t = peer->t;
  handle_t handles[3];
  hal_plugin_semaphore_t *semaphores[3];
  hal_plugin_stream_t *const stream = cts_stream(t);
  CTS_JUDGE(t, semaphore_open, "Opens a semaphore of another process");
  for (int i = 0; i < 3; i++) {
    cts_peer_hear(peer, &handles[i], sizeof handles[i]);
    semaphores[i] = open_it(t, &handles[i]);
  }
  cts_semaphore_check(t, semaphores[0], 3, "which another process made it with");
  CTS_OK(t, semaphore_set, semaphores[0], 4);
  cts_peer_meet(peer); /* set */
  CTS_STATUS(t, HAL_OK, semaphore_wait, semaphores[0], 5, A_WHILE_NS);
  for (uint64_t i = 0; i < ROUNDS; i++) {
    CTS_OK(t, stream_wait_semaphore, stream, semaphores[1], i + 1);
    CTS_OK(t, stream_signal_semaphore, stream, semaphores[2], i + 1);
  }
  cts_sync(t, stream);
  cts_peer_meet(peer); /* took turns */
  CTS_JUDGE(t, semaphore_set, "each waiter, host or stream");
  if (cts_is_async(t)) {
    CTS_OK(t, stream_wait_semaphore, stream, semaphores[0], 10);
    CTS_STATUS(t, HAL_NOT_READY, stream_query, stream);
  }
  cts_peer_meet(peer); /* waits */
  CTS_STATUS(t, HAL_ABORTED, semaphore_wait, semaphores[0], 10, A_WHILE_NS);
  const hal_status_t status = cts_stream_synchronize(t, stream),
                     expected = cts_is_async(t) && CTS_PROVIDES(t, stream_wait_semaphore) ? HAL_ABORTED : HAL_OK;
  CTS_CHECK(t, status == expected,
            "stream_synchronize returned %s instead of %s for a semaphore that another process poisoned",
            hal_status_name(status), hal_status_name(expected));
  cts_peer_meet(peer); /* destroyed there */
  hal_plugin_semaphore_t *gone = NULL;
  CTS_JUDGE(t, semaphore_open, "HAL_NOT_FOUND = the semaphore or its process has ended");
  CTS_STATUS(t, HAL_NOT_FOUND, semaphore_open, t->device, handles[1].bytes, handles[1].size, 0, &gone);
  CTS_JUDGE(t, semaphore_destroy, "those of other processes, stay valid");
  CTS_OK(t, semaphore_set, semaphores[1], 1000);
  cts_semaphore_check(t, semaphores[1], 1000, "of a semaphore that its maker has destroyed");
  for (int i = 0; i < 3; i++) CTS_OK(t, semaphore_destroy, semaphores[i]);
}

void cts_case_semaphore_processes(cts_t *t) {
  static cts_peer_t peer;
  cts_peer_both(t, &peer, take_turns, HAL_SLOT_memory_copy); /* which each plugin has: the default is tested, too */
  hal_plugin_semaphore_t *semaphores[3];
  hal_plugin_stream_t *const stream = cts_stream(t);
  CTS_JUDGE(t, semaphore_export, "Creates a handle for a semaphore");
  for (int i = 0; i < 3; i++) {
    semaphores[i] = cts_semaphore(t, i ? 0 : 3, HAL_SEMAPHORE_INTERPROCESS);
    const handle_t handle = export(t, semaphores[i]);
    cts_peer_say(&peer, &handle, sizeof handle);
  }
  cts_peer_meet(&peer);
  CTS_JUDGE(t, semaphore_open, "Opens a semaphore of another process");
  cts_semaphore_check(t, semaphores[0], 4, "which another process has set");
  CTS_OK(t, semaphore_set, semaphores[0], 5);
  for (uint64_t i = 0; i < ROUNDS; i++) {
    CTS_OK(t, stream_signal_semaphore, stream, semaphores[1], i + 1);
    CTS_OK(t, stream_wait_semaphore, stream, semaphores[2], i + 1);
  }
  cts_sync(t, stream);
  cts_semaphore_check(t, semaphores[2], ROUNDS, "which streams of another process have raised");
  cts_peer_meet(&peer);
  cts_peer_meet(&peer);
  CTS_OK(t, semaphore_set, semaphores[0], HAL_SEMAPHORE_POISON);
  for (int i = 1; i < 3; i++) CTS_OK(t, semaphore_destroy, semaphores[i]);
  cts_peer_meet(&peer);
  cts_peer_end(&peer);
  CTS_OK(t, semaphore_destroy, semaphores[0]);
}

/* ---- handles ---- */

void cts_case_semaphore_export(cts_t *t) {
  hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, 1, HAL_SEMAPHORE_INTERPROCESS), *const own =
                                                                                                 cts_semaphore(t, 1, 0);
  const handle_t handle = export(t, semaphore);
  uint8_t bytes[sizeof handle.bytes];
  memset(bytes, 0xA5, sizeof bytes);
  for (int round = 0; round < 4; round++) {
    const size_t room = (const size_t[]){0, 1, handle.size - 1, handle.size}[round];
    size_t size = 0, written = 0;
    const hal_status_t status = cts_semaphore_export(t, semaphore, 0, room ? bytes : NULL, room, &size);
    CTS_CHECK(t, !status && size == handle.size,
              "a handle of %zu bytes: a buffer of %zu bytes returned status %d, %zu bytes", handle.size, room,
              (int)status, size);
    for (size_t i = room < size ? 0 : size; i < sizeof bytes; i++) written += bytes[i] != 0xA5;
    CTS_CHECK(t, !written, "a handle of %zu bytes was written to a buffer of %zu", handle.size, room);
  }
  CTS_JUDGE(t, semaphore_export, "HAL_FAILED_PRECONDITION = created without the flag");
  size_t size = 0;
  CTS_STATUS(t, HAL_FAILED_PRECONDITION, semaphore_export, own, 0, bytes, sizeof bytes, &size);
  CTS_OK(t, semaphore_destroy, semaphore);
  CTS_OK(t, semaphore_destroy, own);
}

static void refuse(cts_t *t, const handle_t *handle, size_t size, int may_be_gone, const char *what) {
  hal_plugin_semaphore_t *semaphore = NULL;
  const hal_status_t status = cts_semaphore_open(t, t->device, handle->bytes, size, 0, &semaphore);
  CTS_CHECK(t, !semaphore && (status == HAL_INVALID_ARGUMENT || (may_be_gone && status == HAL_NOT_FOUND)),
            "semaphore_open of %s returned %s", what, hal_status_name(status));
}

/* Invalid handles, and those with the numbers of other descriptors, which this process opens for the test. Each word of
 * a handle may be the number of a descriptor. */
void cts_case_semaphore_handles(cts_t *t) {
  int pipes[2], sockets[2];
  if (pipe2(pipes, O_CLOEXEC) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
    cts_fail(t, "error of the suite: no pipe and no sockets");
  const int zero = open("/dev/zero", O_RDWR | O_CLOEXEC), file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const int files[] = {pipes[0], pipes[1], sockets[0], zero, file, 0, 1, 2};
  hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, 1, HAL_SEMAPHORE_INTERPROCESS);
  const handle_t handle = export(t, semaphore);
  handle_t wrong = {.size = handle.size};
  refuse(t, &wrong, wrong.size, 0, "a handle of zeros");
  for (size_t size = 0; size < handle.size; size++) refuse(t, &handle, size, 0, "a handle that was cut");
  refuse(t, &handle, handle.size + 1, 0, "a handle with a byte more");
  for (uint64_t seed = 0; seed < 200; seed++) {
    cts_noise(wrong.bytes, wrong.size, seed);
    refuse(t, &wrong, wrong.size, 1, "random bytes");
  }
  for (size_t at = 0; at + 4 <= handle.size; at += 4)
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
      wrong = handle;
      if (!memcmp(wrong.bytes + at, &files[i], 4)) continue;
      memcpy(wrong.bytes + at, &files[i], 4);
      hal_plugin_semaphore_t *other = NULL;
      const hal_status_t status = cts_semaphore_open(t, t->device, wrong.bytes, wrong.size, 0, &other);
      CTS_CHECK(t, status == HAL_INVALID_ARGUMENT || status == HAL_NOT_FOUND || status == HAL_OK,
                "semaphore_open of a handle with another word at %zu returned %s", at, hal_status_name(status));
      if (status) continue;
      CTS_OK(t, semaphore_set, semaphore, 5); /* a word without a meaning: the semaphore is the same */
      cts_semaphore_check(t, other, 5, "of a handle that was changed in a word, and opened all the same");
      CTS_OK(t, semaphore_destroy, other);
    }
  char byte = 'x';
  CTS_CHECK(t, write(pipes[1], &byte, 1) == 1 && read(pipes[0], &byte, 1) == 1 && byte == 'x',
            "a pipe was used by semaphore_open, which a handle with a wrong number named");
  CTS_OK(t, semaphore_destroy, semaphore);
}

/* ---- flags ---- */

static hal_status_t create_with(cts_t *t, uint32_t flags) {
  hal_plugin_semaphore_t *semaphore = NULL;
  const hal_status_t status = cts_semaphore_create(t, t->device, 0, flags, &semaphore);
  return semaphore ? HAL_OK : status;
}
static hal_status_t export_with(cts_t *t, uint32_t flags) {
  handle_t handle;
  return cts_semaphore_export(t, t->scratch, flags, handle.bytes, sizeof handle.bytes, &handle.size);
}
static handle_t the_handle;
static hal_status_t open_with(cts_t *t, uint32_t flags) {
  hal_plugin_semaphore_t *semaphore = NULL;
  const hal_status_t status = cts_semaphore_open(t, t->device, the_handle.bytes, the_handle.size, flags, &semaphore);
  return semaphore ? HAL_OK : status;
}

void cts_case_flags_semaphore(cts_t *t) {
  cts_refuses_flags(t, HAL_SEMAPHORE_INTERPROCESS, create_with);
  hal_plugin_semaphore_t *const semaphore = cts_semaphore(t, 0, HAL_SEMAPHORE_INTERPROCESS);
  t->scratch = semaphore;
  CTS_JUDGE(t, semaphore_export, "An unknown flag is HAL_UNIMPLEMENTED");
  cts_refuses_flags(t, 0, export_with);
  the_handle = export(t, semaphore);
  CTS_JUDGE(t, semaphore_open, "An unknown flag is HAL_UNIMPLEMENTED");
  cts_refuses_flags(t, 0, open_with);
  CTS_OK(t, semaphore_destroy, semaphore);
}
