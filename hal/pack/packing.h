/* packing.h: types and functions that the files of hal-pack share. Private to hal/pack. */
#ifndef HAL_PACK_PACKING_H_
#define HAL_PACK_PACKING_H_

#include <stddef.h>
#include <stdint.h>

#include "op/pack.h"

enum { PACKING_FORMS = 2, PACKING_LOG = 4096 };

/* The options of the command line. */
typedef struct packing_s {
  const char *output;   /* path of the pack */
  const char *compiler; /* a command; NULL: clang and llvm-spirv, or the device */
  const char *plugin;   /* path of the plugin whose device compiles, or NULL */
  const char *source;   /* dialect of the sources */
  const char *dialect;  /* dialect of the modules */
  const char *maker;    /* name of the compiler in the header of the pack */
  const char *patterns; /* comma list of names with * and ?; NULL: all kernels */
  uint32_t forms[PACKING_FORMS];
  uint32_t form_count;
  int fp64, without_fp64; /* for devices with double precision, for devices without */
  int quiet;
  long jobs;
  double limit; /* seconds for one module; 0: no limit */
} packing_t;

/* One module, of one kernel in one form. */
typedef struct packed_s {
  const char *kernel;
  uint32_t form;
  int fp64;         /* for devices with double precision */
  int of_suite;     /* kernels of the conformance suite, which are compiled without options */
  int same_without; /* devices without double precision use the same module */
  void *data;       /* NULL: the compilation failed */
  size_t size;
  hal_hash_t key, key_without;
  char *why; /* why it did not compile, or NULL */
} packed_t;

/* Compiles the modules of a list, which have their names. Prints the progress unless `quiet`. Returns the number of
 * modules that failed. */
size_t packing_compile(const packing_t *packing, packed_t *modules, size_t count);

/* The source of one module and what the compiler has to know about it. */
typedef struct packing_source_s {
  const char *kernel; /* the command finds it in HAL_PACK_KERNEL */
  const char *text;
  size_t size;
  const char *options; /* separated by spaces */
  int fp64;
  const int32_t *cancelled; /* nonzero: the compiler is ended */
} packing_source_t;

/* Compiles one module by clang and llvm-spirv, by a command (`command SOURCE OUTPUT OPTIONS...`), or by the opened
 * device, which ignores `cancelled`. Returns its bytes, which the caller frees with free; NULL with the reason in
 * `log`, PACKING_LOG bytes. */
void *packing_by_clang(const packing_source_t *source, size_t *out_size, char *log);
void *packing_by_command(const char *command, const packing_source_t *source, size_t *out_size, char *log);
void *packing_by_device(const char *kernel, size_t *out_size, char *log);

/* Opens the first device of a plugin. Returns whether it is ready; if not, prints the reason to standard error. */
int packing_device_open(packing_t *packing);

/* Prints the modules that failed to standard error, the kernels of each reason together. */
void packing_report(const packed_t *modules, size_t count, size_t failed);

/* Writes the pack. Returns whether it was written. */
int packing_write(const packing_t *packing, const packed_t *modules, size_t count);

#endif /* HAL_PACK_PACKING_H_ */
