/* nvml_api.h: the declarations of NVML, the library of NVIDIA's driver for measurements of devices, that the plugin
 * uses. As driver_api.h, it is compared with the real nvml.h by the same test: if that is included before, it provides
 * the types, and only the lists are defined here. */
#ifndef NVML_API_H_
#define NVML_API_H_

#include <stddef.h>

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

#define NVML_STATUSES(X)                    \
  X(NVML_SUCCESS, 0)                        \
  X(NVML_ERROR_UNINITIALIZED, 1)            \
  X(NVML_ERROR_INVALID_ARGUMENT, 2)         \
  X(NVML_ERROR_NOT_SUPPORTED, 3)            \
  X(NVML_ERROR_NO_PERMISSION, 4)            \
  X(NVML_ERROR_NOT_FOUND, 6)                \
  X(NVML_ERROR_INSUFFICIENT_SIZE, 7)        \
  X(NVML_ERROR_DRIVER_NOT_LOADED, 9)        \
  X(NVML_ERROR_TIMEOUT, 10)                 \
  X(NVML_ERROR_FUNCTION_NOT_FOUND, 13)      \
  X(NVML_ERROR_GPU_IS_LOST, 15)             \
  X(NVML_ERROR_LIB_RM_VERSION_MISMATCH, 18) \
  X(NVML_ERROR_UNKNOWN, 999)

#define NVML_CLOCKS(X) X(NVML_CLOCK_SM, 1) X(NVML_CLOCK_MEM, 2)
#define NVML_TEMPERATURES(X) X(NVML_TEMPERATURE_GPU, 0)
#define NVML_EVENTS(X)                 \
  X(nvmlEventTypeSingleBitEccError, 1) \
  X(nvmlEventTypeDoubleBitEccError, 2) \
  X(nvmlEventTypeXidCriticalError, 8)  \
  X(nvmlEventTypeClock, 16)
/* The reasons of nvmlDeviceGetCurrentClocksThrottleReasons that are power or temperature. */
#define NVML_THROTTLES(X)                            \
  X(nvmlClocksThrottleReasonSwPowerCap, 0x4)         \
  X(nvmlClocksThrottleReasonHwSlowdown, 0x8)         \
  X(nvmlClocksThrottleReasonSwThermalSlowdown, 0x20) \
  X(nvmlClocksThrottleReasonHwThermalSlowdown, 0x40) \
  X(nvmlClocksThrottleReasonHwPowerBrakeSlowdown, 0x80)
#define NVML_ALL_NUMBERS(X) NVML_STATUSES(X) NVML_CLOCKS(X) NVML_TEMPERATURES(X) NVML_EVENTS(X) NVML_THROTTLES(X)

/* ---- types, unless the vendor's header defined them ------------------------------------------------------------- */
#ifndef NVML_API_VERSION
#define NVML_ENUMERATOR(name, number) name = number,
typedef enum { NVML_STATUSES(NVML_ENUMERATOR) } nvmlReturn_t;
typedef enum { NVML_CLOCKS(NVML_ENUMERATOR) } nvmlClockType_t;
typedef enum { NVML_TEMPERATURES(NVML_ENUMERATOR) } nvmlTemperatureSensors_t;
enum { NVML_EVENTS(NVML_ENUMERATOR) NVML_THROTTLES(NVML_ENUMERATOR) };
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;
typedef struct nvmlEventData_st {
  nvmlDevice_t device;
  unsigned long long eventType, eventData; /* eventData: the number of an XID error */
  unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;
typedef struct {
  unsigned int gpu, memory;
} nvmlUtilization_t;
typedef struct {
  unsigned long long total, free, used;
} nvmlMemory_t;
typedef struct {
  unsigned int pid;
  unsigned long long usedGpuMemory; /* all bits set: unknown */
  unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
#endif

/* X(expression, number): the memory layout of the structs. */
#define NVML_LAYOUTS(X)                            \
  X(sizeof(nvmlReturn_t), 4)                       \
  X(offsetof(nvmlUtilization_t, memory), 4)        \
  X(sizeof(nvmlUtilization_t), 8)                  \
  X(offsetof(nvmlMemory_t, used), 16)              \
  X(sizeof(nvmlMemory_t), 24)                      \
  X(offsetof(nvmlProcessInfo_t, usedGpuMemory), 8) \
  X(offsetof(nvmlEventData_t, eventData), 16)      \
  X(sizeof(nvmlEventData_t), 32)                   \
  X(sizeof(nvmlProcessInfo_t), 24)

/* ---- functions -------------------------------------------------------------------------------------------------- */

/* X(name, parameters): functions of every supported driver. */
#define NVML_CALLS(X)                                                                                       \
  X(nvmlInit_v2, (void))                                                                                    \
  X(nvmlDeviceGetHandleByPciBusId_v2, (const char *address, nvmlDevice_t *device))                          \
  X(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t * memory))                                  \
  X(nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, nvmlUtilization_t * shares))                       \
  X(nvmlDeviceGetTemperature, (nvmlDevice_t device, nvmlTemperatureSensors_t which, unsigned int *degrees)) \
  X(nvmlDeviceGetPowerUsage, (nvmlDevice_t device, unsigned int *milliwatts))                               \
  X(nvmlDeviceGetEnforcedPowerLimit, (nvmlDevice_t device, unsigned int *milliwatts))                       \
  X(nvmlDeviceGetTotalEnergyConsumption, (nvmlDevice_t device, unsigned long long *millijoules))            \
  X(nvmlDeviceGetClockInfo, (nvmlDevice_t device, nvmlClockType_t which, unsigned int *megahertz))          \
  X(nvmlDeviceGetFanSpeed, (nvmlDevice_t device, unsigned int *percent))

/* Functions of some drivers: the later one also returns MIG's processes, in the same struct. NULL if the driver lacks
 * it. */
#define NVML_LATER_CALLS(X)                                                                                       \
  X(nvmlSystemGetDriverVersion, (char *text, unsigned int room))                                                  \
  X(nvmlEventSetCreate, (nvmlEventSet_t * set))                                                                   \
  X(nvmlDeviceGetSupportedEventTypes, (nvmlDevice_t device, unsigned long long *types))                           \
  X(nvmlDeviceRegisterEvents, (nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set))                \
  X(nvmlEventSetWait_v2, (nvmlEventSet_t set, nvmlEventData_t * data, unsigned int milliseconds))                 \
  X(nvmlDeviceGetCurrentClocksThrottleReasons, (nvmlDevice_t device, unsigned long long *reasons))                \
  X(nvmlDeviceGetVbiosVersion, (nvmlDevice_t device, char *text, unsigned int room))                              \
  X(nvmlDeviceGetComputeRunningProcesses_v2, (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *list)) \
  X(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *list))

#endif /* NVML_API_H_ */
