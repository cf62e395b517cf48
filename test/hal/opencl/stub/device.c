/* device.c: the stub's platform and device, and the properties that they report. */
#include <stdio.h>

#include "stub.h"

struct _cl_platform_id {
  int unused;
};
struct _cl_device_id {
  int unused;
};

static struct _cl_platform_id the_platform;
static struct _cl_device_id the_device;

int stub_says(const char *word, unsigned long long *out_number) {
  const char *at = getenv("CL_STUB");
  const size_t length = strlen(word);
  for (; at && (at = strstr(at, word)); at += length) {
    if (at != getenv("CL_STUB") && at[-1] != ' ') continue;
    if (at[length] && at[length] != ' ' && at[length] != '=') continue;
    if (out_number) *out_number = at[length] == '=' ? strtoull(at + length + 1, NULL, 0) : 1;
    return 1;
  }
  return 0;
}

void *stub_made(const char *what, void *object, cl_int *code) {
  char word[64];
  snprintf(word, sizeof word, "null-%s", what);
  if (code) *code = CL_SUCCESS;
  return stub_says(word, NULL) ? NULL : object;
}

cl_int stub_answer(const void *answer, size_t size, size_t room, void *value, size_t *out_size) {
  if (value && room < size) return CL_INVALID_VALUE;
  if (value) memcpy(value, answer, size);
  if (out_size) *out_size = size;
  return CL_SUCCESS;
}

static cl_int answer_number(const char *word, unsigned long long number, size_t size, size_t room, void *value,
                            size_t *out_size) {
  stub_says(word, &number);
  const cl_uint narrow = (cl_uint)number;
  return stub_answer(size == sizeof narrow ? (const void *)&narrow : &number, size, room, value, out_size);
}

/* A text. "endless": the text fills the buffer to its last byte. "mute": no text, although the call succeeds. */
static cl_int answer_text(const char *text, size_t room, void *value, size_t *out_size) {
  if (stub_says("mute", NULL)) {
    if (out_size) *out_size = 0;
    return CL_SUCCESS;
  }
  if (stub_says("endless", NULL) && value) {
    memset(value, 'x', room);
    if (out_size) *out_size = room;
    return CL_SUCCESS;
  }
  return stub_answer(text, strlen(text) + 1, room, value, out_size);
}

ENTRY(cl_int) clGetPlatformIDs(cl_uint room, cl_platform_id *platforms, cl_uint *count) {
  unsigned long long told = 1;
  stub_says("platforms", &told);
  if (platforms && room && told) platforms[0] = &the_platform;
  if (count) *count = (cl_uint)told;
  return stub_says("platforms-fail", NULL) ? -1001 : CL_SUCCESS;
}

ENTRY(cl_int)
clGetPlatformInfo(cl_platform_id platform, cl_platform_info what, size_t room, void *value, size_t *size) {
  (void)platform, (void)what;
  return answer_text("stub platform", room, value, size);
}

ENTRY(cl_int)
clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint room, cl_device_id *devices, cl_uint *count) {
  unsigned long long told = 1;
  stub_says("devices", &told);
  if (platform != &the_platform || (type != CL_DEVICE_TYPE_ALL && !(type & CL_DEVICE_TYPE_GPU)) || !told)
    return CL_DEVICE_NOT_FOUND;
  if (devices && room) devices[0] = &the_device;
  if (count) *count = (cl_uint)told;
  return CL_SUCCESS;
}

ENTRY(cl_int)
clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t room, void *value, size_t *size) {
  if (device != &the_device) return CL_INVALID_DEVICE;
  if (stub_says("info-fails", NULL)) return CL_OUT_OF_RESOURCES;
  switch (what) {
    case CL_DEVICE_AVAILABLE:
    case CL_DEVICE_COMPILER_AVAILABLE:
      return answer_number("works", CL_TRUE, sizeof(cl_bool), room, value, size);
    case CL_DEVICE_TYPE:
      return answer_number("type", CL_DEVICE_TYPE_GPU, sizeof(cl_device_type), room, value, size);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
      return answer_number("memory", 1ull << 30, sizeof(cl_ulong), room, value, size);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
      return answer_number("allocation", 1ull << 28, sizeof(cl_ulong), room, value, size);
    case CL_DEVICE_LOCAL_MEM_SIZE:
      return answer_number("local", 1 << 15, sizeof(cl_ulong), room, value, size);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
      return answer_number("threads", 256, sizeof(size_t), room, value, size);
    case CL_DEVICE_MAX_COMPUTE_UNITS:
      return answer_number("units", 4, sizeof(cl_uint), room, value, size);
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN:
      return answer_number("align", 1024, sizeof(cl_uint), room, value, size);
    case CL_DEVICE_SVM_CAPABILITIES:
      return answer_number("svm", CL_DEVICE_SVM_COARSE_GRAIN_BUFFER | CL_DEVICE_SVM_FINE_GRAIN_BUFFER,
                           sizeof(cl_device_svm_capabilities), room, value, size);
    case CL_DEVICE_NAME:
      return answer_text("stub device", room, value, size);
    case CL_DEVICE_VERSION:
      return answer_text("OpenCL 3.0 stub", room, value, size);
    case CL_DRIVER_VERSION:
      return answer_text("1.0", room, value, size);
    case CL_DEVICE_EXTENSIONS:
      return answer_text(stub_says("subgroups", NULL) ? "cl_intel_required_subgroup_size" : "cl_khr_none", room, value,
                         size);
    case 0x4108: /* CL_DEVICE_SUB_GROUP_SIZES_INTEL: reports more bytes than the buffer has */
      if (value) memset(value, 0, room);
      if (size) *size = (size_t)1 << 20;
      return CL_SUCCESS;
    default:
      return CL_INVALID_VALUE;
  }
}

ENTRY(void *) clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name) {
  (void)platform, (void)name;
  return NULL;
}
