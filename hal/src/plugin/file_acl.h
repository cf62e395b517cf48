/* file_acl.h: users and groups that a POSIX access control list permits to write a file. */
#ifndef HAL_SRC_PLUGIN_FILE_ACL_H_
#define HAL_SRC_PLUGIN_FILE_ACL_H_

#include <stdint.h>
#include <sys/types.h>

/* Returns whether a user is the owner or root, or whether a group has no other members. */
typedef int (*hal_acl_trust_fn_t)(int is_group, uint32_t id, uid_t owner);

/* Returns whether the file's list permits only users and groups to write for which `trusts` returns 1. Returns 0 if the
 * list cannot be read. */
int hal_file_acl_is_safe(const char *path, hal_acl_trust_fn_t trusts, uid_t owner);

#endif /* HAL_SRC_PLUGIN_FILE_ACL_H_ */
