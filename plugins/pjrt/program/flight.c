/* flight.c: runs of programs that have begun and are not awaited. The platform orders its runs by their buffers, so the
 * stream's thread begins the next run meanwhile. A failure is known only when a run is awaited, in the order of the
 * runs, so the first one is the cause. */
#include <stdio.h>
#include <string.h>

#include "../pjrt.h"

enum { MOST_FLIGHTS = 8, NAME_BYTES = 96 }; /* so that the memory of the runs is bounded */

typedef struct flight_s {
  pjrt_event_t *done;
  char name[NAME_BYTES]; /* a copy: the program may be destroyed */
} flight_t;

struct pjrt_flights_s {
  hal_plugin_stream_t *stream;
  int32_t device;
  pjrt_failed_fn_t failed;
  pthread_mutex_t lock; /* guards the members below; held while a run is awaited, so that failures stay in order */
  unsigned first, count;
  flight_t flights[MOST_FLIGHTS];
};

pjrt_flights_t *pjrt_flights_create(hal_plugin_stream_t *stream, int32_t device, pjrt_failed_fn_t failed) {
  pjrt_flights_t *const flights = hal_host->mem_alloc(sizeof *flights, _Alignof(pjrt_flights_t));
  if (!flights) return NULL;
  *flights = (pjrt_flights_t){.stream = stream, .device = device, .failed = failed};
  pthread_mutex_init(&flights->lock, NULL);
  return flights;
}

/* Waits for the first run. The lock is held. */
static void wait_first(pjrt_flights_t *flights) {
  flight_t *const flight = &flights->flights[flights->first];
  pjrt_failure_t failure;
  char why[PJRT_WHY];
  const hal_status_t status = pjrt_await(flights->device, flight->done, &failure);
  flights->first = (flights->first + 1) % MOST_FLIGHTS;
  flights->count--;
  if (!status) return;
  snprintf(why, sizeof why, "%.240s", failure.text);
  flights->failed(flights->stream, flight->name, status, why);
}

void pjrt_flights_wait(pjrt_flights_t *flights) {
  if (!flights) return;
  pthread_mutex_lock(&flights->lock);
  while (flights->count) wait_first(flights);
  pthread_mutex_unlock(&flights->lock);
}

void pjrt_flights_destroy(pjrt_flights_t *flights) {
  if (!flights) return;
  pjrt_flights_wait(flights);
  pthread_mutex_destroy(&flights->lock);
  hal_host->mem_free(flights);
}

void pjrt_flights_add(pjrt_flights_t *flights, pjrt_event_t *done, const char *name) {
  pthread_mutex_lock(&flights->lock);
  if (flights->count == MOST_FLIGHTS) wait_first(flights);
  flight_t *const flight = &flights->flights[(flights->first + flights->count++) % MOST_FLIGHTS];
  flight->done = done;
  snprintf(flight->name, sizeof flight->name, "%s", name);
  pthread_mutex_unlock(&flights->lock);
}

/* Whether a run has ended. A platform without that query is awaited. */
static int has_ended(const pjrt_table_t *table, const flight_t *flight) {
  pjrt_failure_t failure;
  pjrt_Event_IsReady_t query = {.event = flight->done};
  if (!flight->done || !PJRT_HAS(table, Event_IsReady)) return 1;
  return pjrt_failed(table, PJRT_CALL(table, Event_IsReady, query), &failure) || query.is_ready;
}

int pjrt_flights_ended(pjrt_flights_t *flights) {
  if (!flights) return 1;
  int ended = 1;
  if (pthread_mutex_trylock(&flights->lock)) return 0; /* another thread waits for a run */
  for (unsigned i = 0; i < flights->count && ended; i++)
    ended = has_ended(pjrt_table_of(flights->device), &flights->flights[(flights->first + i) % MOST_FLIGHTS]);
  pthread_mutex_unlock(&flights->lock);
  return ended;
}
