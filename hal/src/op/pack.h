/* pack.h: packs: files with modules of the portable kernels, compiled ahead of time by hal-pack, for devices whose
 * compiler is slow or missing at run time. Those of a plugin are in its folder: libhal_<name>.pack and
 * libhal_<name>.<anything>.pack, in this order.
 *
 * A module is identified by the hash of everything that it was compiled from: source, dialect, options, double
 * precision. A module of another source is therefore never found; check sums detect damage. In both cases there is one
 * warning per file, and the device's compiler is used. A file is written under another name and renamed. Numbers have
 * the byte order of the machine that wrote it. Private to hal. */
#ifndef HAL_SRC_OP_PACK_H_
#define HAL_SRC_OP_PACK_H_

#include <stdatomic.h>

#include "base/hash.h"
#include "hal/plugin.h"

/* Its last character is the version of the format. */
#define HAL_PACK_MAGIC UINT64_C(0x316b6361704c4148) /* "HALpack1" on little-endian machines */
enum { HAL_PACK_DIALECT = 16, HAL_PACK_MAKER = 128, HAL_PACK_MOST = 1 << 20 /* entries */ };

typedef struct hal_pack_header_s {
  uint64_t magic;
  uint64_t bytes;                 /* of the file */
  uint64_t check[2];              /* hash of the rest of the file, including the entries */
  uint64_t count;                 /* entries, by key; modules follow them */
  uint64_t kernels[2];            /* the sources it was compiled from: hal_op_source_version */
  char source[HAL_PACK_DIALECT];  /* the dialect of the sources, "opencl-c" */
  char dialect[HAL_PACK_DIALECT]; /* of the modules: "spirv" */
  char maker[HAL_PACK_MAKER];     /* human-readable: the compiler */
} hal_pack_header_t;

typedef struct hal_pack_entry_s {
  uint64_t key[2], check[2];
  uint64_t offset, size; /* of the module in the file */
} hal_pack_entry_t;

/* An open pack. */
typedef struct hal_pack_s {
  struct hal_pack_s *next;
  int file;
  atomic_int damaged; /* no more modules are loaded from it */
  atomic_int warned;
  hal_pack_header_t header;
  hal_pack_entry_t *entries;
  char path[];
} hal_pack_t;

/* Returns the key of a module: the hash of a kernel's text, its dialect, the compiler options, and whether it has
 * double precision. */
hal_hash_t hal_pack_key(const char *source_dialect, const char *options, int fp64, const char *text, size_t size);

/* Returns the hash of header and entries, as stored in the header. */
hal_hash_t hal_pack_check(const hal_pack_header_t *header, const hal_pack_entry_t *entries);

/* Opens the packs in the folder of a plugin's file; opens none in a privileged process. The devices of a plugin share
 * them. Logs a warning for packs that are damaged or of another version, which are skipped, and for those from other
 * sources. Released by hal_packs_close, which accepts NULL. */
typedef struct hal_packs_s hal_packs_t;
hal_packs_t *hal_packs_open(const char *plugin_path);
void hal_packs_close(hal_packs_t *packs);

/* Returns the first of them, NULL if there is none. */
hal_pack_t *hal_packs_first(const hal_packs_t *packs);

/* Returns a module, which the caller frees with hal_free; NULL if the pack has none. Thread-safe. */
void *hal_pack_load(hal_pack_t *pack, const hal_hash_t *key, size_t *out_size);

/* Logs, once per pack, the problem of one of its modules, "kernel \"add\": ...". */
void hal_pack_refused(hal_pack_t *pack, const char *kernel, const char *why);

#endif /* HAL_SRC_OP_PACK_H_ */
