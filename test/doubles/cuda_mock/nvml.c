/* nvml.c: a libnvidia-ml.so.1 whose devices are those of the libcuda.so.1 in the same folder. Only memory is
 * measured: NVML_MOCK sets the other numbers, and omitted ones are not supported. */
#define _GNU_SOURCE /* RTLD_NOLOAD */
#include "nvml_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define DECLARE(name, parameters) API nvmlReturn_t name parameters;
NVML_CALLS(DECLARE)
NVML_LATER_CALLS(DECLARE)

enum { DEVICES = 8 };
struct nvmlDevice_st {
  int ordinal;
};
static struct nvmlDevice_st devices[DEVICES];
static int initialised;

/* NVML_MOCK=name=number,...; the names are those below. */
static const char all[] =
    "utilization=37,memory_utilization=21,temperature=41,power=87250,power_limit=350000,energy=123456789,clock=1410,"
    "memory_clock=1593,fan=30";

static int find(const char *name, unsigned long long *out_value) {
  const char *const setting = getenv("NVML_MOCK");
  const size_t length = strlen(name);
  for (const char *at = setting ? setting : all; at && *at; at = strchr(at, ','), at += at != NULL)
    if (strncmp(at, name, length) == 0 && at[length] == '=') return *out_value = strtoull(at + length + 1, NULL, 10), 1;
  return 0;
}

/* A function of the driver's library that this process has loaded; NULL = not loaded. */
static void *of_driver(const char *name) {
  void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void *const symbol = driver ? dlsym(driver, name) : NULL;
  if (driver) dlclose(driver);
  return symbol;
}

static nvmlReturn_t check(nvmlDevice_t device) {
  unsigned long long code = 0;
  if (!initialised) return NVML_ERROR_UNINITIALIZED;
  if (find("fails", &code)) return (nvmlReturn_t)code;
  return device < devices || device >= devices + DEVICES ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

static nvmlReturn_t number(nvmlDevice_t device, const char *name, unsigned int *out_value) {
  unsigned long long value = 0;
  const nvmlReturn_t code = check(device);
  if (code) return code;
  if (!find(name, &value)) return NVML_ERROR_NOT_SUPPORTED;
  *out_value = (unsigned)value;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void) {
  unsigned long long refused = 0;
  if (find("init", &refused)) return (nvmlReturn_t)refused;
  for (int i = 0; i < DEVICES; i++) devices[i].ordinal = i;
  initialised = 1;
  return NVML_SUCCESS;
}

/* The driver assigns the bus i + 1 to device i. */
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device) {
  unsigned domain = 0, bus = 0, slot = 0;
  int count = 0, (*count_devices)(int *) = NULL;
  void *const symbol = of_driver("cuDeviceGetCount");
  memcpy(&count_devices, &symbol, sizeof symbol);
  if (!initialised) return NVML_ERROR_UNINITIALIZED;
  if (!count_devices || count_devices(&count) || sscanf(address, "%x:%x:%x.0", &domain, &bus, &slot) != 3 || domain ||
      slot)
    return NVML_ERROR_INVALID_ARGUMENT;
  if (bus < 1 || bus > (unsigned)count) return NVML_ERROR_NOT_FOUND;
  *device = &devices[bus - 1];
  return NVML_SUCCESS;
}

/* ---- numbers ---- */

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  void (*ask)(int, unsigned long long *, unsigned long long *) = NULL;
  void *const symbol = of_driver("cuda_mock_memory");
  const nvmlReturn_t code = check(device);
  if (code) return code;
  memcpy(&ask, &symbol, sizeof symbol);
  if (!ask) return NVML_ERROR_NOT_SUPPORTED;
  ask(device->ordinal, &memory->used, &memory->total);
  memory->free = memory->total - memory->used;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *shares) {
  nvmlUtilization_t found = {0, 0};
  nvmlReturn_t code = number(device, "utilization", &found.gpu);
  if (!code) code = number(device, "memory_utilization", &found.memory);
  if (!code) *shares = found;
  return code;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t which, unsigned int *degrees) {
  return which == NVML_TEMPERATURE_GPU ? number(device, "temperature", degrees) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts) {
  return number(device, "power", milliwatts);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatts) {
  return number(device, "power_limit", milliwatts);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoules) {
  const nvmlReturn_t code = check(device);
  return code ? code : find("energy", millijoules) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t which, unsigned int *megahertz) {
  return number(device, which == NVML_CLOCK_MEM ? "memory_clock" : "clock", megahertz);
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent) {
  return number(device, "fan", percent);
}

/* ---- versions ---- */

/* NVML_MOCK=versions=0: like a driver that does not report them. */
static nvmlReturn_t text(const char *version, char *out, unsigned int room) {
  unsigned long long told = 1;
  if (!initialised) return NVML_ERROR_UNINITIALIZED;
  find("versions", &told);
  if (!told) return NVML_ERROR_NOT_SUPPORTED;
  if (strlen(version) >= room) return NVML_ERROR_INSUFFICIENT_SIZE;
  snprintf(out, room, "%s", version);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned int room) { return text("580.65.06", out, room); }

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *out, unsigned int room) {
  const nvmlReturn_t code = check(device);
  return code ? code : text(device->ordinal ? "96.00.74.00.02" : "96.00.74.00.01", out, room);
}

/* ---- events ---- */

/* One set, with one event at a time, which a test in the process sends. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  unsigned long long types[DEVICES]; /* that were registered */
  int is_set;
  nvmlEventData_t event;
} events = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Sends an event if it is registered, and waits until it is received. Returns whether it was registered. */
API int nvml_mock_event(int ordinal, unsigned long long type, unsigned long long data);
int nvml_mock_event(int ordinal, unsigned long long type, unsigned long long data) {
  pthread_mutex_lock(&events.lock);
  const int wanted = (events.types[ordinal] & type) != 0;
  if (wanted) {
    events.event = (nvmlEventData_t){.device = &devices[ordinal], .eventType = type, .eventData = data};
    events.is_set = 1;
    pthread_cond_broadcast(&events.changed);
    while (events.is_set) pthread_cond_wait(&events.changed, &events.lock);
  }
  pthread_mutex_unlock(&events.lock);
  return wanted;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
  if (!initialised) return NVML_ERROR_UNINITIALIZED;
  *set = (nvmlEventSet_t)(void *)&events;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
  const nvmlReturn_t code = check(device);
  if (!code) *types = 0x1f; /* PState among them */
  return code;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
  const nvmlReturn_t code = check(device);
  if (code) return code;
  if ((void *)set != &events || types & ~0x1fULL) return NVML_ERROR_INVALID_ARGUMENT;
  pthread_mutex_lock(&events.lock);
  events.types[device->ordinal] |= types;
  pthread_mutex_unlock(&events.lock);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int milliseconds) {
  struct timespec end;
  int code = 0;
  if ((void *)set != &events) return NVML_ERROR_INVALID_ARGUMENT;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_nsec += (long)(milliseconds % 1000) * 1000000;
  end.tv_sec += milliseconds / 1000 + end.tv_nsec / 1000000000;
  end.tv_nsec %= 1000000000;
  pthread_mutex_lock(&events.lock);
  while (!events.is_set && !code) code = pthread_cond_timedwait(&events.changed, &events.lock, &end);
  const int found = events.is_set;
  if (found) *data = events.event;
  events.is_set = 0;
  pthread_cond_broadcast(&events.changed);
  pthread_mutex_unlock(&events.lock);
  return found ? NVML_SUCCESS : NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
  const nvmlReturn_t code = check(device);
  if (code) return code;
  return find("throttle", reasons) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* ---- processes ---- */

/* This process, if it has memory there, once for each of `parts` parts of a divided device. In addition, `others`
 * further processes, numbered from 100,000 on, whose memory is not reported. */
static nvmlReturn_t processes(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *list) {
  nvmlMemory_t memory = {0, 0, 0};
  unsigned long long others = 0, parts = 1;
  const nvmlReturn_t code = nvmlDeviceGetMemoryInfo(device, &memory);
  if (code) return code;
  find("others", &others);
  find("parts", &parts);
  const unsigned room = *count, own = memory.used ? (unsigned)parts : 0;
  *count = own + (unsigned)others;
  if (room < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < own; i++) list[i] = (nvmlProcessInfo_t){(unsigned)getpid(), memory.used / own, i, i};
  for (unsigned i = own; i < *count; i++) list[i] = (nvmlProcessInfo_t){100000 + i, ~0ULL, ~0u, ~0u};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *list) {
  return processes(device, count, list);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *list) {
  return processes(device, count, list);
}
