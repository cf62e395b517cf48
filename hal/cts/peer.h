/* peer.h: a second process of a case. Private to hal/cts. */
#ifndef HAL_CTS_PEER_H_
#define HAL_CTS_PEER_H_

#include <sys/types.h>

#include "cts.h"

typedef struct cts_peer_s {
  cts_t *t;
  int socket;
  pid_t process; /* in the process that created it, else 0 */
} cts_peer_t;

/* Starts a process that runs `body`, and loads the plugin in both; skips the case if the plugin does not provide
 * `slot`. For cases of CTS_UNLOADED: initialized drivers do not survive a fork. A finding in either process ends
 * both. */
void cts_peer_both(cts_t *t, cts_peer_t *peer, void (*body)(cts_peer_t *peer), uint32_t slot);
/* Returns when the other process has ended. */
void cts_peer_end(cts_peer_t *peer);
/* Send a message to the other process, and receive one from it. */
void cts_peer_say(cts_peer_t *peer, const void *bytes, size_t size);
void cts_peer_hear(cts_peer_t *peer, void *bytes, size_t size);
/* Returns when both processes have called it. */
void cts_peer_meet(cts_peer_t *peer);

#endif /* HAL_CTS_PEER_H_ */
