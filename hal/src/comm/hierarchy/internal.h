/* internal.h: the transport of one rank, and the declarations that its files share. Private to hal/src/comm/hierarchy.
 *
 * Hosts are numbered by their lowest ranks. The ranks of a host are its locals, in ascending order. The number of
 * columns is the number of ranks on the smallest host, at most HAL_HIER_COLUMNS. Column c connects local c of every
 * host. Data of local j of a host passes through column j % columns of that host. */
#ifndef HAL_SRC_COMM_HIERARCHY_INTERNAL_H_
#define HAL_SRC_COMM_HIERARCHY_INTERNAL_H_

#include <stdatomic.h>

#include "comm/comm.h"
#include "comm/hierarchy/hierarchy.h"
#include "comm/hierarchy/watch.h"
#include "comm/shm/arithmetic.h"
#include "hal/status.h"

enum {
  HAL_HIER_VERSION = 1, /* of the data that ranks exchange; incremented with every change */
  HAL_HIER_COLUMNS = 8,
  HAL_HIER_WHAT = 192,
};

/* Memory for intermediate results. */
enum {
  HAL_HIER_BUFFER_ALL,    /* for hal_hier_share; afterwards for arrays */
  HAL_HIER_BUFFER_PADDED, /* for hal_hier_share */
  HAL_HIER_BUFFER_WIDE,
  HAL_HIER_BUFFER_PART,
  HAL_HIER_BUFFER_TAKEN,
  HAL_HIER_BUFFER_RESULT,
  HAL_HIER_BUFFERS
};

/* ---- layout.c: which rank is on which host ---- */

typedef struct hal_hier_layout_s {
  int32_t rank, size, hosts, columns;
  int32_t host, local, locals; /* of this rank, and the number of ranks on its host */
  int32_t most;                /* ranks of the largest host */
  int32_t *host_of, *local_of; /* by rank */
  int32_t *first;              /* by host, with one more entry: where its ranks start in `order` */
  int32_t *order;              /* ranks by host and local */
} hal_hier_layout_t;

/* Computes the layout: `leaders[r]` is the lowest rank on the host of rank r. Freed by hal_hier_layout_free. */
hal_status_t hal_hier_layout_make(hal_hier_layout_t *layout, int32_t rank, int32_t size, const int32_t *leaders);
void hal_hier_layout_free(hal_hier_layout_t *layout);

static inline int32_t hal_hier_locals(const hal_hier_layout_t *layout, int32_t host) {
  return layout->first[host + 1] - layout->first[host];
}
static inline int32_t hal_hier_rank(const hal_hier_layout_t *layout, int32_t host, int32_t local) {
  return layout->order[layout->first[host] + local];
}
/* Returns the column that serves a rank. */
static inline int32_t hal_hier_column(const hal_hier_layout_t *layout, int32_t rank) {
  return layout->local_of[rank] % layout->columns;
}
/* Appends "ranks 1, 3" for those of a host. */
void hal_hier_append_host(const hal_hier_layout_t *layout, int32_t host, char *text, size_t size);

/* ---- meet.c: how the ranks find their hosts ---- */

/* Joins the ranks of each host by shared memory. `inner` has no `run` where this rank is alone on its host. */
hal_status_t hal_hier_meet(const hal_comm_hosts_t *config, const hal_hier_store_t *store, const char *forged_host,
                           int64_t deadline_ns, hal_hier_layout_t *layout, hal_comm_transport_t *inner);
/* Stores `own` and returns when all ranks have done so, with all values in the order of the ranks. `phase` names the
 * exchange. */
hal_status_t hal_hier_meet_share(const hal_comm_hosts_t *config, const hal_hier_store_t *store, const char *phase,
                                 int64_t deadline_ns, const void *own, size_t bytes, void *all);

/* ---- transport.c ---- */

typedef struct hal_hier_s {
  hal_hier_layout_t at;
  hal_hier_store_t store;
  hal_comm_transport_t inner, outer, messages; /* no `run`: this rank has none */
  int messages_are_outer;                      /* one rank on every host: the column has all ranks */
  int is_flat;                                 /* HAL_COMM_HOSTS_FLAT: `outer` runs whole collectives */
  int32_t pid;                                 /* of the process that created it */
  hal_comm_t *shape;                           /* has only a rank and a size, for the checks of comm/check.c */

  /* Used by the thread that runs collectives. */
  uint64_t sequence; /* collectives so far */
  void *buffers[HAL_HIER_BUFFERS];
  size_t buffer_bytes[HAL_HIER_BUFFERS];

  /* For fail.c. The failure is written once, under the watcher's lock. */
  hal_hier_watch_t *watch;
  atomic_int failed;
  hal_hier_words_t words;
} hal_hier_t;

/* One call of `run`. */
typedef struct hal_hier_run_s {
  hal_hier_t *hier;
  char what[HAL_HIER_WHAT]; /* "all_reduce #3 (float32, 10 elements)" */
  int64_t timeout_ns, deadline_ns;
  int64_t
      grace_ns; /* a wait for other hosts ends this much later than a wait for locals, whose error is more precise */
  int is_message;
  int late; /* all ranks of this host have made the call */
} hal_hier_run_t;

/* Returns the address `bytes` after `base`; `base` may be NULL. */
static inline void *hal_hier_at(const void *base, uint64_t bytes) {
  return base ? (unsigned char *)(uintptr_t)base + bytes : NULL;
}

/* Returns memory of at least `bytes`. Its content remains until the next call with the same `buffer`. 64 bytes more
 * than `bytes` may be read. */
hal_status_t hal_hier_buffer(hal_hier_run_t *run, int buffer, size_t bytes, void **out);
/* Frees the buffers that are too large to keep for the next call. */
void hal_hier_buffers_trim(hal_hier_t *hier);

/* ---- fail.c: the first failure of a transport ---- */

/* Returns the failure as the thread's error, or HAL_OK. */
hal_status_t hal_hier_failed(hal_hier_t *hier);
/* Stores a failure for all ranks, unless one is stored already, and ends what runs. Returns the stored failure. Never
 * waits. */
hal_status_t hal_hier_fail(hal_hier_t *hier, hal_status_t code, const char *text);
/* Stores a failure that another rank has stored: the other hosts have it already. */
hal_status_t hal_hier_adopt(hal_hier_t *hier, const hal_hier_words_t *words);
/* Stores the thread's error, which only this rank has. */
hal_status_t hal_hier_fail_by_last(hal_hier_run_t *run, hal_status_t code);
/* Ends a run for a failure of the transport within the host or between hosts, which is the thread's error. */
hal_status_t hal_hier_fail_inside(hal_hier_run_t *run, hal_status_t code);
hal_status_t hal_hier_fail_outside(hal_hier_run_t *run, hal_status_t code);

/* ---- step.c: one collective of a level ---- */

/* Runs a collective between the locals of this host; roots and arrays count locals. */
hal_status_t hal_hier_inner(hal_hier_run_t *run, hal_collective_t call);
/* Runs a collective of uint8 in this rank's column; roots and arrays count hosts. Ranks without a column do not call
 * it. */
hal_status_t hal_hier_outer(hal_hier_run_t *run, hal_collective_t call);
/* Runs a compared bracket by the only transport of HAL_COMM_HOSTS_FLAT. HAL_UNIMPLEMENTED: all ranks refuse it, and the
 * transport remains usable. */
hal_status_t hal_hier_whole(hal_hier_run_t *run, const hal_collective_t *calls, uint32_t count);
/* Exchanges `bytes` of every rank through the leaders. `*out_all`: the data in the order of the ranks, in a buffer,
 * valid until the next share. */
hal_status_t hal_hier_share(hal_hier_run_t *run, const void *own, size_t bytes, const void **out_all);

/* ---- compare.c: the ranks' calls, before data moves ---- */

/* A collective of a rank as the others see it. */
typedef struct hal_hier_entry_s {
  uint32_t op, reduce;
  int32_t dtype, root;
  uint64_t count;
  uint32_t uneven, refused;
} hal_hier_entry_t;

/* A collective that all ranks have called. */
typedef struct hal_hier_call_s {
  hal_collective_t desc;
  size_t size; /* bytes of an element */
  /* of all ranks: the counts that the rank sends to each rank, then those that it receives; NULL: all are
   * `desc.count` */
  uint64_t *arrays;
} hal_hier_call_t;

/* Compares a bracket with those of the other ranks. `out` has memory for `count` calls; hal_hier_calls_free frees them.
 * HAL_UNIMPLEMENTED: all ranks refuse the bracket, and the transport remains usable. */
hal_status_t hal_hier_compare(hal_hier_run_t *run, const hal_collective_t *calls, uint32_t count, hal_hier_call_t *out);
void hal_hier_calls_free(hal_hier_call_t *calls, uint32_t count);
/* Returns the elements that rank `from` has for rank `to`, for operators with blocks. */
uint64_t hal_hier_gives(const hal_hier_t *hier, const hal_hier_call_t *call, int32_t from, int32_t to);
/* Returns where the block for or from a rank starts in this rank's buffer, in elements. */
uint64_t hal_hier_send_at(const hal_hier_t *hier, const hal_hier_call_t *call, int32_t to);
uint64_t hal_hier_recv_at(const hal_hier_t *hier, const hal_hier_call_t *call, int32_t from);

/* ---- piece.c: a part of every block, for results in a bounded amount of memory ---- */

/* [at, at + most) of the block that rank `from` has for each rank; `from` -1: that each rank has for all. An element
 * has `unit` units. */
typedef struct hal_hier_piece_s {
  const hal_hier_call_t *call;
  int32_t from;
  uint64_t unit, at, most;
} hal_hier_piece_t;

/* Returns the first piece. The pieces of all ranks have at most `capacity` units. */
hal_hier_piece_t hal_hier_piece_first(const hal_hier_run_t *run, const hal_hier_call_t *call, int32_t from,
                                      uint64_t unit, uint64_t capacity);
/* Returns whether a block reaches into the piece. */
int hal_hier_piece_is_any(const hal_hier_run_t *run, const hal_hier_piece_t *piece);
/* Returns the units of a rank's block in the piece. */
uint64_t hal_hier_piece_of(const hal_hier_run_t *run, const hal_hier_piece_t *piece, int32_t rank);
/* Returns the units of the blocks of a host's ranks in a column in the piece. */
uint64_t hal_hier_piece_of_host(const hal_hier_run_t *run, const hal_hier_piece_t *piece, int32_t host, int32_t column);

/* ---- reduce.c, scatter.c, copy.c, exchange.c ---- */
hal_status_t hal_hier_run_reduction(hal_hier_run_t *run, const hal_hier_call_t *call);
hal_status_t hal_hier_run_reduce_scatter(hal_hier_run_t *run, const hal_hier_call_t *call);
hal_status_t hal_hier_run_broadcast(hal_hier_run_t *run, const hal_hier_call_t *call);
hal_status_t hal_hier_run_all_gather(hal_hier_run_t *run, const hal_hier_call_t *call);
/* ALL_TO_ALL, GATHER and SCATTER. */
hal_status_t hal_hier_run_exchange(hal_hier_run_t *run, const hal_hier_call_t *call);

#endif /* HAL_SRC_COMM_HIERARCHY_INTERNAL_H_ */
