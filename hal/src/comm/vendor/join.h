/* join.h: how ranks come to use a library together: connecting anew (join.c), or by the library of another communicator
 * (derive.c). Private to hal/src/comm/vendor. */
#ifndef HAL_SRC_COMM_VENDOR_JOIN_H_
#define HAL_SRC_COMM_VENDOR_JOIN_H_

#include "comm/vendor/vendor.h"

enum { HAL_COMM_WORDS = 400 };

/* What a rank shows to the others at each step. */
typedef struct hal_comm_shown_s {
  hal_status_t status; /* of the step; HAL_NOT_READY = it goes on */
  uint32_t id_size;    /* of rank 0, at the first step of connecting */
  uint64_t host;       /* a number of the machine; 0 = unknown */
  hal_comm_info_t info;
  int32_t color, key, rank, size; /* of comm_split: the part, and this rank's place in it */
  char words[HAL_COMM_WORDS];     /* of a failure */
} hal_comm_shown_t;

typedef struct hal_comm_join_s {
  hal_comm_t *meeting; /* the ranks exchange what they show over its transport */
  hal_comm_t *comm;    /* that is to use the library; NULL on a rank that joins nothing */
  hal_comm_vendor_t *vendor;
  const char *origin; /* for the log: "" or ", split from group 'dp'" */
  int64_t end_ns;
  hal_comm_shown_t own;
  hal_comm_shown_t *all; /* of the ranks */
  unsigned char id[HAL_COMM_ID_BYTES];
} hal_comm_join_t;

/* Errors: as hal_comm_connect_library, before the ranks exchange anything. */
hal_status_t hal_comm_join_check(hal_comm_t *comm, uint32_t flags);
/* Creates a join, freed by hal_free. `timeout_ns` 0: that of `meeting`, which is aborted where memory is missing. */
hal_status_t hal_comm_join_begin(hal_comm_t *meeting, hal_comm_t *comm, int64_t timeout_ns, hal_comm_join_t **out_join);
/* Creates the part of a communicator that a library runs, without a handle; dropped by hal_comm_join_drop. */
hal_status_t hal_comm_join_make(hal_comm_t *comm, hal_plugin_t *plugin, uint32_t flags, hal_comm_vendor_t **out);
/* Frees it with its handle, without the other ranks; NULL is allowed. */
void hal_comm_join_drop(hal_comm_vendor_t *vendor);
/* Returns the descriptor of the new communicator, without id, rank and size. */
hal_comm_desc_t hal_comm_join_desc(const hal_comm_join_t *join, const hal_comm_info_t *info);
/* Sets what this rank shows: a step's status, with the thread's message where it is a failure. */
void hal_comm_join_show(hal_comm_join_t *join, hal_status_t status);
/* Shows it to all ranks. Returns HAL_OK when the step is done on all of them, HAL_NOT_READY when it goes on,
 * HAL_UNIMPLEMENTED when a rank has failed; or the transport's failure, which ends `meeting`. */
hal_status_t hal_comm_join_exchange(hal_comm_join_t *join);
/* Waits until the library's communicator is ready on all ranks, which call it the same number of times. */
hal_status_t hal_comm_join_follow(hal_comm_join_t *join);
/* From now on the library runs the communicator's collectives. Returns HAL_OK. */
hal_status_t hal_comm_join_use(hal_comm_join_t *join);

#endif /* HAL_SRC_COMM_VENDOR_JOIN_H_ */
