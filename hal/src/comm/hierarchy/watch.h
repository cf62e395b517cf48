/* watch.h: the thread that uses the store while a transport exists. Private to hal/src/comm/hierarchy.
 *
 * A store that lies on another host may not answer for minutes, for example when a connection was cut. No other thread
 * uses it, therefore, once the transport is created: calls end in time, and so does the end of the transport. The
 * watcher stores the failure of its rank, looks for those of others while a call runs, and finds out which hosts still
 * report when a connection between hosts has failed. */
#ifndef HAL_SRC_COMM_HIERARCHY_WATCH_H_
#define HAL_SRC_COMM_HIERARCHY_WATCH_H_

#include <pthread.h>
#include <stdatomic.h>

#include "comm/hierarchy/store.h"

struct hal_hier_s;

/* What the transport and the thread share; freed by the last of them. */
typedef struct hal_hier_watch_s {
  atomic_int references;
  hal_hier_store_t store;
  void (*release)(void *context);
  void *context;
  pthread_t thread;
  int32_t hosts, host, ranks;

  pthread_mutex_t lock;    /* of what follows, and of the transport's failure */
  pthread_cond_t changed;  /* wakes the thread */
  pthread_cond_t done;     /* wakes those who wait for it */
  struct hal_hier_s *hier; /* NULL after the end of the transport */
  int started, ending, ended;
  int sleeps; /* until a call runs */
  int adopts; /* uses `hier` without the lock */
  int messages_running;
  int64_t began_ns;   /* of the collective that runs; 0 = none */
  int64_t queried_ns; /* when hal_hier_watch_query was last called; 0 = never */
  int asks;           /* threads that wait for the words of other ranks */
  int reported;       /* this host has reported, as the others have by `present` */
  unsigned char *present;
  int publishes; /* `words` are to be stored */
  hal_hier_words_t words;
} hal_hier_watch_t;

/* Creates what is shared, without a thread. `release` is called when the store is not used any more, and may be
 * NULL. Returns NULL without memory, and `release` is not called. */
hal_hier_watch_t *hal_hier_watch_create(const hal_hier_store_t *store, void (*release)(void *), void *context);

/* Starts the thread. */
hal_status_t hal_hier_watch_start(hal_hier_watch_t *watch, struct hal_hier_s *hier);

/* Ends the thread, or leaves it to itself where the store does not answer within a second; releases `watch`. */
void hal_hier_watch_end(hal_hier_watch_t *watch);

/* Around a call of `run`. */
void hal_hier_watch_run(hal_hier_watch_t *watch, int is_message, int begins);

/* Has the thread store a failure. The lock is held. */
void hal_hier_watch_publish(hal_hier_watch_t *watch, const hal_hier_words_t *words);

/* Waits, for a fraction of a second at most, until the failure is stored: the process may end with the error. */
void hal_hier_watch_flush(hal_hier_watch_t *watch);

/* Reports this host to the others and waits, at most for `time_ns`, until a rank has stored a failure, which the
 * transport has then, too. Returns whether it has. */
int hal_hier_watch_ask(hal_hier_watch_t *watch, int64_t time_ns);

/* Has the thread look for failures of other ranks for a second, also while no call runs. Never waits. */
void hal_hier_watch_query(hal_hier_watch_t *watch);

/* Returns whether a host has reported since this one did; any host after the failure of a connection. */
int hal_hier_watch_sees(hal_hier_watch_t *watch, int32_t host);

#endif /* HAL_SRC_COMM_HIERARCHY_WATCH_H_ */
