/* provider.h: provides a device's portable kernels. A device with the dialect "native" has them compiled into its
 * plugin, a module per family. For a device with "opencl-c" or "cuda-c" they are compiled at first use, a module per
 * kernel, from source that this library contains (source.h); the output of the plugin's module_export is stored on disk
 * for later processes. Modules in packs (pack.h) are not compiled, and a device that accepts such modules needs no
 * compiler. Private to hal. */
#ifndef HAL_SRC_OP_PROVIDER_H_
#define HAL_SRC_OP_PROVIDER_H_

#include <pthread.h>

#include "base/disk_cache.h"
#include "device/device.h"
#include "hal/kernel.h"
#include "hal_op_ids.h"
#include "op/pack.h"
#include "op/target.h"

/* A module of one kernel. */
typedef struct hal_provided_s {
  struct hal_provided_s *next;
  hal_plugin_module_t *module;
  hal_plugin_kernel_t *kernel; /* NULL: the device's compiler failed to compile it */
  hal_kernel_t *own;           /* for a program's own text: the program's handle, else NULL */
  char name[];
} hal_provided_t;

typedef struct hal_provider_s {
  hal_device_t *device;
  const char
      *dialect; /* "native", "opencl-c" or "cuda-c", also of the sources that packs were compiled from; NULL: the device
                * accepts no portable kernels */
  int native, binary; /* native: the dialect is "native"; binary: the device also accepts "binary" */
  const char *own; /* the dialect of programs' own kernels, "c" if kernels are native; NULL: the device compiles none */
  int compiles;    /* the device accepts the dialect itself, not only modules of packs */
  uint32_t form;   /* HAL_FORM_* (target.h) */
  hal_plugin_module_t *modules[HAL_OP_FAMILY_COUNT]; /* native */
  int module_missing[HAL_OP_FAMILY_COUNT];
  hal_provided_t *provided; /* from source; protected by `own_lock` if kernels are native, else by the table's lock */
  pthread_mutex_t own_lock;
  hal_disk_cache_t cache;
  hal_packs_t *packs;
  atomic_uint_fast64_t compiled, loaded, packed, refused, compile_ns; /* hal_kernel_stats_t */
} hal_provider_t;

void hal_provider_init(hal_provider_t *provider, hal_device_t *device);
void hal_provider_close(hal_provider_t *provider);

/* Returns a kernel of a family by name. The caller holds the table's lock. HAL_UNIMPLEMENTED: the device never has it;
 * other errors may be temporary. */
hal_status_t hal_provider_kernel(hal_provider_t *provider, uint32_t family, const char *name,
                                 hal_plugin_kernel_t **out_kernel);

/* Returns the compiler options for a kernel's source in a dialect and form. */
const char *hal_provider_options(const char *dialect, uint32_t form, const char *source);

/* Returns whether a kernel of that name computes in double precision, which not every device has. */
int hal_provider_needs_fp64(const char *kernel);

/* Compiles a portable kernel from source and returns the output of module_export, which the caller frees with hal_free:
 * for packs. Errors: HAL_UNIMPLEMENTED = the device does not compile, lacks double precision or does not export
 * modules; others as module_load's. */
hal_status_t hal_provider_export(hal_provider_t *provider, const char *kernel, void **out_data, size_t *out_size);

/* Returns the lock that serializes hal_provider_compile. If kernels are native it is a separate lock, so that operators
 * do not wait for a running compiler. */
pthread_mutex_t *hal_provider_own_lock(hal_provider_t *provider);

/* Sets the cancellation flag for what the calling thread compiles from now on (hal_module_desc_t.cancelled). */
void hal_provider_set_cancellation(const int32_t *flag);

/* Returns the kernel of a program's own text (hal_kernel_compile). The caller holds that lock. */
hal_status_t hal_provider_compile(hal_provider_t *provider, const char *name, const char *text,
                                  hal_kernel_t **out_kernel);

#endif /* HAL_SRC_OP_PROVIDER_H_ */
