/* pjrt.h: declarations shared by the files of this plugin. README.md describes how it works. */
#ifndef PLUGINS_PJRT_PJRT_H_
#define PLUGINS_PJRT_PJRT_H_

#include <hal/plugin.h>
#include <hal/plugin_flags.h>
#include <pthread.h>
#include <stdatomic.h>

#include "api.h"

enum {
  PJRT_MAX_DEVICES = 64,            /* of all platforms together */
  PJRT_MAX_PLATFORMS = 8,           /* in one process */
  PJRT_ALIGNMENT = 4096,            /* of memory_alloc */
  PJRT_BUFFER_ALIGNMENT = 64,       /* of memory that the CPU's PJRT plugin uses in place */
  PJRT_OPAQUE_ALIGNMENT = 256,      /* of memory_alloc, if programs do not compute in it */
  PJRT_MAX_BLOCK_THREADS = 1 << 20, /* only a plausible limit */
  PJRT_PROGRAMS = 1000,             /* the default of HAL_PJRT_PROGRAMS */
  PJRT_HOT = 32,                    /* the default of HAL_PJRT_HOT */
  PJRT_SMALL = 16000000,            /* the default of HAL_PJRT_SMALL with two processors */
  PJRT_WHY = 256                    /* bytes of the reason of a failure, as in hal_stream_error_t */
};

/* A PJRT plugin of this process, and its client. */
typedef struct pjrt_platform_s {
  const pjrt_table_t *table;
  pjrt_client_t *client;
  int32_t number;       /* in HAL_PJRT_PLUGIN, from 0 */
  int32_t first, count; /* devices, by the HAL's numbers */
  int plain_options;    /* it does not accept the options that programs are compiled with */
  char name[64], version[64];
} pjrt_platform_t;

typedef struct pjrt_state_s {
  pjrt_platform_t platforms[PJRT_MAX_PLATFORMS];
  int32_t platform_count;
  uint8_t platform_of[PJRT_MAX_DEVICES];        /* index in `platforms` */
  pjrt_client_t *singles[PJRT_MAX_DEVICES];     /* clients of one thread; NULL: not created (program/single.c) */
  pjrt_device_t *devices[2 * PJRT_MAX_DEVICES]; /* by site: the devices of the platforms, then those of `singles` */
  int32_t device_count;                         /* 0: not initialized */
  atomic_int forked;                            /* this process is the child of one that had initialized the plugin */
  int opaque;        /* programs of a platform do not compute in memory of the host (opaque.h) */
  int program_limit; /* of programs that are compiled */
  int rising;        /* programs are compiled at low optimization first (program/again.c) */
  uint32_t hot;      /* number of runs after which they are compiled again */
  double small;      /* most work of an operator in a program that runs in one thread (program/work.c) */
} pjrt_state_t;

extern pjrt_state_t pjrt;

/* Sets an error whose message is formatted. Returns `code`. */
__attribute__((format(printf, 2, 3))) hal_status_t pjrt_error(hal_status_t code, const char *format, ...);

hal_status_t pjrt_check_device(int32_t device);

/* The platform of a device or site, and its table of functions. Objects of a platform are used by its own functions
 * only. */
static inline pjrt_platform_t *pjrt_platform_of(int32_t site) {
  return &pjrt.platforms[pjrt.platform_of[site % PJRT_MAX_DEVICES]];
}
static inline const pjrt_table_t *pjrt_table_of(int32_t site) { return pjrt_platform_of(site)->table; }

int64_t pjrt_now_ns(void);

/* ---- packages.c ---- */

enum { PJRT_PATH = 4096 };

/* The paths of the PJRT plugins. */
typedef struct pjrt_paths_s {
  char paths[PJRT_MAX_PLATFORMS][PJRT_PATH];
  int32_t count;
} pjrt_paths_t;

/* Finds the PJRT plugins: HAL_PJRT_PLUGIN, paths or known platforms whose packages are installed, separated by commas;
 * without it the only known package. */
hal_status_t pjrt_find_plugins(pjrt_paths_t *paths);
/* Returns the machine of ELF that a shared object is for; -1 = this one, or it is unknown. */
int pjrt_other_machine(const char *path);

/* ---- loader.c ---- */

/* Opens the PJRT plugins and checks their tables of functions, once. Sets pjrt.platforms and pjrt.platform_count. */
hal_status_t pjrt_load(void);

/* Whether the plugin's table has a slot: an older one ends before it, and a platform may leave it empty. */
#define PJRT_HAS(table, slot) \
  ((table)->struct_size >= offsetof(pjrt_table_t, slot) + sizeof(pjrt_slot_t) && (table)->slot)

/* ---- error.c ---- */

/* The failure of a call, copied from the plugin's error, which is destroyed. */
typedef struct pjrt_failure_s {
  hal_status_t status;
  int code; /* the plugin's own */
  char text[480];
} pjrt_failure_t;

/* Reads and destroys an error. Returns its status; HAL_OK if there is none. */
hal_status_t pjrt_failed(const pjrt_table_t *table, pjrt_error_t *error, pjrt_failure_t *out_failure);

/* Sets the message of this thread: "pjrt: <what>: <the plugin's text>". Returns the failure's status. */
hal_status_t pjrt_failure_report(const char *what, const pjrt_failure_t *failure);

/* Calls a slot with its arguments, an lvalue whose struct_size is set here; evaluates to the slot's error. */
#define PJRT_CALL(table, slot, arguments) ((arguments).struct_size = sizeof(arguments), (table)->slot(&(arguments)))

/* ---- options.c ---- */

enum { PJRT_MAX_OPTIONS = 32 };
typedef struct pjrt_options_s {
  pjrt_named_t options[PJRT_MAX_OPTIONS];
  size_t count;
  char text[2048]; /* names and strings */
} pjrt_options_t;

/* Reads the part of HAL_PJRT_OPTIONS for a platform; `single`: with the options of a client for one device of the CPU.
 * After a failure `why`, HAL_COUNT_WHY bytes, has the reason. */
hal_status_t pjrt_options_read(pjrt_options_t *options, int32_t platform, int single, char *why);

/* ---- client.c ---- */

typedef struct pjrt_connection_s {
  pjrt_client_t *client;
  pjrt_device_t *devices[PJRT_MAX_DEVICES];
  int32_t count;
} pjrt_connection_t;

/* Creates a client with the options of the settings; `single`: one of a single device of the CPU, whose runs return
 * when they have ended. One thread at a time. After a failure `why`, HAL_COUNT_WHY bytes, has the reason. */
hal_status_t pjrt_connect(const pjrt_platform_t *platform, int single, pjrt_connection_t *out_connection, char *why);
void pjrt_disconnect(const pjrt_table_t *table, pjrt_client_t *client); /* NULL: nothing */

/* ---- program/work.c, program/single.c ---- */

/* Reads HAL_PJRT_SMALL. */
hal_status_t pjrt_work_read(void);
/* Whether a program has no large operator. */
int pjrt_is_small(const hal_ir_t *ir);

/* A site is a device's number, or that of the same device by its client of one thread. Buffers and programs belong to a
 * site. Returns the second one, whose client is created if necessary, or the first one if there is no other. */
int32_t pjrt_single_of(int32_t device);
pjrt_client_t *pjrt_client_of(int32_t site);

/* ---- program/run.c ---- */

/* An argument of a program: memory of this process, seen as one dimension of elements. */
typedef struct pjrt_span_s {
  void *data;
  int type; /* PJRT_F32 ... */
  int64_t count;
  int copied;              /* the program gets a copy of the memory */
  pjrt_buffer_t *constant; /* instead of the memory: a buffer that the caller keeps; NULL = none */
} pjrt_span_t;

/* How far a program is optimized. */
typedef enum pjrt_level_e { PJRT_FULL, PJRT_LOW } pjrt_level_t;

/* Compiles StableHLO text for any device of a site's client. The failure is not set as this thread's message. */
hal_status_t pjrt_compile(const char *text, size_t size, pjrt_level_t level, int32_t site, pjrt_loaded_t **out_program,
                          pjrt_failure_t *failure);
/* As pjrt_compile, but a program that an earlier process has compiled is loaded (program/cache.c). */
hal_status_t pjrt_compile_cached(const char *text, size_t size, pjrt_level_t level, int32_t site,
                                 pjrt_loaded_t **out_program, int *out_stored, pjrt_failure_t *failure);
/* As pjrt_compile, with other options. */
hal_status_t pjrt_compile_for(const char *text, size_t size, const char *options, size_t options_size, int32_t site,
                              pjrt_loaded_t **out_program, pjrt_failure_t *failure);
void pjrt_program_release(int32_t site, pjrt_loaded_t *program); /* NULL: nothing */

/* ---- program/view.c ---- */

/* The views that a stream keeps. One thread at a time uses them. */
typedef struct pjrt_views_s pjrt_views_t;
pjrt_views_t *pjrt_views_create(void);        /* NULL = the host has no memory, so that nothing is kept */
void pjrt_views_destroy(pjrt_views_t *views); /* NULL: nothing */

/* Returns a view of memory: a kept one, which is the caller's from now on, or a new one. */
hal_status_t pjrt_views_take(pjrt_views_t *views, const pjrt_span_t *span, int32_t site, pjrt_buffer_t **out_buffer,
                             pjrt_failure_t *failure);
/* Keeps a view of memory whose run has ended without a failure, or destroys it. */
void pjrt_views_put(pjrt_views_t *views, const pjrt_span_t *span, int32_t site, pjrt_buffer_t *buffer);

/* ---- program/flight.c ---- */

/* The runs of a stream that have begun and were not awaited, a bounded number. Any thread. */
typedef struct pjrt_flights_s pjrt_flights_t;
/* Receives the failure of a run that was not awaited. */
typedef void (*pjrt_failed_fn_t)(hal_plugin_stream_t *stream, const char *name, hal_status_t status, const char *why);
/* NULL = the host has no memory: runs are awaited. */
pjrt_flights_t *pjrt_flights_create(hal_plugin_stream_t *stream, int32_t device, pjrt_failed_fn_t failed);
void pjrt_flights_destroy(pjrt_flights_t *flights); /* waits for the runs; NULL: nothing */

/* Adds a run, whose event it owns from now on. If there are too many, waits for the first one. */
void pjrt_flights_add(pjrt_flights_t *flights, pjrt_event_t *done, const char *name);
/* Waits for all runs, in their order, and reports their failures. NULL: nothing. */
void pjrt_flights_wait(pjrt_flights_t *flights);
/* Whether all runs have ended, without waiting, as far as the platform reports it. NULL: they have. */
int pjrt_flights_ended(pjrt_flights_t *flights);

/* ---- runs of programs, program/run.c ---- */

/* A run of a program. */
#define PJRT_NO_PLACE UINT32_MAX
typedef struct pjrt_run_s {
  pjrt_loaded_t *program;
  int32_t site;
  uint32_t argument_count, result_count;
  const pjrt_span_t *arguments, *results;
  const uint32_t *places;  /* of the results: the argument that the program donates for it, or PJRT_NO_PLACE */
  pjrt_views_t *views;     /* of the stream; NULL = none are kept */
  pjrt_flights_t *flights; /* of the stream, in opaque memory: the run is not awaited; NULL = it is */
  const char *name;        /* for a failure after that; copied */
} pjrt_run_t;

/* Runs a program in memory of this process and waits for its end. A result that the platform has put elsewhere is
 * copied to its place; `*out_moved` is the number of such copies. After a failure `why`, PJRT_WHY bytes, has the
 * reason. */
hal_status_t pjrt_run(const pjrt_run_t *run, uint32_t *out_moved, char *why);

/* The buffers of a run; `kept` lists arguments that are not donated. */
typedef struct pjrt_buffers_s {
  pjrt_buffer_t **arguments, **results;
  const int64_t *kept;
  size_t kept_count;
} pjrt_buffers_t;

/* Begins a run. The caller waits for the event. */
hal_status_t pjrt_execute(const pjrt_run_t *run, const pjrt_buffers_t *buffers, pjrt_event_t **out_done,
                          pjrt_failure_t *failure);

/* Waits for an event, which is destroyed. Returns its failure. */
hal_status_t pjrt_await(int32_t site, pjrt_event_t *event, pjrt_failure_t *failure);

/* Creates a buffer over memory of this process for one run. */
hal_status_t pjrt_buffer_over(const pjrt_span_t *span, int32_t site, pjrt_buffer_t **out_buffer,
                              pjrt_failure_t *failure);
/* Copies a result to its place, if the platform has put it elsewhere: then `*out_moved` grows by 1. */
hal_status_t pjrt_place_result(int32_t site, pjrt_buffer_t *result, const pjrt_span_t *place, uint32_t *out_moved,
                               pjrt_failure_t *failure);
void pjrt_buffer_destroy(int32_t site, pjrt_buffer_t *buffer); /* NULL: nothing */
size_t pjrt_span_bytes(const pjrt_span_t *span);

/* ---- opaque.c, opaque_run.c, probe.c ----------------------------------------------------------------------------- */

/* Copy memory of the host to a buffer of the platform, and back; return after that. After a failure `why`, PJRT_WHY
 * bytes, has the reason. */
hal_status_t pjrt_upload(const pjrt_span_t *span, int32_t site, pjrt_buffer_t **out_buffer, char *why);
hal_status_t pjrt_download(pjrt_buffer_t *buffer, int32_t site, void *to, size_t size, char *why);

/* Memory of the device, if programs do not compute in memory of the host. NULL = the host has no memory. */
void *pjrt_opaque_alloc(size_t size);
void pjrt_opaque_free(void *address);
size_t pjrt_opaque_size(const void *address); /* of an allocation; more than all batches of frees for other memory */

/* Sets pjrt.opaque, as HAL_PJRT_MEMORY requests or as a test program of each platform shows. */
hal_status_t pjrt_probe_memory(void);

/* ---- program/cache.c ---- */

/* Loads a stored program; NULL = there is none that fits. */
pjrt_loaded_t *pjrt_cache_load(const char *text, size_t size, pjrt_level_t level, int32_t site);

/* Stores a program for later processes. */
void pjrt_cache_store(const char *text, size_t size, pjrt_level_t level, int32_t site, pjrt_loaded_t *program);

/* ---- program/again.c ---- */

/* Reads HAL_PJRT_OPTIMIZE and HAL_PJRT_HOT. */
hal_status_t pjrt_again_read(void);

/* The second compilation of a program, in another thread. */
typedef struct pjrt_again_s pjrt_again_t;
/* Starts it, with a copy of the text. If it succeeds, `*count` grows by 1. NULL = there is no memory or no thread.
 * `name` is for messages. */
pjrt_again_t *pjrt_again_start(const char *text, size_t size, int32_t site, atomic_ullong *count, const char *name);
/* Waits for its end. Returns the program, which pjrt_again_release releases; NULL = it failed or was cancelled. */
pjrt_loaded_t *pjrt_again_wait(pjrt_again_t *again);
/* Cancels it if it has not begun, without waiting; NULL: nothing. */
void pjrt_again_release(pjrt_again_t *again);
int pjrt_again_has_ended(pjrt_again_t *again); /* whether pjrt_again_wait does not wait */
/* Cancels those that have not begun, and waits for the one that runs. */
void pjrt_again_cancel(void);

/* ---- program/constants.c ---- */

/* The numbers of a program's last run, as buffers of f64 and of i64. */
typedef struct pjrt_constants_s {
  int exists;
  int32_t site; /* of the buffers */
  int64_t counts[2];
  pthread_mutex_t lock;   /* guards the members below */
  void *numbers;          /* of `kept` */
  pjrt_buffer_t *kept[2]; /* NULL: none */
} pjrt_constants_t;
hal_status_t pjrt_constants_create(pjrt_constants_t *constants, int32_t site, int64_t doubles, int64_t integers);
void pjrt_constants_destroy(pjrt_constants_t *constants);
/* Returns buffers with the numbers of a run, the doubles first. After the run the caller returns them by
 * pjrt_constants_put, or destroys them by pjrt_constants_drop. After a failure `why`, PJRT_WHY bytes, has the
 * reason. */
hal_status_t pjrt_constants_take(pjrt_constants_t *constants, const void *numbers, pjrt_buffer_t **buffers, char *why);
void pjrt_constants_put(pjrt_constants_t *constants, const void *numbers, pjrt_buffer_t **buffers);
void pjrt_constants_drop(const pjrt_constants_t *constants, pjrt_buffer_t **buffers);

/* ---- stream.c ---- */

/* A work item: `run` receives the bytes that were queued with it. After a failure it writes the reason to `why`,
 * PJRT_WHY bytes, because messages belong to threads. */
typedef hal_status_t (*pjrt_work_fn_t)(const void *arguments, char *why);

/* Queues work after the stream's work, with a copy of `size` bytes at `arguments`; with a NULL stream it runs
 * immediately. `name` is valid until the work is done. */
hal_status_t pjrt_submit(hal_plugin_stream_t *stream, const char *name, pjrt_work_fn_t run, const void *arguments,
                         size_t size);

/* Creates work for a stream, to be queued later, with a copy of `arguments` if they are not NULL. hal_host->mem_free
 * frees work that was not queued. */
typedef struct pjrt_work_s pjrt_work_t;
hal_status_t pjrt_work_new(hal_plugin_stream_t *stream, const char *name, pjrt_work_fn_t run, const void *arguments,
                           size_t size, pjrt_work_t **out_work);
void pjrt_work_push(hal_plugin_stream_t *stream, pjrt_work_t *work);
/* Declares that work may run before earlier runs of programs have ended: other work waits for them. */
void pjrt_work_overlap(pjrt_work_t *work);
/* The arguments of work, which the caller writes before it queues the work, if pjrt_work_new got none. */
void *pjrt_work_arguments(pjrt_work_t *work);

/* ---- stream.c ---- */

/* Whether all work of a stream is done: then pjrt_run_now may run more in the calling thread. */
int pjrt_is_idle(hal_plugin_stream_t *stream);
/* Runs work in the calling thread. A failure is that of the stream, as of queued work; with a NULL stream, of the call.
 */
hal_status_t pjrt_run_now(hal_plugin_stream_t *stream, const char *name, pjrt_work_fn_t run, const void *arguments);

/* Queues the end of a block of memory, which may wait for more of them. */
hal_status_t pjrt_submit_free(hal_plugin_stream_t *stream, void *address, size_t size);

/* The views of a stream, for the work that it runs; NULL = none are kept. */
pjrt_views_t *pjrt_stream_views(hal_plugin_stream_t *stream);
/* The runs of a stream that are not awaited; NULL = all are. */
pjrt_flights_t *pjrt_stream_flights(hal_plugin_stream_t *stream);

/* Waits until all streams of a device have done their current work, and returns the first failure that was not
 * reported. */
hal_status_t pjrt_drain(int32_t device);

#endif /* PLUGINS_PJRT_PJRT_H_ */
