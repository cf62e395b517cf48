/* single.c: clients of one thread, for programs without large operators. The CPU's platform divides each operator among
 * as many threads as there are processors, or devices if these are more. Small operators take longer that way, and the
 * threads take the processor from the one that records the next program. The platform has no option for their number,
 * but counts the processors that the calling thread may use, so a thread creates such a client while it may use one.
 * Each device has one, which is created when it is first needed. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <dirent.h>
#include <hal/plugin_count.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../pjrt.h"

enum { MOST_THREADS = 4096 };
typedef struct threads_s {
  int ids[MOST_THREADS];
  int count;
} threads_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the following, pjrt.singles and pjrt.devices */
static int failed[PJRT_MAX_DEVICES];                     /* the client cannot be created */
static threads_t before, after;                          /* of this process */

/* Returns 0 if the threads of this process cannot be listed. */
static int list_threads(threads_t *threads) {
  DIR *const folder = opendir("/proc/self/task");
  threads->count = 0;
  if (!folder) return 0;
  for (struct dirent *entry; (entry = readdir(folder)) && threads->count < MOST_THREADS;)
    if (*entry->d_name != '.') threads->ids[threads->count++] = atoi(entry->d_name);
  closedir(folder);
  return threads->count < MOST_THREADS;
}

static int contains(const threads_t *threads, int id) {
  for (int i = 0; i < threads->count; i++)
    if (threads->ids[i] == id) return 1;
  return 0;
}

/* Permits all processors to the threads of the client, which have inherited the only one. */
static void widen(const cpu_set_t *one, const cpu_set_t *all) {
  cpu_set_t present;
  if (!list_threads(&after)) return;
  for (int i = 0; i < after.count; i++)
    if (!contains(&before, after.ids[i]) && !sched_getaffinity(after.ids[i], sizeof present, &present) &&
        CPU_EQUAL(&present, one))
      sched_setaffinity(after.ids[i], sizeof *all, all);
}

static hal_status_t connect_on_one(int32_t device, pjrt_connection_t *out_connection, char *why) {
  cpu_set_t all, one;
  const int processor = sched_getcpu();
  snprintf(why, HAL_COUNT_WHY, "the system does not let a thread choose its processor");
  if (processor < 0 || sched_getaffinity(0, sizeof all, &all) || !list_threads(&before)) return HAL_UNAVAILABLE;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  if (sched_setaffinity(0, sizeof one, &one)) return HAL_UNAVAILABLE;
  const hal_status_t status = pjrt_connect(pjrt_platform_of(device), 1, out_connection, why);
  sched_setaffinity(0, sizeof all, &all);
  widen(&one, &all);
  return status;
}

/* Creates a device's client, once. Returns whether it exists. The lock is held. */
static int create(int32_t device) {
  char why[HAL_COUNT_WHY] = "", line[HAL_COUNT_WHY + 160];
  pjrt_connection_t connection;
  if (pjrt.singles[device] || failed[device]) return !failed[device];
  failed[device] = connect_on_one(device, &connection, why) != HAL_OK;
  if (failed[device]) {
    snprintf(line, sizeof line, "pjrt: programs of device %d cannot run in one thread: %s", (int)device, why);
    hal_host->log(HAL_LOG_INFO, line);
    return 0;
  }
  pjrt.devices[PJRT_MAX_DEVICES + device] = connection.devices[0];
  pjrt.singles[device] = connection.client;
  return 1;
}

int32_t pjrt_single_of(int32_t device) {
  if (strcmp(pjrt_platform_of(device)->name, "cpu") != 0) return device;
  pthread_mutex_lock(&lock);
  const int exists = create(device);
  pthread_mutex_unlock(&lock);
  return exists ? PJRT_MAX_DEVICES + device : device;
}

pjrt_client_t *pjrt_client_of(int32_t site) {
  return site < PJRT_MAX_DEVICES ? pjrt_platform_of(site)->client : pjrt.singles[site - PJRT_MAX_DEVICES];
}
