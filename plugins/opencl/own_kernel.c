/* own_kernel.c: the plugin's own kernels, for recorded work: copies on a device and fills, 16 bytes per item. */
#include <string.h>

#include "graph.h"

enum { OWN_COPY, OWN_FILL, OWN_KERNELS, ITEM_BYTES = 16, MOST_BLOCK = 64 };

/* If memory consists of buffer objects, each pointer is followed by its offset, as in portable kernels. An item may
 * begin at any address, because vload16 of bytes requires no alignment. The last item copies the remaining bytes one by
 * one. */
static const char source[] =
    "#ifdef OFFSETS\n"
    "#define POINTER(type, name) __global type *restrict name##_base, ulong name##_offset\n"
    "#define PLACE(type, name) __global type *name = name##_base + name##_offset\n"
    "#else\n"
    "#define POINTER(type, name) __global type *restrict name\n"
    "#define PLACE(type, name)\n"
    "#endif\n"
    "#define FIRST (((ulong)get_group_id(1) * get_num_groups(0) + get_group_id(0)) * get_local_size(0) + "
    "get_local_id(0)) * 16\n"
    "__kernel void own_copy(POINTER(uchar, to), POINTER(const uchar, from), ulong size) {\n"
    "  PLACE(uchar, to);\n"
    "  PLACE(const uchar, from);\n"
    "  const ulong first = FIRST;\n"
    "  if (first + 16 <= size) vstore16(vload16(0, from + first), 0, to + first);\n"
    "  else for (ulong i = first; i < size; i++) to[i] = from[i];\n"
    "}\n"
    "__kernel void own_fill(POINTER(uchar, to), uchar16 pattern, ulong size) {\n"
    "  PLACE(uchar, to);\n"
    "  const ulong first = FIRST;\n"
    "  if (first + 16 <= size) {\n"
    "    vstore16(pattern, 0, to + first);\n"
    "  } else {\n"
    "    uchar left[16];\n"
    "    vstore16(pattern, 0, left);\n"
    "    for (ulong i = first; i < size; i++) to[i] = left[i - first];\n"
    "  }\n"
    "}\n";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hal_plugin_kernel_t *kernels[OCL_MAX_DEVICES][OWN_KERNELS]; /* until the process ends */

static hal_status_t load(int32_t device) {
  static const char *const names[OWN_KERNELS] = {"own_copy", "own_fill"};
  const hal_module_desc_t desc = {.struct_size = sizeof desc,
                                  .dialect = "opencl-c",
                                  .options = ocl.memory == OCL_MEMORY_BUFFER ? "-DOFFSETS" : "",
                                  .data = source,
                                  .size = sizeof source - 1};
  hal_plugin_module_t *module;
  hal_status_t status = hal_plugin_module_load(device, &desc, &module);
  for (int i = 0; i < OWN_KERNELS && !status; i++) status = ocl_kernel_create(module, names[i], &kernels[device][i]);
  return status;
}

/* Sets the fields that both have; the arguments are set already. */
static hal_status_t finish(int32_t device, int which, ocl_own_launch_t *own) {
  pthread_mutex_lock(&lock);
  const hal_status_t status = kernels[device][OWN_KERNELS - 1] ? HAL_OK : load(device);
  own->kernel = kernels[device][which];
  pthread_mutex_unlock(&lock);
  if (status) return status;
  const uint32_t block = own->kernel->most_threads < MOST_BLOCK ? (uint32_t)own->kernel->most_threads : MOST_BLOCK;
  const uint64_t groups = (own->size + (uint64_t)block * ITEM_BYTES - 1) / ((uint64_t)block * ITEM_BYTES);
  const uint64_t wide = groups < 1u << 20 ? groups : 1u << 20;
  own->launch = (hal_launch_t){.struct_size = sizeof own->launch,
                               .grid = {(uint32_t)wide, (uint32_t)((groups + wide - 1) / wide), 1},
                               .block = {block, 1, 1},
                               .arg_count = 3,
                               .args = own->args};
  return HAL_OK;
}

hal_status_t ocl_own_copy(int32_t device, void *to, const void *from, size_t size, ocl_own_launch_t *out_launch) {
  *out_launch = (ocl_own_launch_t){.to = to, .from = from, .size = size};
  out_launch->args[0] = (hal_arg_t){&out_launch->to, sizeof to, HAL_ARG_POINTER};
  out_launch->args[1] = (hal_arg_t){&out_launch->from, sizeof from, HAL_ARG_POINTER};
  out_launch->args[2] = (hal_arg_t){&out_launch->size, sizeof out_launch->size, HAL_ARG_VALUE};
  return finish(device, OWN_COPY, out_launch);
}

hal_status_t ocl_own_fill(int32_t device, void *to, const void *pattern, size_t pattern_size, size_t size,
                          ocl_own_launch_t *out_launch) {
  *out_launch = (ocl_own_launch_t){.to = to, .size = size};
  for (size_t i = 0; i < ITEM_BYTES; i++) out_launch->pattern[i] = ((const unsigned char *)pattern)[i % pattern_size];
  out_launch->args[0] = (hal_arg_t){&out_launch->to, sizeof to, HAL_ARG_POINTER};
  out_launch->args[1] = (hal_arg_t){out_launch->pattern, ITEM_BYTES, HAL_ARG_VALUE};
  out_launch->args[2] = (hal_arg_t){&out_launch->size, sizeof out_launch->size, HAL_ARG_VALUE};
  return finish(device, OWN_FILL, out_launch);
}
