/* text.h: formats text in fixed buffers, parses lists, and makes text valid UTF-8. Private to hal/src. */
#ifndef HAL_SRC_TEXT_H_
#define HAL_SRC_TEXT_H_

#include <stddef.h>

#include "hal/api.h"

/* Appends to the string in `text`, a buffer of `size` bytes; text that does not fit is cut. */
void hal_text_append(char *text, size_t size, const char *format, ...) HAL_PRINTF(3, 4);

/* Returns whether the comma-separated list `list` contains `item`. */
int hal_text_lists(const char *list, const char *item);

/* Replaces each byte that is not part of a UTF-8 character by '?', in place. Messages quote settings and paths, whose
 * bytes are arbitrary, and cut them; Python accepts only UTF-8. */
void hal_text_make_utf8(char *text);

#endif /* HAL_SRC_TEXT_H_ */
