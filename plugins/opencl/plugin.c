/* plugin.c: what the OpenCL plugin is, its beginning and end in a process, and the child of a fork. */
#define _GNU_SOURCE /* pipe2 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "opencl.h"

ocl_state_t ocl;

hal_status_t ocl_check_device(int32_t device) {
  if (OCL_LIKELY((uint32_t)device < (uint32_t)ocl.device_count &&
                 !atomic_load_explicit(&ocl.forked, memory_order_relaxed)))
    return HAL_OK;
  if (atomic_load(&ocl.forked))
    return ocl_error(
        HAL_FAILED_PRECONDITION, 0,
        "opencl: this process was forked from one that had started the driver, which does not survive that; "
        "start processes with 'spawn'");
  if (!ocl.device_count)
    return ocl_error(HAL_FAILED_PRECONDITION, 0, "opencl: device %d was used before init or after shutdown",
                     (int)device);
  return ocl_error(HAL_INVALID_ARGUMENT, 0, "opencl: there is no device %d, only 0 to %d", (int)device,
                   (int)ocl.device_count - 1);
}

/* The device type in torch is "ocl": torch reserves "opencl". */
hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  hal_plugin_info_t info = {.struct_size = out_info->struct_size,
                            .name = "ocl",
                            .vendor = "torch_backend: any device with an OpenCL driver",
                            .version = "0.1.0",
                            .flags = HAL_PLUGIN_ON_REQUEST};
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}

hal_status_t hal_plugin_probe(uint32_t flags) {
  (void)flags;
  return ocl_icd_open();
}

/* ---- counting ---------------------------------------------------------------------------------------------------------------- */

enum { COUNT_SECONDS = 30 }; /* for a driver that looks for its devices; the slowest seen took three */

/* What the child that counts tells. */
typedef struct count_s {
  hal_status_t status;
  int32_t count;
  char why[OCL_WHY_BYTES];
} count_t;

static void tell_count(int pipe_end) {
  count_t told = {.status = HAL_OK};
  ocl_selection_t selection = {.count = 0};
  told.status = ocl_select(&selection, told.why);
  told.count = selection.count;
  const ssize_t written = write(pipe_end, &told, sizeof told); /* within PIPE_BUF: at once or not at all */
  _exit(written == (ssize_t)sizeof told ? 0 : 1);
}

static int64_t seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec;
}

/* Reads what the child tells, which is there at once or not at all. Returns 1, 0 = it ended without a word, -1 = it has said nothing
 * for too long. */
static int hear(int pipe_end, count_t *out_told) {
  const int64_t end = seconds_now() + COUNT_SECONDS;
  struct pollfd waited = {.fd = pipe_end, .events = POLLIN};
  for (;;) {
    const int64_t left = end - seconds_now();
    const int ready = left > 0 ? poll(&waited, 1, (int)left * 1000) : 0;
    if (!ready) return -1;
    if (ready < 0 && errno != EINTR) return 0;
    if (ready < 0) continue;
    const ssize_t bytes = read(pipe_end, out_told, sizeof *out_told);
    if (bytes >= 0 || errno != EINTR) return bytes == (ssize_t)sizeof *out_told;
  }
}

/* Counts in a child, since counting starts the driver, which would not survive a later fork of this process. */
static hal_status_t count_in_child(count_t *out_told) {
  int ends[2];
  const hal_status_t status = ocl_icd_open();
  if (status) return status;
  if (pipe2(ends, O_CLOEXEC))
    return ocl_error(HAL_INTERNAL, errno, "opencl: no pipe to count the devices: %s", strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    tell_count(ends[1]);
  }
  const int fork_error = errno;
  close(ends[1]);
  const int heard = child > 0 ? hear(ends[0], out_told) : 0;
  close(ends[0]);
  if (heard < 0) kill(child, SIGKILL);
  while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
  }
  if (child < 0)
    return ocl_error(HAL_INTERNAL, fork_error, "opencl: no process to count the devices: %s", strerror(fork_error));
  if (heard < 0)
    return ocl_error(HAL_UNAVAILABLE, 0,
                     "opencl: a driver did not count its devices within %d s; look at 'clinfo -l', and set "
                     "HAL_OPENCL_DEVICE to a platform that works",
                     COUNT_SECONDS);
  if (!heard)
    return ocl_error(HAL_UNAVAILABLE, 0,
                     "opencl: a driver ended the process that counted the devices; look at 'clinfo -l', and set "
                     "HAL_OPENCL_DEVICE to a platform that works");
  return HAL_OK;
}

static count_t told = {.count = -1}; /* the answer, which must not change within a process */

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  hal_status_t status = HAL_OK;
  pthread_mutex_lock(&lock);
  if (told.count < 0) {
    count_t heard = {.count = -1};
    status = count_in_child(&heard);
    if (!status) told = heard;
  }
  if (!status && told.status) status = ocl_error(told.status, 0, "%s", told.why);
  if (!status) *out_count = told.count;
  pthread_mutex_unlock(&lock);
  return status;
}

/* ---- beginning and end ------------------------------------------------------------------------------------------------------- */

static void fork_child(void) {
  if (atomic_load(&ocl.ready)) atomic_store(&ocl.forked, 1);
}

static hal_status_t start_devices(const ocl_selection_t *selection) {
  cl_int code = CL_SUCCESS;
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)selection->platform, 0};
  ocl.platform = selection->platform;
  ocl.context = icd.clCreateContext(properties, (cl_uint)selection->count, selection->devices, NULL, NULL, &code);
  if (!code && !ocl.context) code = CL_INVALID_CONTEXT;
  if (code) return ocl_driver_error(code, "opencl: a context of %d devices cannot be made", (int)selection->count);
  for (int32_t i = 0; i < selection->count; i++) {
    ocl_device_t *device = &ocl.devices[i];
    hal_status_t status = ocl_device_read(device, selection->devices[i]);
    if (!status) status = ocl_queue_create(device, 0, &device->queue);
    if (status) return status;
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->profile.lock, NULL);
    ocl.device_count = i + 1;
  }
  return ocl_memory_choose();
}

static void stop_devices(void) {
  for (int32_t i = 0; i < OCL_MAX_DEVICES; i++)
    if (ocl.devices[i].queue) icd.clReleaseCommandQueue(ocl.devices[i].queue);
  if (ocl.context) icd.clReleaseContext(ocl.context);
  memset(ocl.devices, 0, sizeof ocl.devices);
  ocl.context = NULL;
  ocl.device_count = 0;
}

hal_status_t hal_plugin_init(const char *options) {
  static int fork_handled; /* init is never called by two threads at once */
  ocl_selection_t selection;
  if (atomic_load(&ocl.ready)) return atomic_load(&ocl.forked) ? ocl_check_device(0) : HAL_OK;
  if (options && *options)
    return ocl_error(HAL_INVALID_ARGUMENT, 0,
                     "opencl: unknown options '%s'; the settings are the variables HAL_OPENCL_*", options);
  char why[OCL_WHY_BYTES];
  hal_status_t status = ocl_icd_open();
  if (status) return status;
  status = ocl_select(&selection, why);
  if (status) return ocl_error(status, 0, "%s", why);
  if (told.count >= 0 && told.count != selection.count)
    return ocl_error(
        HAL_UNAVAILABLE, 0,
        "opencl: the drivers had %d devices when they were counted, and have %d now; start the process again",
        (int)told.count, (int)selection.count);
  if (!fork_handled && pthread_atfork(NULL, NULL, fork_child))
    return ocl_error(HAL_RESOURCE_EXHAUSTED, 0, "opencl: no memory to register the handler of fork");
  fork_handled = 1;
  status = start_devices(&selection);
  if (status) {
    stop_devices();
    return status;
  }
  atomic_store(&ocl.ready, 1);
  return HAL_OK;
}

/* Leaves the driver's objects to the end of the process: what the host still holds may be released after this. */
hal_status_t hal_plugin_shutdown(uint32_t flags) {
  (void)flags;
  if (atomic_load(&ocl.forked)) return HAL_OK;
  for (int32_t i = 0; i < ocl.device_count; i++) hal_plugin_device_synchronize(i);
  return HAL_OK;
}
