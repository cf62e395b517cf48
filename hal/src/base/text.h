/* text.h: formats text in fixed buffers, and parses lists. Private to hal/src. */
#ifndef HAL_SRC_TEXT_H_
#define HAL_SRC_TEXT_H_

#include <stddef.h>

#include "hal/api.h"

/* Appends to the string in `text`, a buffer of `size` bytes; text that does not fit is cut. */
void hal_text_append(char *text, size_t size, const char *format, ...) HAL_PRINTF(3, 4);

/* Returns whether the comma-separated list `list` contains `item`. */
int hal_text_lists(const char *list, const char *item);

#endif /* HAL_SRC_TEXT_H_ */
