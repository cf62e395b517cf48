/* Tests of the loader's check of owners and permissions: no other user may have written a loaded file. */
#include "plugin/file_check.h"
#include "support.h"

#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static char directory[64], path[PATH_MAX];

/* A private directory with a copy of a plugin in it. */
static void setup(void) {
  char command[4 * PATH_MAX];
  unsetenv("HAL_ALLOW_UNSAFE_PLUGINS");
  strcpy(directory, "/tmp/hal-safety-XXXXXX");
  cr_assert_not_null(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/libhal_five.so", directory);
  snprintf(command, sizeof command, "cp %s %s && chmod 755 %s", FIXTURE("five"), path, path);
  cr_assert_eq(system(command), 0);
}

static void teardown(void) {
  unlink(path);
  rmdir(directory);
}

TestSuite(file_safety, .init = setup, .fini = teardown);

Test(file_safety, a_plugin_of_the_users_own_is_loaded) { assert_ok(hal_registry_open(path)); }

/* umask 002: each user has a private group, which may write the user's files. */
Test(file_safety, a_file_that_the_users_own_group_may_write_is_loaded) {
  const struct passwd *const user = getpwuid(geteuid());
  const struct group *const group = user ? getgrgid(user->pw_gid) : NULL;
  if (!group || group->gr_mem[0]) cr_skip_test("the user has no group of their own");
  cr_assert_eq(chown(path, (uid_t)-1, user->pw_gid), 0);
  cr_assert_eq(chown(directory, (uid_t)-1, user->pw_gid), 0);
  chmod(path, 0775);
  chmod(directory, 0775);
  assert_ok(hal_registry_open(path));
}

/* A group with another member, or an unknown group. */
static gid_t group_of_others(void) {
  const struct group *group;
  gid_t found = 54321;
  setgrent();
  while ((group = getgrent()))
    for (char **member = group->gr_mem; *member; member++)
      if (getpwnam(*member) && getpwnam(*member)->pw_uid != geteuid() && getpwnam(*member)->pw_uid)
        found = group->gr_gid;
  endgrent();
  return found;
}

Test(file_safety, a_file_that_another_group_may_write_is_refused) {
  if (geteuid() != 0) cr_skip_test("only root can assign a file to any group");
  const gid_t groups[] = {54321, group_of_others(), getpwnam("nobody") ? getpwnam("nobody")->pw_gid : 54321};
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    cr_assert_eq(chown(path, (uid_t)-1, groups[i]), 0);
    chmod(path, 0775);
    assert_fails(hal_registry_open(path), HAL_FAILED_PRECONDITION,
                 "can be written by other users (mode 775); run chmod go-w");
  }
}

/* Returns a group without members that is no user's primary group; 0 = there is none. */
static gid_t empty_group(void) {
  const struct group *group;
  gid_t found = 0;
  setgrent();
  while (!found && (group = getgrent())) {
    const struct passwd *user;
    int used = group->gr_mem[0] != NULL || !group->gr_gid;
    setpwent();
    while (!used && (user = getpwent())) used = user->pw_gid == group->gr_gid;
    if (!used) found = group->gr_gid;
  }
  endpwent();
  endgrent();
  return found;
}

/* A list of users without the owner is incomplete: other users of the group may be missing, too. */
Test(file_safety, a_file_of_a_group_is_refused_if_the_list_of_users_lacks_its_owner) {
  enum { UNKNOWN_USER = 54321 };
  const gid_t group = empty_group();
  if (geteuid() != 0 || !group || getpwuid(UNKNOWN_USER)) cr_skip_test("needs root, and a group without members");
  cr_assert_eq(chown(path, (uid_t)-1, group), 0);
  chmod(path, 0775);
  assert_ok(hal_file_check_owner(path)); /* of root, which the list has */
  cr_assert_eq(chown(path, UNKNOWN_USER, group), 0);
  cr_assert_eq(chown(directory, UNKNOWN_USER, (gid_t)-1), 0);
  cr_assert_eq(seteuid(UNKNOWN_USER), 0);
  assert_fails(hal_file_check_owner(path), HAL_FAILED_PRECONDITION, "can be written by other users (mode 775)");
  cr_assert_eq(chmod(path, 0755), 0);
  assert_ok(hal_file_check_owner(path));
  cr_assert_eq(seteuid(0), 0);
}

/* Without descriptors the lists of users and groups cannot be read. */
Test(file_safety, a_file_of_a_group_is_refused_if_the_lists_cannot_be_read) {
  const gid_t group = empty_group();
  if (geteuid() != 0 || !group) cr_skip_test("needs root, and a group without members");
  cr_assert_eq(chown(path, (uid_t)-1, group), 0);
  chmod(path, 0775);
  assert_ok(hal_file_check_owner(path));
  struct rlimit none = {.rlim_cur = 0}, before;
  cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
  none.rlim_max = before.rlim_max;
  cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
  const hal_status_t status = hal_file_check_owner(path);
  cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_fails(status, HAL_FAILED_PRECONDITION, "can be written by other users (mode 775)");
}

/* The kernel's encoding of an access control list: a version, then (tag, permissions, number). */
typedef struct acl_s {
  uint32_t version;
  struct {
    uint16_t tag, permissions;
    uint32_t id;
  } entries[5];
} acl_t;
enum { OWNER = 1, USER = 2, OWNING_GROUP = 4, GROUP = 8, MASK = 16, OTHERS = 32, READS = 4, WRITES = 6 };

/* The owner's group may read; `permissions` applies to one more user or group. Returns whether the file system
   supports lists. */
static int let(const char *file, uint16_t tag, uint32_t id, uint16_t permissions) {
  const acl_t list = {
      2,
      {{OWNER, 7, UINT32_MAX},
       {tag == USER ? USER : OWNING_GROUP, tag == USER ? permissions : 5, tag == USER ? id : UINT32_MAX},
       {tag == USER ? OWNING_GROUP : GROUP, tag == USER ? 5 : permissions, tag == USER ? UINT32_MAX : id},
       {MASK, 7, UINT32_MAX},
       {OTHERS, 5, UINT32_MAX}}};
  return setxattr(file, "system.posix_acl_access", &list, sizeof list, 0) == 0;
}

Test(file_safety, a_file_that_a_list_of_access_lets_others_write_is_refused) {
  const struct passwd *const user = getpwuid(geteuid());
  if (user) cr_assert_eq(chown(path, (uid_t)-1, user->pw_gid), 0);
  if (!let(path, USER, 12345, WRITES)) cr_skip_test("no access control lists here");
  assert_fails(hal_registry_open(path), HAL_FAILED_PRECONDITION, "can be written by other users");
  cr_assert(let(path, GROUP, 54321, WRITES));
  assert_fails(hal_registry_open(path), HAL_FAILED_PRECONDITION, "can be written by other users");
  if (!user || getgrgid(user->pw_gid)->gr_mem[0]) return;
  cr_assert(let(path, USER, geteuid(), WRITES)); /* no other user */
  cr_assert(let(directory, USER, 12345, WRITES));
  assert_fails(hal_registry_open(path), HAL_FAILED_PRECONDITION, "the plugin's directory");
  cr_assert(let(directory, USER, 12345, READS));
  assert_ok(hal_registry_open(path));
}

Test(file_safety, a_file_that_all_may_write_is_refused) {
  chmod(path, 0757);
  assert_fails(hal_registry_open(path), HAL_FAILED_PRECONDITION, "can be written by other users");
}

Test(file_safety, a_directory_that_all_may_write_is_refused) {
  chmod(directory, 0777);
  assert_fails(hal_registry_open(path), HAL_FAILED_PRECONDITION, "the plugin's directory");
}

Test(file_safety, a_sticky_directory_is_refused_too) {
  chmod(directory, 01777);
  assert_fails(hal_registry_open(path), HAL_FAILED_PRECONDITION, "the plugin's directory");
}

Test(file_safety, a_file_of_another_user_is_refused) {
  if (geteuid() != 0) cr_skip_test("only root can change the owner of a file");
  cr_assert_eq(chown(path, 12345, (gid_t)-1), 0);
  assert_fails(hal_registry_open(path), HAL_FAILED_PRECONDITION, "belongs to user 12345");
}

Test(file_safety, a_directory_of_another_user_is_refused) {
  if (geteuid() != 0) cr_skip_test("only root can change the owner of a directory");
  cr_assert_eq(chown(directory, 12345, (gid_t)-1), 0);
  assert_fails(hal_registry_open(path), HAL_FAILED_PRECONDITION, "belongs to user 12345");
}

Test(file_safety, a_directory_above_that_all_may_write_is_refused) {
  char inner[PATH_MAX], moved[PATH_MAX + 32];
  snprintf(inner, sizeof inner, "%s/inner", directory);
  snprintf(moved, sizeof moved, "%s/libhal_five.so", inner);
  cr_assert_eq(mkdir(inner, 0755), 0);
  cr_assert_eq(rename(path, moved), 0);
  chmod(directory, 0777);
  assert_fails(hal_registry_open(moved), HAL_FAILED_PRECONDITION, "the directory above the plugin");
  unlink(moved);
  rmdir(inner);
}

Test(file_safety, a_link_does_not_hide_an_unsafe_target) {
  char name[PATH_MAX + 32];
  chmod(path, 0777);
  snprintf(name, sizeof name, "%s/libhal_link.so", directory);
  cr_assert_eq(symlink(path, name), 0);
  assert_fails(hal_registry_open(name), HAL_FAILED_PRECONDITION, "can be written by other users");
  unlink(name);
}

Test(file_safety, HAL_ALLOW_UNSAFE_PLUGINS_turns_the_check_off) {
  chmod(path, 0777);
  setenv("HAL_ALLOW_UNSAFE_PLUGINS", "1", 1);
  assert_ok(hal_registry_open(path));
}
