/* pickle.h: writes values in Python's pickle format (protocol 2), which torch's analyzer of flight recorder dumps
 * reads. Private to hal/src/comm.
 *
 * A dictionary is: open, pairs of a text and a value, close. A list is: open, values, close. */
#ifndef HAL_SRC_COMM_PICKLE_H_
#define HAL_SRC_COMM_PICKLE_H_

#include <stddef.h>
#include <stdint.h>

typedef struct hal_pickle_s {
  char *data; /* owned by the caller; hal_free */
  size_t size, capacity;
  int failed; /* out of host memory; later calls write nothing */
} hal_pickle_t;

void hal_pickle_begin(hal_pickle_t *to);
void hal_pickle_end(hal_pickle_t *to);
void hal_pickle_text(hal_pickle_t *to, const char *text, size_t size);
void hal_pickle_string(hal_pickle_t *to, const char *text);
void hal_pickle_integer(hal_pickle_t *to, int64_t value);
void hal_pickle_real(hal_pickle_t *to, double value);
void hal_pickle_bool(hal_pickle_t *to, int value);
void hal_pickle_none(hal_pickle_t *to);
void hal_pickle_open_dict(hal_pickle_t *to);
void hal_pickle_close_dict(hal_pickle_t *to);
void hal_pickle_open_list(hal_pickle_t *to);
void hal_pickle_close_list(hal_pickle_t *to);
/* Makes a tuple of the last two values. */
void hal_pickle_pair(hal_pickle_t *to);

#endif /* HAL_SRC_COMM_PICKLE_H_ */
