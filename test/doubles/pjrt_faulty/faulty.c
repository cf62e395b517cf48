/* faulty.c: a PJRT plugin that calls another one, the file PJRT_FAULTY_PLUGIN, and fails once, as the program requests
 * by pjrt_faulty_fail:
 *
 *   "Buffer_ToHostBuffer", 3  the third call of that function from now on fails
 *   "poison", 2               the second run of a program fails after its start. Its results are poisoned: reads of
 *                             them fail, and so do programs that use them, whose results are poisoned, too
 *
 * The plugins of platforms fail in these ways; the CPU's plugin could not be made to. pjrt_faulty_delay makes each
 * compilation longer. PJRT_FAULTY_VERSION is the version that the table has ("0.60"; "none": there is no table), and
 * PJRT_FAULTY_MISSING the functions that it lacks, separated by commas. */
#define _POSIX_C_SOURCE 200809L /* strdup */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api.h"

enum { INTERNAL = 13, POISONED = 4096, TABLE_BYTES = 8192 };

static const pjrt_table_t *real;
static _Atomic(const char *) fault; /* the function, or "poison" */
static atomic_long left;            /* its calls until the one that fails, with that one */
static atomic_long delay_ms;        /* before each compilation */
static const char injected[] = "injected failure", poison[] = "poisoned argument";

/* An error of this file is the address of its message. */
static pjrt_error_t *fail(const char *message) { return (pjrt_error_t *)(uintptr_t)message; }
static int is_ours(const pjrt_error_t *error) { return (void *)error == injected || (void *)error == poison; }

/* Whether this call of a function is to fail. */
static int fails(const char *function) {
  const char *const chosen = atomic_load(&fault);
  return chosen && !strcmp(function, chosen) && atomic_fetch_sub(&left, 1) == 1;
}

/* ---- poisoned buffers and events --------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const void *poisoned[POISONED];

static const void **find(const void *object) {
  for (int i = 0; i < POISONED; i++)
    if (poisoned[i] == object) return &poisoned[i];
  return NULL;
}

/* Replaces an entry of the list. Returns whether it was there. */
static int replace(const void *object, const void *with) {
  pthread_mutex_lock(&lock);
  const void **const place = find(object);
  if (place) *place = with;
  pthread_mutex_unlock(&lock);
  if (!place && !object) abort(); /* the list is full */
  return place != NULL;
}

static int is_poisoned(const void *object) { return object && replace(object, object); }

/* ---- time -------------------------------------------------------------------------------------------------------- */

static atomic_llong run_ns; /* of runs of programs, and of waiting for their events */

static long long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* ---- functions of the table -------------------------------------------------------------------------------------- */

static pjrt_error_t *Error_Message(void *arguments) {
  pjrt_Error_Message_t *const call = arguments;
  if (!is_ours(call->error)) return real->Error_Message(arguments);
  call->message = (const char *)(const void *)call->error, call->message_size = strlen(call->message);
  return NULL;
}

static pjrt_error_t *Error_GetCode(void *arguments) {
  pjrt_Error_GetCode_t *const call = arguments;
  if (!is_ours(call->error)) return real->Error_GetCode(arguments);
  call->code = INTERNAL;
  return NULL;
}

static pjrt_error_t *Error_Destroy(void *arguments) {
  return is_ours(((pjrt_Error_Destroy_t *)arguments)->error) ? NULL : real->Error_Destroy(arguments);
}

static pjrt_error_t *Client_Compile(void *arguments) {
  const long delay = atomic_load(&delay_ms);
  const struct timespec time = {.tv_sec = delay / 1000, .tv_nsec = delay % 1000 * 1000000};
  if (delay) nanosleep(&time, NULL);
  return fails("Client_Compile") ? fail(injected) : real->Client_Compile(arguments);
}

static pjrt_error_t *Client_BufferFromHostBuffer(void *arguments) {
  return fails("Client_BufferFromHostBuffer") ? fail(injected) : real->Client_BufferFromHostBuffer(arguments);
}

static pjrt_error_t *Buffer_ToHostBuffer(void *arguments) {
  if (fails("Buffer_ToHostBuffer")) return fail(injected);
  return is_poisoned(((pjrt_Buffer_ToHostBuffer_t *)arguments)->src) ? fail(poison)
                                                                     : real->Buffer_ToHostBuffer(arguments);
}

static pjrt_error_t *Buffer_Destroy(void *arguments) {
  const void *const buffer = ((pjrt_Buffer_Destroy_t *)arguments)->buffer;
  if (buffer) replace(buffer, NULL);
  return real->Buffer_Destroy(arguments);
}

/* Poisons the event and results of a run. */
static pjrt_error_t *poison_run(pjrt_LoadedExecutable_Execute_t *call) {
  pjrt_LoadedExecutable_GetExecutable_t get = {
      .struct_size = sizeof get, .loaded_executable = call->executable, .executable = NULL};
  pjrt_error_t *error = real->LoadedExecutable_GetExecutable(&get);
  if (error) return error;
  struct {
    size_t struct_size;
    void *extension;
    pjrt_executable_t *executable;
    size_t outputs;
  } count = {sizeof count, NULL, get.executable, 0};
  error = real->Executable_NumOutputs(&count);
  for (size_t k = 0; k < count.outputs && !error; k++) replace(NULL, call->output_lists[0][k]);
  if (call->device_complete_events) replace(NULL, call->device_complete_events[0]);
  pjrt_Executable_Destroy_t destroy = {.struct_size = sizeof destroy, .executable = get.executable};
  pjrt_error_t *const ended = real->Executable_Destroy(&destroy);
  return error ? error : ended;
}

static pjrt_error_t *LoadedExecutable_Execute(void *arguments) {
  pjrt_LoadedExecutable_Execute_t *const call = arguments;
  if (fails("LoadedExecutable_Execute")) return fail(injected);
  int poisons = fails("poison");
  for (size_t i = 0; i < call->num_args; i++) poisons |= is_poisoned(call->argument_lists[0][i]);
  const long long begin = now_ns();
  pjrt_error_t *const error = real->LoadedExecutable_Execute(arguments);
  atomic_fetch_add(&run_ns, now_ns() - begin);
  return error || !poisons ? error : poison_run(call);
}

static pjrt_error_t *Event_Await(void *arguments) {
  const long long begin = now_ns();
  pjrt_error_t *const error = real->Event_Await(arguments);
  atomic_fetch_add(&run_ns, now_ns() - begin);
  return error || !is_poisoned(((pjrt_Event_Await_t *)arguments)->event) ? error : fail(poison);
}

static pjrt_error_t *Event_Destroy(void *arguments) {
  const void *const event = ((pjrt_Event_Destroy_t *)arguments)->event;
  if (event) replace(event, NULL);
  return real->Event_Destroy(arguments);
}

/* ---- the plugin -------------------------------------------------------------------------------------------------- */

static const pjrt_table_t *open_real(void) {
  const char *const path = getenv("PJRT_FAULTY_PLUGIN");
  void *const library = dlopen(path ? path : "", RTLD_NOW | RTLD_LOCAL);
  void *const symbol = library ? dlsym(library, "GetPjrtApi") : NULL;
  const pjrt_table_t *(*get)(void);
  if (!symbol) {
    fprintf(stderr, "pjrt_faulty: PJRT_FAULTY_PLUGIN: %s\n", dlerror());
    return NULL;
  }
  memcpy(&get, &symbol, sizeof get); /* ISO C has no cast to a function pointer */
  return get();
}

static int is_named(const char *list, const char *name) {
  const size_t size = strlen(name);
  for (const char *at = list; at && (at = strstr(at, name)); at += size)
    if ((at == list || at[-1] == ',') && (at[size] == ',' || !at[size])) return 1;
  return 0;
}

/* Removes the functions that the program names. */
static void remove_slots(pjrt_table_t *table) {
  const char *const missing = getenv("PJRT_FAULTY_MISSING");
#define REMOVE(slot) \
  if (is_named(missing, #slot)) table->slot = NULL;
  PJRT_SLOTS(REMOVE)
#undef REMOVE
}

#define EXPORTED __attribute__((visibility("default")))

/* Lets the call with that number, from now on, fail. The name is copied; the copy is never freed. Returns the number of
 * calls that the earlier request still waited for: 0 or less = it has failed. */
EXPORTED long pjrt_faulty_fail(const char *function, long number);
long pjrt_faulty_fail(const char *function, long number) {
  atomic_store(&fault, NULL);
  const long before = atomic_exchange(&left, number);
  atomic_store(&fault, strdup(function));
  return before;
}

/* Makes each compilation from now on longer. */
EXPORTED void pjrt_faulty_delay(long milliseconds);
void pjrt_faulty_delay(long milliseconds) { atomic_store(&delay_ms, milliseconds); }

/* Returns the time of runs since the last call, for benchmarks. */
EXPORTED long long pjrt_faulty_run_ns(void);
long long pjrt_faulty_run_ns(void) { return atomic_exchange(&run_ns, 0); }

EXPORTED const pjrt_table_t *GetPjrtApi(void);
const pjrt_table_t *GetPjrtApi(void) {
  static union {
    pjrt_table_t table;
    char bytes[TABLE_BYTES]; /* with later functions */
  } ours;
  real = open_real();
  if (!real || real->struct_size > sizeof ours) return NULL;
  memcpy(&ours, real, real->struct_size);
  ours.table.Error_Message = Error_Message;
  ours.table.Error_GetCode = Error_GetCode;
  ours.table.Error_Destroy = Error_Destroy;
  ours.table.Client_Compile = Client_Compile;
  ours.table.Client_BufferFromHostBuffer = Client_BufferFromHostBuffer;
  ours.table.Buffer_ToHostBuffer = Buffer_ToHostBuffer;
  ours.table.Buffer_Destroy = Buffer_Destroy;
  ours.table.LoadedExecutable_Execute = LoadedExecutable_Execute;
  ours.table.Event_Await = Event_Await;
  ours.table.Event_Destroy = Event_Destroy;
  remove_slots(&ours.table);
  const char *const version = getenv("PJRT_FAULTY_VERSION");
  if (!version) return &ours.table;
  return sscanf(version, "%d.%d", &ours.table.major_version, &ours.table.minor_version) == 2 ? &ours.table : NULL;
}
