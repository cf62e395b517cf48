/* levels.c: the level of the porting guide that a plugin has reached, and the function to implement next. */
#include <stdio.h>

#include "run.h"

/* A step: functions that belong together, and their benefit, in the order of their benefit. */
static const struct {
  int level;
  uint32_t slots[8]; /* ends at HAL_SLOT_COUNT */
  const char *gain;
} steps[] = {
#define S(name) HAL_SLOT_##name
    {0,
     {S(device_info), HAL_SLOT_COUNT},
     "with HAL_DEVICE_HOST_VISIBLE the fallback works on device memory without copies; limits and name"},
    {0, {S(memory_fill), HAL_SLOT_COUNT}, "zeros and fills run on the device in place of staged copies of 4 KiB"},
    {0, {S(memory_info), HAL_SLOT_COUNT}, "the driver's own count of free memory"},
    {1,
     {S(stream_create), S(stream_destroy), S(stream_synchronize), S(device_synchronize), HAL_SLOT_COUNT},
     "work runs asynchronously, if device_info sets HAL_DEVICE_ASYNC"},
    {1, {S(stream_host_call), HAL_SLOT_COUNT}, "host functions wait for their stream without holding the caller"},
    {1,
     {S(event_create), S(event_destroy), S(event_record), S(event_synchronize), S(event_elapsed), HAL_SLOT_COUNT},
     "timing on the device; freed memory is given out again without waiting"},
    {1, {S(stream_wait_event), HAL_SLOT_COUNT}, "streams wait for one another on the device, the host does not"},
    {1, {S(host_alloc), S(host_free), HAL_SLOT_COUNT}, "page-locked memory: copies that do not hold the caller"},
    {2,
     {S(module_load), S(module_unload), S(kernel_get), S(kernel_launch), HAL_SLOT_COUNT},
     "the portable kernels of all native operators run on the device in place of the CPU's"},
    {3, {S(op_find), HAL_SLOT_COUNT}, "the vendor's own operators in place of portable kernels, one by one"},
    {3, {S(random_fill), HAL_SLOT_COUNT}, "random numbers are made on the device, not copied there"},
    {6,
     {S(comm_info), S(comm_unique_id), S(comm_create), S(comm_query), S(comm_abort), S(comm_destroy), S(comm_submit),
      HAL_SLOT_COUNT},
     "collectives of torch.distributed by the vendor's library, without a copy to the host"},
};
enum { STEPS = sizeof steps / sizeof steps[0] };

static int has(const cts_run_t *run, int step) {
  for (int i = 0; steps[step].slots[i] != HAL_SLOT_COUNT; i++)
    if (!run->provided[steps[step].slots[i]]) return 0;
  return 1;
}

static void add(char *text, size_t size, const char *words) {
  const size_t length = strlen(text);
  snprintf(text + length, size - length, "%s%s", length ? ", " : "", words);
}

/* The suites that must have no findings for each level. */
static const char *const suites[CTS_LEVELS] = {"load device memory copy random threads fault flags",
                                               "stream event host_call",
                                               "module work",
                                               "op",
                                               "capture",
                                               "ipc",
                                               "comm"};

/* Returns whether a list, separated by spaces, has a word. */
static int is_in(const char *list, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = list; (at = strstr(at, word)); at += length)
    if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return 1;
  return 0;
}

static int held(const cts_run_t *run, int level, char *missing, size_t size) {
  char id[64];
  int good = run->loaded;
  if (!run->loaded) add(missing, size, "the plugin did not load");
  for (uint32_t i = 0; i < cts_case_count; i++) {
    const int verdict = run->results[i].verdict;
    if (!is_in(suites[level], cts_cases[i].suite) || (verdict != CTS_FAIL && verdict != CTS_BLOCKED)) continue;
    cts_case_id(&cts_cases[i], id);
    if (good) add(missing, size, id);
    good = 0;
  }
  return good;
}

/* Cases that must have passed before a level is granted: they do what the level is named after. */
static const char *const proofs[CTS_LEVELS] = {
    "copy.round_trip", "stream.asynchronous stream.order", "module.launch module.values",
    "op.values",       "capture.records capture.order",    "copy.between_devices",
    "comm.reduce"};

/* Returns whether every proof of a level has passed; adds the first that has not, with the reason. */
static int is_judged(const cts_run_t *run, int level, char *missing, size_t size) {
  char id[64], text[200];
  for (uint32_t i = 0; i < cts_case_count; i++) {
    const char *const reason = run->results[i].text;
    cts_case_id(&cts_cases[i], id);
    if (!is_in(proofs[level], id) || run->results[i].verdict == CTS_PASS) continue;
    snprintf(text, sizeof text, "%s did not run%s%.120s", id, reason[0] ? ": " : "", reason);
    add(missing, size, text);
    return 0;
  }
  return 1;
}

void cts_levels(const cts_run_t *run, cts_level_t levels[CTS_LEVELS]) {
  static const char *const names[CTS_LEVELS] = {"basic functions", "asynchronous",    "native kernels", "own operators",
                                                "graphs",          "several devices", "collectives"};
  static const uint32_t needs[CTS_LEVELS] = {HAL_SLOT_memory_copy, HAL_SLOT_stream_create, HAL_SLOT_kernel_launch,
                                             HAL_SLOT_op_find,     HAL_SLOT_capture_begin, HAL_SLOT_COUNT,
                                             HAL_SLOT_comm_submit};
  for (int i = 0; i < CTS_LEVELS; i++) {
    cts_level_t *const level = &levels[i];
    memset(level, 0, sizeof *level);
    level->name = names[i];
    int reached = held(run, i, level->missing, sizeof level->missing);
    if (needs[i] < HAL_SLOT_COUNT && !run->provided[needs[i]])
      reached = 0, add(level->missing, sizeof level->missing, cts_slot_name(needs[i]));
    if (i == 1 && !(run->about.flags & HAL_DEVICE_ASYNC))
      reached = 0, add(level->missing, sizeof level->missing, "the device does not report HAL_DEVICE_ASYNC");
    if (i == 5 && run->about.device_count < 2) reached = 0, add(level->missing, sizeof level->missing, "one device");
    level->state = !reached                                                   ? "not reached"
                   : is_judged(run, i, level->missing, sizeof level->missing) ? "reached"
                                                                              : "not judged";
  }
}

void cts_next(const cts_run_t *run, char *text, size_t size) {
  char names[256] = "";
  text[0] = '\0';
  if (!run->loaded) return;
  for (int step = 0; step < STEPS; step++) {
    if (has(run, step)) continue;
    for (int i = 0; steps[step].slots[i] != HAL_SLOT_COUNT; i++)
      if (!run->provided[steps[step].slots[i]]) add(names, sizeof names, cts_slot_name(steps[step].slots[i]));
    snprintf(text, size, "write %s: %s", names, steps[step].gain);
    return;
  }
}
