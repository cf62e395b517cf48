/* peer.c: see peer.h. */
#define _GNU_SOURCE /* strsignal */
#include "peer.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The other process has ended: with a verdict, or by a crash. */
static CTS_NORETURN void other_is_gone(cts_peer_t *peer) {
  cts_page_t *const page = peer->t->page;
  const uint32_t slot = atomic_load(&page->slot), last = atomic_load(&page->last_slot);
  int status = 0;
  if (peer->process) waitpid(peer->process, &status, 0);
  if (atomic_load(&page->verdict) != CTS_NONE || !peer->process) _exit(0);
  cts_fail(peer->t, "the second process was ended by %s, %s %s",
           WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "the plugin", slot < HAL_SLOT_COUNT ? "in" : "after",
           cts_slot_name(slot < HAL_SLOT_COUNT ? slot : last));
}

void cts_peer_say(cts_peer_t *peer, const void *bytes, size_t size) {
  if (send(peer->socket, bytes, size, MSG_NOSIGNAL) != (ssize_t)size) other_is_gone(peer);
}

void cts_peer_hear(cts_peer_t *peer, void *bytes, size_t size) {
  ssize_t got;
  while ((got = recv(peer->socket, bytes, size, MSG_WAITALL)) < 0 && errno == EINTR) {
  }
  if (got != (ssize_t)size) other_is_gone(peer);
}

void cts_peer_meet(cts_peer_t *peer) {
  char here = 1;
  cts_peer_say(peer, &here, 1);
  cts_peer_hear(peer, &here, 1);
}

static void begin(cts_t *t, cts_peer_t *peer, void (*body)(cts_peer_t *peer)) {
  int sockets[2];
  *peer = (cts_peer_t){.t = t};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets)) cts_fail(t, "error of the suite: no sockets");
  const pid_t process = fork();
  if (process < 0) cts_fail(t, "error of the suite: no second process can be made");
  peer->process = process;
  peer->socket = sockets[process ? 0 : 1];
  close(sockets[process ? 1 : 0]);
  if (process) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  cts_peer_meet(peer); /* they share the page, so they start one after the other */
  cts_start(t);
  cts_peer_meet(peer);
  body(peer);
  char here = 1;
  cts_peer_say(peer, &here, 1);
  _exit(0);
}

void cts_peer_both(cts_t *t, cts_peer_t *peer, void (*body)(cts_peer_t *peer), uint32_t slot) {
  begin(t, peer, body);
  cts_start(t);
  if (!cts_provides(t, slot)) cts_skip(t, "the plugin does not provide %s", cts_slot_name(slot));
  cts_peer_meet(peer);
  cts_peer_meet(peer);
}

void cts_peer_end(cts_peer_t *peer) {
  char here = 1;
  int status = 0;
  cts_peer_hear(peer, &here, 1);
  waitpid(peer->process, &status, 0);
  close(peer->socket);
}
