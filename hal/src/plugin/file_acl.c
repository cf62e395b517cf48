/* file_acl.c: users and groups that a POSIX access control list permits to write a file. The file's mode does not list
 * them: its group bits are the mask of the list. */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/host_malloc.h"
#include "plugin/file_acl.h"

/* The kernel's form, <linux/posix_acl_xattr.h>: a version, then entries, all little endian. */
enum { ACL_VERSION = 2, ACL_USER = 2, ACL_GROUP = 8, ACL_MASK = 16, ACL_WRITE = 2 };
typedef struct acl_entry_s {
  uint16_t tag, permissions;
  uint32_t id;
} acl_entry_t;

/* Returns whether the entries permit only trusted users and groups to write. */
static int is_safe(const unsigned char *list, size_t size, hal_acl_trust_fn_t trusts, uid_t owner) {
  uint32_t version = 0;
  if (size < sizeof version || (size - sizeof version) % sizeof(acl_entry_t)) return 0;
  memcpy(&version, list, sizeof version);
  if (version != ACL_VERSION) return 0;
  for (size_t at = sizeof version; at < size; at += sizeof(acl_entry_t)) {
    acl_entry_t entry;
    memcpy(&entry, list + at, sizeof entry);
    if (!(entry.permissions & ACL_WRITE) || (entry.tag != ACL_USER && entry.tag != ACL_GROUP)) continue;
    if (!trusts(entry.tag == ACL_GROUP, entry.id, owner)) return 0;
  }
  return 1;
}

int hal_file_acl_is_safe(const char *path, hal_acl_trust_fn_t trusts, uid_t owner) {
  static const char name[] = "system.posix_acl_access";
  const ssize_t size = getxattr(path, name, NULL, 0);
  if (size < 0) return errno == ENODATA || errno == ENOTSUP; /* no list, or a file system without lists */
  unsigned char *const list = hal_malloc((size_t)size + 1);
  if (!list) return 0;
  const ssize_t read = getxattr(path, name, list, (size_t)size + 1);
  const int safe = read == size && is_safe(list, (size_t)read, trusts, owner);
  hal_free(list);
  return safe;
}
