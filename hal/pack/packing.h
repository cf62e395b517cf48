/* packing.h: what the files of hal-pack share. Private to hal/pack. */
#ifndef HAL_PACK_PACKING_H_
#define HAL_PACK_PACKING_H_

#include <stddef.h>
#include <stdint.h>

#include "op/pack.h"

enum { PACKING_FORMS = 2, PACKING_LOG = 4096 };

/* What is asked for. */
typedef struct packing_s {
  const char *output;   /* the pack's path */
  const char *compiler; /* a command, or NULL: clang and llvm-spirv, or the device */
  const char *plugin;   /* whose device compiles, or NULL */
  const char *source;   /* dialect of the sources */
  const char *dialect;  /* of the modules */
  const char *maker;    /* what the header says */
  const char *patterns; /* comma list of names with * and ?, or NULL = all kernels */
  uint32_t forms[PACKING_FORMS];
  uint32_t form_count;
  int fp64, without_fp64; /* for devices with double precision, for those without */
  int quiet;
  long jobs;
} packing_t;

/* One module, of one kernel in one form. */
typedef struct packed_s {
  const char *kernel;
  uint32_t form;
  int fp64;         /* for devices with double precision */
  int same_without; /* those without can have the same */
  void *data;       /* NULL: it did not compile */
  size_t size;
  hal_hash_t key, key_without;
  char *why; /* it did not compile */
} packed_t;

/* Compiles all modules of a list, which are named already. Returns how many failed. */
size_t packing_compile(const packing_t *packing, packed_t *modules, size_t count);

/* Compiles one module by clang and llvm-spirv, or by a command: `command SOURCE OUTPUT OPTIONS...`, with the kernel's name in
 * HAL_PACK_KERNEL. Returns its bytes, which the caller frees with free; NULL with the reason in `log`, PACKING_LOG bytes. */
void *packing_by_clang(const char *text, size_t size, const char *options, int fp64, size_t *out_size, char *log);
void *packing_by_command(const char *command, const char *kernel, const char *text, size_t size, const char *options,
                         int fp64, size_t *out_size, char *log);

/* Opens a plugin's first device. Returns whether it is there; says else why not, on standard error. */
int packing_device_open(packing_t *packing);
void *packing_by_device(const char *kernel, size_t *out_size, char *log);

/* Writes the pack. Returns whether it is there. */
int packing_write(const packing_t *packing, const packed_t *modules, size_t count);

#endif /* HAL_PACK_PACKING_H_ */
