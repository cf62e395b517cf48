/* file_owner.c: who could have written a plugin's file. Loading a shared object runs its code, so a file that another
 * user can replace is that user's way into this process. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hal/log.h"
#include "hal/status.h"
#include "plugin/file_check.h"
#include "plugin/search_path.h"

static int check_is_off(void) {
  const char *const allow = hal_process_is_privileged() ? NULL : getenv("HAL_ALLOW_UNSAFE_PLUGINS");
  return allow && strcmp(allow, "1") == 0;
}

/* `sticky_is_safe`: in a sticky directory others cannot replace entries, only add their own. That is enough for the
 * directories above the plugin's, but not for the plugin's own. */
static hal_status_t check_one(const char *path, const char *what, int sticky_is_safe) {
  struct stat info;
  if (stat(path, &info))
    return hal_error_set(errno == ENOENT ? HAL_NOT_FOUND : HAL_FAILED_PRECONDITION, "cannot look at %s: %s", path,
                         strerror(errno));
  if (info.st_uid != 0 && info.st_uid != geteuid())
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "the %s %s belongs to user %u, who is neither root nor you; change its owner, or set "
                         "HAL_ALLOW_UNSAFE_PLUGINS=1 if you trust it",
                         what, path, (unsigned)info.st_uid);
  const int others_write = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (others_write && !(sticky_is_safe && (info.st_mode & S_ISVTX)))
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "the %s %s can be written by other users (mode %03o); run chmod go-w on it, or set "
                         "HAL_ALLOW_UNSAFE_PLUGINS=1 if you trust it",
                         what, path, (unsigned)(info.st_mode & 0777));
  return HAL_OK;
}

hal_status_t hal_file_check_owner(const char *path) {
  if (check_is_off()) return HAL_OK;
  HAL_RETURN_IF_ERROR(check_one(path, "plugin", 0));
  char directory[PATH_MAX];
  const size_t length = strlen(path);
  if (length >= sizeof directory)
    return hal_error_set(HAL_INVALID_ARGUMENT, "the plugin's path has %zu bytes, more than a path may have", length);
  memcpy(directory, path, length + 1);
  for (int own = 1;; own = 0) {
    char *const slash = strrchr(directory, '/');
    const int at_root = slash == directory;
    slash[at_root] = '\0'; /* the root keeps its slash */
    HAL_RETURN_IF_ERROR(check_one(directory, own ? "plugin's directory" : "directory above the plugin", !own));
    if (at_root) return HAL_OK;
  }
}
