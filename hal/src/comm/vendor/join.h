/* join.h: how ranks start to use a library together: they connect anew (join.c), or use the library of another
 * communicator (derive.c). Private to hal/src/comm/vendor. */
#ifndef HAL_SRC_COMM_VENDOR_JOIN_H_
#define HAL_SRC_COMM_VENDOR_JOIN_H_

#include "comm/vendor/vendor.h"

enum { HAL_COMM_WORDS = 400 };

/* What a rank publishes at each step. */
typedef struct hal_comm_shown_s {
  hal_status_t status; /* of the step; HAL_NOT_READY = it has not ended */
  uint32_t id_size;    /* of rank 0, at the first step of connecting */
  uint64_t host;       /* a number of the machine; 0 = unknown */
  int64_t process;     /* of the machine */
  hal_comm_info_t info;
  int32_t color, key, rank, size; /* of comm_split: the part, and this rank's position in it */
  char words[HAL_COMM_WORDS];     /* of a failure */
} hal_comm_shown_t;

typedef struct hal_comm_join_s {
  hal_comm_t *meeting; /* its transport exchanges what the ranks publish */
  hal_comm_t *comm;    /* the communicator that is to use the library; NULL on a rank that joins nothing */
  hal_comm_vendor_t *vendor;
  const char *origin; /* for the log: "" or ", split from group 'dp'" */
  int64_t end_ns;
  hal_comm_shown_t own;
  hal_comm_shown_t *all; /* of all ranks */
  unsigned char id[HAL_COMM_ID_BYTES];
} hal_comm_join_t;

/* Errors: those of hal_comm_connect_library that occur before the ranks exchange data. */
hal_status_t hal_comm_join_check(hal_comm_t *comm, uint32_t flags);
/* Creates a join, freed by hal_free. `timeout_ns` 0: the timeout of `meeting`. Aborts `meeting` if memory is
 * exhausted. */
hal_status_t hal_comm_join_begin(hal_comm_t *meeting, hal_comm_t *comm, int64_t timeout_ns, hal_comm_join_t **out_join);
/* Creates the library's part of a communicator, without a handle. hal_comm_join_drop frees it. */
hal_status_t hal_comm_join_make(hal_comm_t *comm, hal_plugin_t *plugin, uint32_t flags, hal_comm_vendor_t **out);
/* Frees it with its handle, without the other ranks; NULL is allowed. */
void hal_comm_join_drop(hal_comm_vendor_t *vendor);
/* Returns the descriptor of the new communicator, without id, rank and size. */
hal_comm_desc_t hal_comm_join_desc(const hal_comm_join_t *join, const hal_comm_info_t *info);
/* Sets what this rank publishes: a step's status, with the thread's message if it is a failure. */
void hal_comm_join_show(hal_comm_join_t *join, hal_status_t status);
/* Publishes it to all ranks. Returns HAL_OK when all ranks have completed the step, HAL_NOT_READY when one has not,
 * HAL_UNIMPLEMENTED when a rank has failed; or the transport's failure, which ends `meeting`. */
hal_status_t hal_comm_join_exchange(hal_comm_join_t *join);
/* Waits until the library's communicator is ready on all ranks, which call it the same number of times. */
hal_status_t hal_comm_join_follow(hal_comm_join_t *join);
/* From now on the library runs the communicator's collectives. Returns HAL_OK. */
hal_status_t hal_comm_join_use(hal_comm_join_t *join);

#endif /* HAL_SRC_COMM_VENDOR_JOIN_H_ */
