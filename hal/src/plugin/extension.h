/* extension.h: extensions that a plugin and the host offer each other. Private to hal/src. */
#ifndef HAL_SRC_EXTENSION_H_
#define HAL_SRC_EXTENSION_H_

#include "plugin/plugin.h"

enum { HAL_MOST_EXTENSIONS = 64 };

/* Returns the error in a chain, for a message; NULL = none. */
const char *hal_extensions_wrong(const hal_extension_t *first);

#endif /* HAL_SRC_EXTENSION_H_ */
