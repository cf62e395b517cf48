/* file_owner.c: checks which users can have written a plugin's file. Loading a shared object runs its code, so a user
 * who can replace the file can run code in this process. */
#define _DEFAULT_SOURCE /* getpwent_r, getgrgid_r */
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/host_malloc.h"
#include "hal/log.h"
#include "hal/status.h"
#include "plugin/file_acl.h"
#include "plugin/file_check.h"
#include "plugin/search_path.h"

enum { FIRST_LINE = 4096, MOST_OF_A_LINE = 1 << 20 }; /* bytes of the user database */

static int check_is_off(void) {
  const char *const allow = hal_process_is_privileged() ? NULL : getenv("HAL_ALLOW_UNSAFE_PLUGINS");
  return allow && strcmp(allow, "1") == 0;
}

/* Doubles `*buffer`, the buffer for a line of the user database that did not fit. Returns 0 if there is no memory. */
static int grow(char **buffer, size_t *bytes) {
  char *const longer = *bytes < MOST_OF_A_LINE ? hal_malloc(2 * *bytes) : NULL;
  if (!longer) return 0;
  hal_free(*buffer);
  *buffer = longer;
  *bytes *= 2;
  return 1;
}

/* Returns whether a user other than `owner` and root has the group as primary group, by the list of users. A list that
 * cannot be read completely, or that lacks the owner, is incomplete: then the result is 1. */
static int is_primary_group_of_others(gid_t group, uid_t owner) {
  size_t bytes = FIRST_LINE;
  char *buffer = hal_malloc(bytes);
  struct passwd user, *found = NULL;
  int others = 0, owner_seen = 0, code = buffer ? 0 : ENOMEM;
  setpwent();
  while (!others && !code) {
    code = getpwent_r(&user, buffer, bytes, &found);
    if (code == ERANGE && grow(&buffer, &bytes)) {
      setpwent(); /* from the beginning; whether a line is repeated depends on the C library */
      code = owner_seen = 0;
    } else if (!code && found) {
      owner_seen |= found->pw_uid == owner;
      others = found->pw_gid == group && found->pw_uid != owner && found->pw_uid != 0;
    }
  }
  endpwent();
  hal_free(buffer);
  return others || code != ENOENT || !owner_seen;
}

static int is_name_of(const char *name, uid_t user) {
  char buffer[4096];
  struct passwd entry, *found = NULL;
  return getpwnam_r(name, &entry, buffer, sizeof buffer, &found) == 0 && found &&
         (found->pw_uid == user || found->pw_uid == 0);
}

/* Returns whether a group has only the owner and root as members. If each user has a separate group (umask 002), their
 * files may be writable by that group, which adds no other user. Returns 0 for a group that cannot be looked up. */
static int is_private_group(gid_t group, uid_t owner) {
  char buffer[16384];
  struct group entry, *found = NULL;
  if (getgrgid_r(group, &entry, buffer, sizeof buffer, &found) || !found) return 0;
  for (char **member = found->gr_mem; *member; member++)
    if (!is_name_of(*member, owner)) return 0;
  return !is_primary_group_of_others(group, owner);
}

static int is_trusted(int is_group, uint32_t id, uid_t owner) {
  return is_group ? is_private_group(id, owner) : id == 0 || id == owner;
}

/* Returns whether a user other than the owner and root may write. Without the group's write bit, an access control list
 * permits no other user to write. */
static int others_may_write(const char *path, const struct stat *info) {
  if (info->st_mode & S_IWOTH) return 1;
  if (!(info->st_mode & S_IWGRP)) return 0;
  return !is_private_group(info->st_gid, info->st_uid) || !hal_file_acl_is_safe(path, is_trusted, info->st_uid);
}

/* `sticky_is_safe`: in a sticky directory other users cannot replace entries, only add their own. That is sufficient
 * for the directories above the plugin's directory, but not for the plugin's directory. */
static hal_status_t check_one(const char *path, const char *what, int sticky_is_safe) {
  struct stat info;
  if (stat(path, &info))
    return hal_error_set(errno == ENOENT ? HAL_NOT_FOUND : HAL_FAILED_PRECONDITION, "cannot read %s: %s", path,
                         strerror(errno));
  if (info.st_uid != 0 && info.st_uid != geteuid())
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "the %s %s belongs to user %u, which is neither root nor this user; change its owner, or set "
                         "HAL_ALLOW_UNSAFE_PLUGINS=1 if you trust it",
                         what, path, (unsigned)info.st_uid);
  if (others_may_write(path, &info) && !(sticky_is_safe && (info.st_mode & S_ISVTX)))
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "the %s %s can be written by other users (mode %03o); run chmod go-w on it, or set "
                         "HAL_ALLOW_UNSAFE_PLUGINS=1 if you trust it",
                         what, path, (unsigned)(info.st_mode & 0777));
  return HAL_OK;
}

hal_status_t hal_file_check_owner(const char *path) { return hal_file_check_owner_of(path, "plugin"); }

hal_status_t hal_file_check_owner_of(const char *path, const char *what) {
  char directory[PATH_MAX], of_file[64], above[64];
  if (check_is_off()) return HAL_OK;
  snprintf(of_file, sizeof of_file, "%s's directory", what),
      snprintf(above, sizeof above, "directory above the %s", what);
  HAL_RETURN_IF_ERROR(check_one(path, what, 0));
  const size_t length = strlen(path);
  if (length >= sizeof directory)
    return hal_error_set(HAL_INVALID_ARGUMENT, "the path of the %s has %zu bytes, more than the maximum of a path",
                         what, length);
  memcpy(directory, path, length + 1);
  for (int own = 1;; own = 0) {
    char *const slash = strrchr(directory, '/');
    const int at_root = slash == directory;
    slash[at_root] = '\0'; /* the root directory keeps its slash */
    HAL_RETURN_IF_ERROR(check_one(directory, own ? of_file : above, !own));
    if (at_root) return HAL_OK;
  }
}
