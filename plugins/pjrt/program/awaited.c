/* awaited.c: predicts whether the caller will wait for a program at once, as in a loop that synchronizes each step.
 * Such a program runs in the calling thread, because waking the stream's thread, and then the caller, takes as long as
 * a small program. */
#include "../pjrt.h"

enum {
  SOON_NS = 100000, /* between a program and the synchronization that follows it */
  ENOUGH = 4        /* of equal intervals between synchronizations */
};

int pjrt_awaited_begin(pjrt_awaited_t *awaited) {
  awaited->count++;
  if (awaited->count > awaited->usual) awaited->equal = 0;
  return awaited->equal >= ENOUGH && awaited->count == awaited->usual;
}

void pjrt_awaited_end(pjrt_awaited_t *awaited, int64_t now) { awaited->ended = now; }

void pjrt_awaited_note(pjrt_awaited_t *awaited, int64_t now) {
  if (!awaited->count) return;
  awaited->equal = now - awaited->ended < SOON_NS && awaited->count == awaited->usual ? awaited->equal + 1 : 0;
  awaited->usual = awaited->count;
  awaited->count = 0;
}
