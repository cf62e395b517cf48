/* driver.h: shared by the files of the CPU Level Zero driver: a driver that the system's loader loads
 * (ZE_ENABLE_ALT_DRIVERS=FILE), whose devices are this machine's processors. See README.md. */
#ifndef ZE_CPU_DRIVER_H_
#define ZE_CPU_DRIVER_H_

#include <hal/plugin_spirv.h>
#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_DEVICES = 8, MAX_ARGS = HAL_SPIRV_ARGS, MAX_ARG_BYTES = 4096, MAX_PATTERN = 16, QUEUES = 4 };

/* ---- devices (device.c) ---- */

typedef struct device_s {
  int32_t ordinal;
  atomic_int lost;
  atomic_ullong used; /* bytes of device memory */
} device_t;

extern device_t devices[MAX_DEVICES];
extern uint32_t device_count;

/* Returns whether the driver lacks this feature: ZE_CPU_WITHOUT, a list of "ipc", "virtual", "pci" and "sysman". */
int driver_lacks(const char *what);

/* Nanoseconds of the host's monotonic clock, which is also each device's clock. */
uint64_t clock_now(void);

/* ---- faults (fault.c) ---- */

/* Faults that tests set: the number of failing calls. FAULT_LOST: the number of commands that still run before the
 * device is lost. FAULT_DELAY: microseconds by which each command is delayed. */
typedef enum fault_e {
  FAULT_ALLOC,  /* memory: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY */
  FAULT_HOST,   /* host memory, event pools: ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY */
  FAULT_MODULE, /* modules: ZE_RESULT_ERROR_MODULE_BUILD_FAILURE with a log */
  FAULT_APPEND, /* commands: ZE_RESULT_ERROR_INVALID_ARGUMENT */
  FAULT_LIST,   /* lists and queues: ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY */
  FAULT_LOST,
  FAULT_DELAY,
  FAULT_KINDS
} fault_e;

/* Reads ZE_CPU_FAULT: "alloc=2,delay=500". */
void fault_read(void);

/* Returns whether this call must fail, and counts it. */
int fault_takes(fault_e kind);

/* The delay of each command, and whether it is the one at which its device is lost. */
void fault_command(device_t *device);

/* ---- memory (memory.c) ---- */

void memory_fill_table(ze_mem_dditable_t *table);

/* Memory of a device in bytes: ZE_CPU_MEMORY, 8 GiB otherwise. */
unsigned long long memory_limit(void);

/* Reserves `size` bytes of a device's memory, or releases them. Returns whether they were available. */
int memory_take_bytes(device_t *device, size_t size);
void memory_return_bytes(device_t *device, size_t size);

/* Registers a range of addresses, or removes it. Addresses in it are checked when commands are appended. */
enum { RANGE_ALLOCATED, RANGE_OPENED, RANGE_RESERVED };
ze_result_t memory_note(void *base, size_t size, int kind, device_t *device);
ze_result_t memory_forget(const void *base, int kind, size_t *out_size);

/* ---- separate addresses and memory (virtual.c) ---- */

void virtual_fill_tables(ze_virtual_mem_dditable_t *addresses, ze_physical_mem_dditable_t *memories);

/* Returns whether `device` may access `size` bytes there: its own memory, a peer's, shared, host or any that is not
   the driver's. */
ze_result_t memory_check(const void *ptr, size_t size);

/* ---- events (event.c) ---- */

typedef struct event_s {
  device_t *device;
  int set;
  uint64_t begin, end;
} event_t;

void event_fill_tables(ze_event_pool_dditable_t *pools, ze_event_dditable_t *events, ze_fence_dditable_t *fences);

/* Signals an event whose work began then, or resets it, and wakes the waiters. */
void event_put(event_t *event, int set, uint64_t begin);

/* Waits until it is signaled. ZE_RESULT_NOT_READY = not within `timeout` nanoseconds; ZE_RESULT_ERROR_DEVICE_LOST =
   it or `device` is lost. */
ze_result_t event_wait(const event_t *event, const device_t *device, uint64_t timeout);

/* Wakes all waiters: a device is lost. */
void event_wake_all(void);

/* ---- modules and kernels (module.c, opencl.c) ---- */

typedef struct module_s {
  uint32_t *words; /* its SPIR-V */
  size_t word_count;
  struct _cl_program *program;
} module_t;

typedef struct kernel_s {
  module_t *module;
  char *name;
  hal_spirv_signature_t signature;
  uint32_t group[3];
  uint32_t sizes[MAX_ARGS], offsets[MAX_ARGS], used;
  uint64_t given; /* bit i: argument i was set */
  struct code_s *code;
  _Alignas(16) unsigned char values[MAX_ARG_BYTES];
} kernel_t;

/* A kernel and its arguments as they were when it was appended. */
typedef struct launch_s {
  struct code_s *code;
  uint32_t group[3], grid[3], count, bytes; /* bytes: of the values */
  uint32_t kinds[MAX_ARGS];
  uint32_t sizes[MAX_ARGS], offsets[MAX_ARGS];
  _Alignas(16) unsigned char values[];
} launch_t;

void module_fill_tables(ze_module_dditable_t *modules, ze_module_build_log_dditable_t *logs,
                        ze_kernel_dditable_t *kernels);

/* Creates the launch of the kernel with its current arguments; NULL if an argument is missing or memory is
   exhausted. Released by launch_release. */
launch_t *launch_make(const kernel_t *kernel, const ze_group_count_t *grid);
launch_t *launch_copy(const launch_t *launch);
void launch_release(launch_t *launch);

/* The OpenCL device that runs the kernels. `log` of LOG_BYTES receives the error. */
enum { LOG_BYTES = 4096 };
ze_result_t program_make(module_t *module, const char *options, char *log);
/* From the bytes of program_binary. */
ze_result_t program_load(module_t *module, const unsigned char *binary, size_t size, char *log);
/* Returns the binary's size, and its bytes if `data` is not NULL. */
ze_result_t program_binary(const module_t *module, size_t *size, unsigned char *data);
void program_release(module_t *module);
ze_result_t code_make(const module_t *module, const char *name, struct code_s **out_code);
void code_keep(struct code_s *code);
void code_release(struct code_s *code);
uint32_t code_local_bytes(const struct code_s *code);
/* Runs to completion. Returns 0, or the OpenCL error. */
int code_run(const launch_t *launch);

/* ---- queues (queue.c) and commands (command.c) ---- */

typedef enum command_e {
  COMMAND_NOTHING,
  COMMAND_COPY,
  COMMAND_REGION,
  COMMAND_FILL,
  COMMAND_LAUNCH,
  COMMAND_RESET,
  COMMAND_STAMP
} command_e;

typedef struct command_s {
  struct command_s *next;
  command_e kind;
  void *dst;
  const void *src;
  size_t size, pattern_size;
  size_t rows, dst_pitch, src_pitch; /* of a region, whose rows have `size` bytes */
  unsigned char pattern[MAX_PATTERN];
  launch_t *launch;
  event_t *signal;
  uint32_t wait_count;
  event_t *waits[];
} command_t;

typedef struct queue_s queue_t;

typedef struct list_s {
  device_t *device;
  queue_t *queue; /* of an immediate list, else NULL */
  command_t *first, **last;
} list_t;

void queue_fill_table(ze_command_queue_dditable_t *table);
void list_fill_table(ze_command_list_dditable_t *table);
void command_fill_table(ze_command_list_dditable_t *table);
ze_result_t queue_make(device_t *device, int synchronous, queue_t **out_queue);
void queue_release(queue_t *queue);
/* Takes over the command. */
ze_result_t queue_push(queue_t *queue, command_t *command);
command_t *command_copy(const command_t *command);
void command_release(command_t *command);
/* Runs a command to completion on a queue's thread. */
void command_run(command_t *command, device_t *device);

#endif /* ZE_CPU_DRIVER_H_ */
