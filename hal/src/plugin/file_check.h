/* file_check.h: checks whether a file may be loaded into the process. Private to hal/src. */
#ifndef HAL_SRC_FILE_CHECK_H_
#define HAL_SRC_FILE_CHECK_H_

#include "hal/plugin.h"

/* Checks that only root and the user can have written the file at `path`, which is resolved and absolute: owners and
 * permissions of the file and its directories. HAL_ALLOW_UNSAFE_PLUGINS=1 disables the check. Errors: HAL_NOT_FOUND;
 * HAL_FAILED_PRECONDITION, with the file or directory, the other user, and what to do. */
hal_status_t hal_file_check_owner(const char *path);
/* Checks a file that is not a plugin; `what` is its name in messages, at most 40 bytes. */
hal_status_t hal_file_check_owner_of(const char *path, const char *what);

/* Checks that the file is a complete shared object for this machine and needs no sanitizer runtime that the process
 * lacks: the dynamic linker kills the process on a truncated file, and a sanitizer's runtime does so on a late load.
 * Errors: HAL_NOT_FOUND, HAL_INCOMPATIBLE. */
hal_status_t hal_file_check_elf(const char *path);

/* Returns the HAL_BUILD_* sanitizer bits that plugins in this process may have. */
uint64_t hal_process_sanitizers(void);

#endif /* HAL_SRC_FILE_CHECK_H_ */
