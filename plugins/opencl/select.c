/* select.c: selects devices: all of one platform, so that they share a context. It is the first platform with a GPU if
 * there is one, or the devices that HAL_OPENCL_DEVICE names. */
#include <ctype.h>
#include <hal/plugin_count.h>
#include <hal/plugin_setting.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl.h"

enum { MAX_PLATFORMS = 32, NAME_BYTES = 256 };

/* The parsed value of HAL_OPENCL_DEVICE. */
typedef struct wish_s {
  const char *text; /* as written, "" = unset */
  cl_device_type type;
  long platform, device; /* -1: any */
  const char *part;      /* of a name, or NULL */
} wish_t;

static const struct {
  const char *name;
  cl_device_type type;
} types[] = {{"gpu", CL_DEVICE_TYPE_GPU}, {"accelerator", CL_DEVICE_TYPE_ACCELERATOR}, {"cpu", CL_DEVICE_TYPE_CPU}};

/* Parses "P" or "P:D". Returns whether the text has this form. */
static int read_numbers(const char *text, long *out_platform, long *out_device) {
  char *end;
  if (!isdigit((unsigned char)*text)) return 0;
  *out_platform = strtol(text, &end, 10);
  *out_device = -1;
  if (*end == ':' && isdigit((unsigned char)end[1])) *out_device = strtol(end + 1, &end, 10);
  return !*end;
}

static wish_t read_wish(void) {
  const char *text = hal_setting("HAL_OPENCL_DEVICE");
  wish_t wish = {.text = text ? text : "", .type = CL_DEVICE_TYPE_ALL, .platform = -1, .device = -1};
  if (!*wish.text) return wish;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(wish.text, types[i].name) == 0) wish.type = types[i].type;
  if (wish.type == CL_DEVICE_TYPE_ALL && !read_numbers(wish.text, &wish.platform, &wish.device)) {
    wish.platform = wish.device = -1;
    wish.part = wish.text;
  }
  return wish;
}

/* Returns whether `name` contains `part`, ignoring case. */
static int holds(const char *name, const char *part) {
  const size_t length = strlen(part);
  for (; *name; name++) {
    size_t i = 0;
    while (i < length && tolower((unsigned char)name[i]) == tolower((unsigned char)part[i])) i++;
    if (i == length) return 1;
  }
  return 0;
}

static int platform_is_meant(const wish_t *wish, cl_platform_id platform) {
  char name[NAME_BYTES] = "";
  return wish->part && !icd.clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name - 1, name, NULL) &&
         holds(name, wish->part);
}

static int device_is_meant(const wish_t *wish, cl_device_id device, long number) {
  char name[NAME_BYTES] = "";
  if (wish->device >= 0) return number == wish->device;
  if (!wish->part) return 1;
  return !icd.clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name - 1, name, NULL) && holds(name, wish->part);
}

/* Devices that cannot compute are skipped. */
static int device_works(cl_device_id device) {
  cl_bool available = CL_FALSE, compiler = CL_FALSE;
  if (!device) return 0;
  icd.clGetDeviceInfo(device, CL_DEVICE_AVAILABLE, sizeof available, &available, NULL);
  icd.clGetDeviceInfo(device, CL_DEVICE_COMPILER_AVAILABLE, sizeof compiler, &compiler, NULL);
  return available && compiler;
}

static int rank_of(cl_device_id device) { /* GPUs and accelerators first */
  cl_device_type type = 0;
  icd.clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, NULL);
  return type & CL_DEVICE_TYPE_GPU ? 0 : type & CL_DEVICE_TYPE_ACCELERATOR ? 1 : 2;
}

/* Returns the best rank of a platform's devices that match; 3 = there are none. */
static int rank_of_platform(const wish_t *wish, cl_platform_id platform) {
  cl_device_id devices[OCL_MAX_DEVICES] = {NULL}; /* the count may exceed the number of written ids */
  cl_uint count = 0;
  int best = 3;
  if (icd.clGetDeviceIDs(platform, wish->type, OCL_MAX_DEVICES, devices, &count)) return best;
  for (cl_uint i = 0; i < count && i < OCL_MAX_DEVICES; i++) {
    if (!device_works(devices[i])) continue;
    const int rank = rank_of(devices[i]);
    if (rank < best) best = rank;
  }
  return best;
}

/* Selects the devices of a platform that match. */
static void take_platform(const wish_t *wish, cl_platform_id platform, ocl_selection_t *selection) {
  cl_device_id devices[OCL_MAX_DEVICES] = {NULL}; /* the count may exceed the number of written ids */
  cl_uint count = 0;
  if (icd.clGetDeviceIDs(platform, wish->type, OCL_MAX_DEVICES, devices, &count)) return; /* CL_DEVICE_NOT_FOUND */
  if (count > OCL_MAX_DEVICES) {
    hal_host->log(HAL_LOG_WARNING, "opencl: a platform has more than 64 devices; HAL_OPENCL_DEVICE chooses among them");
    count = OCL_MAX_DEVICES;
  }
  const int whole = platform_is_meant(wish, platform);
  selection->platform = platform;
  for (int rank = 0; rank < 3; rank++)
    for (cl_uint i = 0; i < count; i++)
      if (device_works(devices[i]) && rank_of(devices[i]) == rank &&
          (whole || device_is_meant(wish, devices[i], (long)i)))
        selection->devices[selection->count++] = devices[i];
}

static void say_none(const wish_t *wish, cl_uint platforms, char *why) {
  if (*wish->text)
    snprintf(why, HAL_COUNT_WHY,
             "opencl: HAL_OPENCL_DEVICE=%.200s matches no device of the %u OpenCL platforms here that can compile; set "
             "it to "
             "gpu, accelerator or cpu, to P or P:D (platform and device as 'clinfo -l' numbers them) or to a part of a "
             "name, or unset it",
             wish->text, (unsigned)platforms);
  else
    snprintf(why, HAL_COUNT_WHY,
             "opencl: the %u OpenCL platforms here have no device that can compile; install the driver of a device and "
             "look at 'clinfo -l'",
             (unsigned)platforms);
}

hal_status_t ocl_select(ocl_selection_t *out_selection, char *why) {
  cl_platform_id platforms[MAX_PLATFORMS] = {NULL};
  cl_uint count = 0;
  const cl_int code = icd.clGetPlatformIDs(MAX_PLATFORMS, platforms, &count);
  if (code || !count) {
    snprintf(why, HAL_COUNT_WHY,
             "opencl: there is an OpenCL loader but no driver (%s); install one, on a CPU the Debian package "
             "pocl-opencl-icd, and look at 'clinfo -l' and /etc/OpenCL/vendors",
             code ? ocl_error_name(code) : "0 platforms");
    return HAL_UNAVAILABLE;
  }
  if (count > MAX_PLATFORMS) count = MAX_PLATFORMS;
  const wish_t wish = read_wish();
  ocl_selection_t selection = {.count = 0};
  for (int rank = 0; rank < 3; rank++)
    for (cl_uint i = 0; i < count && !selection.count; i++)
      if (platforms[i] && (wish.platform < 0 || wish.platform == (long)i) &&
          rank_of_platform(&wish, platforms[i]) == rank)
        take_platform(&wish, platforms[i], &selection);
  if (!selection.count) {
    say_none(&wish, count, why);
    return HAL_UNAVAILABLE;
  }
  *out_selection = selection;
  return HAL_OK;
}
