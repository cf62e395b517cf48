/* file_acl.h: whom a POSIX access control list lets write a file. */
#ifndef HAL_SRC_PLUGIN_FILE_ACL_H_
#define HAL_SRC_PLUGIN_FILE_ACL_H_

#include <stdint.h>
#include <sys/types.h>

/* Returns whether a user or a group, by number, is the owner, root, or a group of nobody else. */
typedef int (*hal_acl_trust_fn_t)(int is_group, uint32_t id, uid_t owner);

/* Returns whether the file's list lets only those write that `trusts` knows; 0 too where the list cannot be read. */
int hal_file_acl_is_safe(const char *path, hal_acl_trust_fn_t trusts, uid_t owner);

#endif /* HAL_SRC_PLUGIN_FILE_ACL_H_ */
