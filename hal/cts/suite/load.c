/* load.c: the basis of all other cases: the file is a plugin, it loads, and its devices can be initialized. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cts.h"
#include "hal/status.h"
#include "plugin/extension.h"
#include "plugin/loader.h"

enum { FORKED = 7 /* exit code of a child without a finding */ };

void cts_case_load_loads(cts_t *t) {
  hal_plugin_info_t again = {.struct_size = HAL_STRUCT_SIZE(hal_plugin_info_t, flags)};
  cts_enter(t, HAL_SLOT_info);
  const hal_status_t status = hal_plugin_load(t->path, t->plugin);
  cts_leave(t, HAL_SLOT_info, status);
  CTS_CHECK(t, !status, "%s", hal_error_message());
  CTS_JUDGE(t, info, "Returns name");
  CTS_OK(t, info, &again);
  CTS_CHECK(t, again.name && again.vendor && again.version, "info left out name, vendor or version");
  CTS_CHECK(t, strcmp(again.name, t->plugin->info.name) == 0, "info returned the name \"%s\", and then \"%s\"",
            t->plugin->info.name, again.name);
  CTS_JUDGE(t, info, "strings are valid until");
  CTS_CHECK(t, again.name[0] && strlen(again.vendor) < 4096 && strlen(again.version) < 4096,
            "a string of info is empty or has no end");
}

/* The start itself is the case: child.c does it before each. */
void cts_case_load_starts(cts_t *t) { CTS_OK(t, device_synchronize, t->device); }

/* Uses several functions; child.c checks the process after each case. */
static void use(cts_t *t) {
  uint32_t pattern = 7, got = 0;
  CTS_GENERAL(t, "does not change the process");
  void *const device = cts_alloc(t, sizeof pattern);
  hal_plugin_stream_t *const stream = cts_stream(t);
  hal_plugin_event_t *const event = cts_event(t, 0);
  CTS_OK(t, memory_fill, stream, t->device, device, &pattern, sizeof pattern, sizeof pattern);
  cts_get(t, stream, &got, device, sizeof got);
  CTS_OK(t, event_record, event, stream);
  CTS_OK(t, event_synchronize, event);
  CTS_OK(t, event_destroy, event);
  cts_sync(t, stream);
  CTS_OK(t, stream_destroy, stream);
  cts_free(t, device);
}

void cts_case_load_process(cts_t *t) { use(t); }

void cts_case_load_signals(cts_t *t) {
  char text[256];
  use(t);
  if (!cts_process_signals_are_the_same(text, sizeof text)) cts_fail(t, "%s", text);
}

/* Twice, because the result never changes. */
void cts_case_load_extensions(cts_t *t) {
  const hal_extension_t *first = NULL, *again = NULL;
  CTS_OK(t, extensions, &first);
  const char *const wrong = hal_extensions_wrong(first);
  CTS_CHECK(t, !wrong, "%s", wrong);
  CTS_JUDGE(t, extensions, "The result never changes");
  CTS_OK(t, extensions, &again);
  CTS_CHECK(t, first == again, "extensions returned %p, and then %p", (const void *)first, (const void *)again);
}

/* The caller may reuse the text of init when init has returned. */
void cts_case_load_options(cts_t *t) {
  hal_device_info_t info = {.struct_size = HAL_STRUCT_SIZE(hal_device_info_t, max_binding)};
  char *const options = (char *)cts_host(t, 64);
  cts_look(t);
  CTS_OK(t, init, options);
  CTS_JUDGE(t, init, "borrowed.");
  memset(options, 'x', 63);
  const hal_status_t status = cts_device_info(t, t->device, &info);
  CTS_CHECK(t, !status, "device_info returned %s once the text passed to init had other bytes: %s",
            hal_status_name(status), hal_error_message());
  t->info = info;
  use(t);
}

void cts_case_load_shuts_down(cts_t *t) {
  use(t);
  CTS_JUDGE(t, shutdown, "Releases what init acquired");
  CTS_OK(t, shutdown, 0);
}

static int count_threads(void) {
  int count = 0;
  DIR *const tasks = opendir("/proc/self/task");
  while (tasks && readdir(tasks)) count++;
  if (tasks) closedir(tasks);
  return count - 2; /* . and .. */
}

/* Returns the milliseconds that the process has computed, which do not depend on the machine's load. */
static double computed_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* A host that only lists plugins, and forks then, has initialized no driver. */
void cts_case_load_starts_nothing(cts_t *t) {
  enum { MOST_MS = 100 /* a few, on the slowest machine */ };
  cts_look(t);
  const int threads = count_threads();
  CTS_CHECK(t, threads <= 1, "probe and device_count, before init, have left %d threads in the process", threads - 1);
  CTS_JUDGE(t, probe, "at most a few milliseconds");
  const double before = computed_ms();
  CTS_OK(t, probe, 0);
  const double took = computed_ms() - before;
  CTS_CHECK(t, took < MOST_MS, "probe computed for %.0f ms", took);
}

/* The calls that must work in a forked child, and in its parent, after probe and device_count. */
static void begin_anew(cts_t *t, const char *who) {
  void *ptr = NULL;
  cts_start(t);
  const hal_status_t status = cts_memory_alloc(t, t->device, 4096, 0, &ptr);
  CTS_CHECK(t, !status, "memory_alloc returned %s in %s that was forked between device_count and init: %s",
            hal_status_name(status), who, hal_error_message());
  use(t);
}

void cts_case_load_forks(cts_t *t) {
  int status = 0;
  cts_look(t);
  CTS_JUDGE(t, device_count, "Initializes nothing");
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    begin_anew(t, "the child of a process");
    _exit(FORKED);
  }
  CTS_CHECK(t, child > 0, "error of the suite: no child process can be made");
  while (waitpid(child, &status, 0) != child) cts_nap();
  if (atomic_load(&t->page->verdict) != CTS_NONE) _exit(0); /* the child has reported it */
  CTS_CHECK(t, WIFEXITED(status) && WEXITSTATUS(status) == FORKED,
            "a child process that was forked after device_count, and used the device, ended with the status 0x%x",
            status);
  begin_anew(t, "a process");
}
