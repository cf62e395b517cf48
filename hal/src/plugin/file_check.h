/* file_check.h: may this file be loaded into the process? Private to hal/src. */
#ifndef HAL_SRC_FILE_CHECK_H_
#define HAL_SRC_FILE_CHECK_H_

#include "hal/plugin.h"

/* Checks that nobody but root and the user can have written the file at `path`, which is resolved and absolute: owners
 * and permissions of the file and its directories. HAL_ALLOW_UNSAFE_PLUGINS=1 turns the check off. Errors:
 * HAL_NOT_FOUND; HAL_FAILED_PRECONDITION, naming what is writable by whom, and the cure. */
hal_status_t hal_file_check_owner(const char *path);
/* The same of a file that is no plugin; `what` names it in messages, at most 40 bytes. */
hal_status_t hal_file_check_owner_of(const char *path, const char *what);

/* Checks that the file is a whole shared object for this machine and asks for no sanitizer runtime that the process
 * lacks: the dynamic linker kills the process on a truncated file, and a sanitizer's runtime on a late load. Errors:
 * HAL_NOT_FOUND, HAL_INCOMPATIBLE. */
hal_status_t hal_file_check_elf(const char *path);

/* The HAL_BUILD_* sanitizer bits that plugins in this process may carry. */
uint64_t hal_process_sanitizers(void);

#endif /* HAL_SRC_FILE_CHECK_H_ */
