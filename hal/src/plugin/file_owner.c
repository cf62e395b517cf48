/* file_owner.c: who could have written a plugin's file. Loading a shared object runs its code, so a file that another
 * user can replace is that user's way into this process. */
#define _DEFAULT_SOURCE /* getpwent_r, getgrgid_r */
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
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

/* Whether any other user than `owner` and root has the group as the one of their files, by the list of users. */
static int is_primary_group_of_others(gid_t group, uid_t owner) {
  char room[4096];
  struct passwd user, *found = NULL;
  int others = 0;
  setpwent();
  while (!others && getpwent_r(&user, room, sizeof room, &found) == 0 && found)
    others = found->pw_gid == group && found->pw_uid != owner && found->pw_uid != 0;
  endpwent();
  return others;
}

static int is_name_of(const char *name, uid_t user) {
  char room[4096];
  struct passwd entry, *found = NULL;
  return getpwnam_r(name, &entry, room, sizeof room, &found) == 0 && found &&
         (found->pw_uid == user || found->pw_uid == 0);
}

/* Whether a group has no member but the owner and root. Where each user has a group of their own (umask 002), their files may be
 * written by that group, which is nobody else. A group that cannot be looked up is no such group. */
static int is_private_group(gid_t group, uid_t owner) {
  char room[16384];
  struct group entry, *found = NULL;
  if (getgrgid_r(group, &entry, room, sizeof room, &found) || !found) return 0;
  for (char **member = found->gr_mem; *member; member++)
    if (!is_name_of(*member, owner)) return 0;
  return !is_primary_group_of_others(group, owner);
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
  const int others_write =
      (info.st_mode & S_IWOTH) || ((info.st_mode & S_IWGRP) && !is_private_group(info.st_gid, info.st_uid));
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
