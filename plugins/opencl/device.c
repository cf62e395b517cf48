/* device.c: the properties of a device, read once from the driver and reported to the host. */
#include <hal/plugin_setting.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl.h"

/* Constants of vendors' extensions. The numbers are those of their registries, because not every cl_ext.h has them. */
enum {
  COMPUTE_CAPABILITY_MAJOR_NV = 0x4000,
  COMPUTE_CAPABILITY_MINOR_NV = 0x4001,
  WARP_SIZE_NV = 0x4003,
  ASYNC_ENGINE_COUNT_NV = 0x4007,
  WAVEFRONT_WIDTH_AMD = 0x4043,
  SUB_GROUP_SIZES_INTEL = 0x4108,
  DEVICE_UUID_KHR = 0x106A,
  PCI_BUS_INFO_KHR = 0x410F
};

/* Reads a text with one byte less than available, because a driver may fill the buffer completely. `otherwise` is used
 * if the driver does not report the text. */
static void read_text(cl_device_id id, cl_device_info what, char *text, size_t room, const char *otherwise) {
  char all[1024] = "";
  if (icd.clGetDeviceInfo(id, what, sizeof all - 1, all, NULL)) all[0] = '\0';
  const char *begin = all;
  while (*begin == ' ') begin++;
  snprintf(text, room, "%.*s", (int)room - 1, *begin ? begin : otherwise);
  for (; *text; text++) /* it is part of messages and file names */
    if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
}

int ocl_device_has(cl_device_id id, const char *extension) {
  char list[8192] = "";
  const size_t length = strlen(extension);
  if (icd.clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, sizeof list - 1, list, NULL)) return 0;
  for (const char *at = list; (at = strstr(at, extension)); at += length)
    if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return 1;
  return 0;
}

static uint32_t read_subgroup(const ocl_device_t *device) {
  cl_uint width = 0;
  size_t sizes[16] = {0}, bytes = 0;
  if (device->type & CL_DEVICE_TYPE_CPU) return 1;
  if (ocl_device_has(device->id, "cl_nv_device_attribute_query"))
    icd.clGetDeviceInfo(device->id, WARP_SIZE_NV, sizeof width, &width, NULL);
  else if (ocl_device_has(device->id, "cl_amd_device_attribute_query"))
    icd.clGetDeviceInfo(device->id, WAVEFRONT_WIDTH_AMD, sizeof width, &width, NULL);
  else if (ocl_device_has(device->id, "cl_intel_required_subgroup_size") &&
           !icd.clGetDeviceInfo(device->id, SUB_GROUP_SIZES_INTEL, sizeof sizes, sizes, &bytes) && bytes &&
           bytes <= sizeof sizes)
    width = (cl_uint)sizes[bytes / sizeof *sizes / 2]; /* the middle one is the one that compilers usually choose */
  return width;
}

/* Reads the name of the device for the vendor's compilers, if an extension reports it: AMD's drivers name the device
 * after it. */
static void read_architecture(ocl_device_t *device) {
  cl_uint major = 0, minor = 0;
  if (ocl_device_has(device->id, "cl_nv_device_attribute_query")) {
    if (!icd.clGetDeviceInfo(device->id, COMPUTE_CAPABILITY_MAJOR_NV, sizeof major, &major, NULL) &&
        !icd.clGetDeviceInfo(device->id, COMPUTE_CAPABILITY_MINOR_NV, sizeof minor, &minor, NULL) && major)
      snprintf(device->architecture, sizeof device->architecture, "sm_%u%u", (unsigned)major, (unsigned)minor);
    icd.clGetDeviceInfo(device->id, ASYNC_ENGINE_COUNT_NV, sizeof device->copy_engines, &device->copy_engines, NULL);
  } else if (strncmp(device->name, "gfx", 3) == 0) {
    const size_t length = strcspn(device->name, ":"), most = sizeof device->architecture - 1;
    memcpy(device->architecture, device->name, length < most ? length : most); /* zeros follow it */
  }
}

static void read_place(ocl_device_t *device) {
  if (ocl_device_has(device->id, "cl_khr_device_uuid"))
    icd.clGetDeviceInfo(device->id, DEVICE_UUID_KHR, sizeof device->uuid, device->uuid, NULL);
  else
    snprintf((char *)device->uuid, sizeof device->uuid, "opencl-%d", (int)(device - ocl.devices));
  if (ocl_device_has(device->id, "cl_khr_pci_bus_info"))
    icd.clGetDeviceInfo(device->id, PCI_BUS_INFO_KHR, sizeof device->pci, device->pci, NULL);
}

/* Reads a setting with two values; the default is the previous value of `*out_first`. */
static hal_status_t read_choice(const char *name, const char *first, const char *second, int *out_first) {
  const char *const wanted = hal_setting(name);
  if (!wanted || !*wanted) return HAL_OK;
  *out_first = strcmp(wanted, first) == 0;
  if (*out_first || strcmp(wanted, second) == 0) return HAL_OK;
  return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: %s is '%.100s'; set it to %s or %s, or unset it", name, wanted,
                   first, second);
}

/* Reads the variant of the portable kernels, and the implementation of graphs. For each launch of a command buffer, a
 * CPU's driver does the same work as for a queued one, and more. */
static hal_status_t read_choices(ocl_device_t *device) {
  const int is_cpu = (device->type & CL_DEVICE_TYPE_CPU) != 0;
  device->few_wide = is_cpu;
  device->wants_buffers = !is_cpu;
  const hal_status_t status = read_choice("HAL_OPENCL_FORM", "cpu", "simt", &device->few_wide);
  return status ? status : read_choice("HAL_OPENCL_GRAPHS", "buffers", "launches", &device->wants_buffers);
}

/* Checks numbers that later launches and allocations divide by or depend on. */
static hal_status_t check_limits(const ocl_device_t *device) {
  enum { MOST_ALIGNMENT = 4096 }; /* a page, at which buffers' addresses begin */
  const char *what = NULL;
  unsigned long long value = 0;
  if (!device->units || device->units > INT32_MAX)
    what = "compute units", value = device->units;
  else if (!device->most_threads || device->most_threads > INT32_MAX)
    what = "threads of a work-group", value = device->most_threads;
  else if (!device->global_bytes || device->global_bytes > INT64_MAX)
    what = "bytes of memory", value = device->global_bytes;
  else if (!device->most_bytes || device->most_bytes > INT64_MAX)
    what = "bytes of an allocation", value = device->most_bytes;
  else if (device->alignment & (device->alignment - 1) || device->alignment > MOST_ALIGNMENT)
    what = "bytes of alignment", value = device->alignment;
  if (!what) return HAL_OK;
  return ocl_error(
      HAL_UNAVAILABLE, 0,
      "opencl: the driver of '%s' (%s) reports %llu %s, which is invalid; install another driver, or choose "
      "another device with HAL_OPENCL_DEVICE",
      device->name, device->driver, value, what);
}

hal_status_t ocl_device_read(ocl_device_t *device, cl_device_id id) {
  cl_device_fp_config fp64 = 0;
  cl_uint align_bits = 0;
  char il[256] = "";
  device->id = id;
  cl_int code = icd.clGetDeviceInfo(id, CL_DEVICE_TYPE, sizeof device->type, &device->type, NULL);
#define READ(what, field) \
  if (!code) code = icd.clGetDeviceInfo(id, what, sizeof(field), &(field), NULL)
  READ(CL_DEVICE_GLOBAL_MEM_SIZE, device->global_bytes);
  READ(CL_DEVICE_MAX_MEM_ALLOC_SIZE, device->most_bytes);
  READ(CL_DEVICE_LOCAL_MEM_SIZE, device->local_bytes);
  READ(CL_DEVICE_MAX_WORK_GROUP_SIZE, device->most_threads);
  READ(CL_DEVICE_MAX_COMPUTE_UNITS, device->units);
  READ(CL_DEVICE_MEM_BASE_ADDR_ALIGN, align_bits);
#undef READ
  read_text(id, CL_DEVICE_NAME, device->name, sizeof device->name, "a device without a name");
  if (code) return ocl_driver_error(code, "opencl: the device '%s' does not report its limits", device->name);
  icd.clGetDeviceInfo(id, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof fp64, &fp64, NULL); /* fails on old devices without it */
  icd.clGetDeviceInfo(id, CL_DEVICE_SVM_CAPABILITIES, sizeof device->svm, &device->svm, NULL);
  if (icd.clCreateProgramWithIL) icd.clGetDeviceInfo(id, CL_DEVICE_IL_VERSION, sizeof il - 1, il, NULL);
  device->fp64 = fp64 != 0;
  device->has_il = strstr(il, "SPIR-V") != NULL;
  device->alignment = align_bits / 8 > 128 ? align_bits / 8 : 128;
  read_text(id, CL_DEVICE_VERSION, device->version, sizeof device->version, "?");
  read_text(id, CL_DRIVER_VERSION, device->driver, sizeof device->driver, "?");
  device->user_events_hang = strncmp(device->name, "basic", 5) == 0 || strncmp(device->name, "cpu-minimal", 11) == 0;
  device->subgroup = read_subgroup(device);
  read_architecture(device);
  icd.clGetDeviceInfo(id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, sizeof device->cache_bytes, &device->cache_bytes, NULL);
  read_place(device);
  const hal_status_t status = check_limits(device);
  return status ? status : read_choices(device);
}

hal_status_t hal_plugin_device_info(int32_t ordinal, hal_device_info_t *out_info) {
  const hal_status_t status = ocl_check_device(ordinal);
  if (status) return status;
  const ocl_device_t *device = &ocl.devices[ordinal];
  hal_device_info_t info = {
      .struct_size = out_info->struct_size,
      /* A device that runs host functions in the caller's thread blocks the caller. */
      .flags = (device->user_events_hang ? 0 : HAL_DEVICE_ASYNC) | (device->fp64 ? HAL_DEVICE_FP64 : 0) |
               (device->few_wide ? HAL_DEVICE_CPU : 0) | ocl_memory_flags(),
      .total_memory = device->global_bytes,
      .compute_units = device->units,
      .subgroup_size = device->subgroup,
      .max_block_threads = (uint32_t)device->most_threads,
      .max_shared_bytes = device->local_bytes < UINT32_MAX ? (uint32_t)device->local_bytes : UINT32_MAX,
      .pci_domain = device->pci[0],
      .pci_bus = device->pci[1],
      .pci_device = device->pci[2],
      .base_alignment = ocl_memory_alignment(device),
      .l2_bytes = device->cache_bytes,
      .copy_engines = device->copy_engines,
      .pci_function = device->pci[3]};
  memcpy(info.architecture, device->architecture, sizeof info.architecture);
  snprintf(info.driver_version, sizeof info.driver_version, "%.63s", device->driver);
  memcpy(info.name, device->name, sizeof info.name);
  memcpy(info.uuid, device->uuid, sizeof info.uuid);
  snprintf(info.dialects, sizeof info.dialects, "opencl-c%s,binary", device->has_il ? ",spirv" : "");
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

/* All devices share one context, so the driver moves memory between them. */
hal_status_t hal_plugin_device_peer_query(int32_t device, int32_t peer, int32_t *out_accessible) {
  hal_status_t status = ocl_check_device(device);
  if (!status) status = ocl_check_device(peer);
  if (!status) *out_accessible = 1;
  return status;
}

hal_status_t hal_plugin_device_peer_enable(int32_t device, int32_t peer) {
  const hal_status_t status = ocl_check_device(device);
  return status ? status : ocl_check_device(peer);
}

hal_status_t ocl_queue_create(const ocl_device_t *device, int32_t priority, cl_command_queue *out_queue) {
  cl_int code = CL_SUCCESS;
  cl_queue_properties list[5] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0, 0, 0};
  if (priority && ocl_device_has(device->id, "cl_khr_priority_hints")) {
    list[2] = CL_QUEUE_PRIORITY_KHR;
    list[3] = priority < 0 ? CL_QUEUE_PRIORITY_HIGH_KHR : CL_QUEUE_PRIORITY_LOW_KHR;
  }
  cl_command_queue queue = icd.clCreateCommandQueueWithProperties && strncmp(device->version, "OpenCL 1", 8) != 0
                               ? icd.clCreateCommandQueueWithProperties(ocl.context, device->id, list, &code)
                               : icd.clCreateCommandQueue(ocl.context, device->id, CL_QUEUE_PROFILING_ENABLE, &code);
  if (!code && !queue) code = CL_INVALID_COMMAND_QUEUE;
  if (code) return ocl_driver_error(code, "opencl: cannot create a queue of '%s'", device->name);
  *out_queue = queue;
  return HAL_OK;
}
