/* watch.h: the thread that uses the store while a transport exists. Private to hal/src/comm/hierarchy.
 *
 * A store on another host may not respond for minutes, for example after a connection was cut. Therefore only this
 * thread uses the store after the transport was created. So calls end in time, and the destruction of the transport,
 * too. The watcher stores the failure of its rank. While a call runs, it looks for failures of other ranks. When a
 * connection between hosts has failed, it finds which hosts still report. */
#ifndef HAL_SRC_COMM_HIERARCHY_WATCH_H_
#define HAL_SRC_COMM_HIERARCHY_WATCH_H_

#include <pthread.h>
#include <stdatomic.h>

#include "comm/hierarchy/store.h"

struct hal_hier_s;

/* Data of the transport and the thread; the last user frees it. */
typedef struct hal_hier_watch_s {
  atomic_int references;
  hal_hier_store_t store;
  void (*release)(void *context);
  void *context;
  pthread_t thread;
  int32_t hosts, host, ranks;

  pthread_mutex_t lock;    /* guards the fields below and the transport's failure */
  pthread_cond_t changed;  /* wakes the thread */
  pthread_cond_t done;     /* wakes the threads that wait for the watcher */
  struct hal_hier_s *hier; /* NULL after the end of the transport */
  int started, ending, ended;
  int sleeps; /* until a call runs */
  int adopts; /* uses `hier` without the lock */
  int messages_running;
  int64_t began_ns;   /* start of the collective that runs; 0 = none */
  int64_t queried_ns; /* when hal_hier_watch_query was last called; 0 = never */
  int waiters;        /* threads that wait for the message of another rank */
  int reported;       /* this host has reported; `present` has the other hosts */
  unsigned char *present;
  int publishes; /* the thread has to store `words` */
  hal_hier_words_t words;
} hal_hier_watch_t;

/* Creates the shared data, without a thread. `release` is called when the store is no longer used, and may be NULL.
 * Returns NULL if memory is exhausted; then `release` is not called. */
hal_hier_watch_t *hal_hier_watch_create(const hal_hier_store_t *store, void (*release)(void *), void *context);

/* Starts the thread. */
hal_status_t hal_hier_watch_start(hal_hier_watch_t *watch, struct hal_hier_s *hier);

/* Ends the thread, and releases `watch`. If the store does not respond within a second, the thread ends later, without
 * a wait. */
void hal_hier_watch_end(hal_hier_watch_t *watch);

/* Called around a call of `run`. */
void hal_hier_watch_run(hal_hier_watch_t *watch, int is_message, int begins);

/* Requests the thread to store a failure. The caller holds the lock. */
void hal_hier_watch_publish(hal_hier_watch_t *watch, const hal_hier_words_t *words);

/* Waits until the failure is stored, at most a fraction of a second: the process may end with the error. */
void hal_hier_watch_flush(hal_hier_watch_t *watch);

/* Reports this host to the others, and waits at most `time_ns` until a rank has stored a failure, which becomes the
 * transport's failure. Returns whether a rank has. */
int hal_hier_watch_wait(hal_hier_watch_t *watch, int64_t time_ns);

/* Makes the thread look for failures of other ranks for a second, also while no call runs. Never waits. */
void hal_hier_watch_query(hal_hier_watch_t *watch);

/* Returns whether a host has reported since this one did, for any host after the failure of a connection. */
int hal_hier_watch_sees(hal_hier_watch_t *watch, int32_t host);

#endif /* HAL_SRC_COMM_HIERARCHY_WATCH_H_ */
