/* store.h: the values that the ranks of a transport exchange through the store. Private to hal/src/comm/hierarchy. */
#ifndef HAL_SRC_COMM_HIERARCHY_STORE_H_
#define HAL_SRC_COMM_HIERARCHY_STORE_H_

#include <stdatomic.h>

#include "hal/comm.h"

enum {
  HAL_HIER_TEXT = 640, /* bytes of a failure's text: the transports add theirs */
  HAL_HIER_NAME = 128,
  HAL_HIER_KEY = 256,
};

/* The caller's store, and the keys of one transport in it. */
typedef struct hal_hier_store_s {
  hal_comm_store_t table;
  char name[HAL_HIER_NAME];
} hal_hier_store_t;

/* A failure as it is stored. */
typedef struct hal_hier_words_s {
  int32_t code; /* hal_status_t */
  char text[HAL_HIER_TEXT];
} hal_hier_words_t;

/* The context of a store whose `get` fails as soon as a rank has failed. */
typedef struct hal_hier_guard_s {
  const hal_hier_store_t *store;
  _Atomic int64_t looked_ns; /* time of the last read of the failure */
} hal_hier_guard_t;

hal_comm_store_t hal_hier_guarded(hal_hier_guard_t *guard);
/* Stores a value under a key of the transport. */
hal_status_t hal_hier_store_set(const hal_hier_store_t *store, const char *key, const void *value, size_t size);
/* Returns whether the key has a value of this size after at most `timeout_ns`, and copies it. */
int hal_hier_store_look(const hal_hier_store_t *store, const char *key, int64_t timeout_ns, void *out, size_t size);
/* Returns whether a rank has stored a failure, and copies it. */
int hal_hier_store_failed(const hal_hier_store_t *store, hal_hier_words_t *out);
/* Stores this failure, unless there is one already. Errors of the store are not reported: the ranks have their own
 * timeouts. */
void hal_hier_store_fail(const hal_hier_store_t *store, hal_status_t code, const char *text);

#endif /* HAL_SRC_COMM_HIERARCHY_STORE_H_ */
