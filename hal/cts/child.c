/* child.c: runs one case in a child process with a time limit, so that the parent has a verdict whatever the plugin
 * does. */
#define _GNU_SOURCE /* memfd_create, strsignal */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hal/status.h"
#include "plugin/loader.h"
#include "plugin/slots.h"
#include "run.h"

/* ---- the child ---- */

/* Loads the plugin as the HAL does, but without the HAL's own trial, because the case is one. */
void cts_look(cts_t *t) {
  cts_page_t *const page = t->page;
  cts_enter(t, HAL_SLOT_info);
  hal_status_t status = hal_plugin_load(t->path, t->plugin);
  cts_leave(t, HAL_SLOT_info, status);
  CTS_CHECK(t, !status, "%s", hal_error_message());
  for (uint32_t slot = 0; slot < HAL_SLOT_COUNT; slot++)
    page->provided[slot] = (uint8_t)hal_slot_is_provided(&t->plugin->api, slot);
  snprintf(page->name, sizeof page->name, "%s", t->plugin->info.name);
  snprintf(page->version, sizeof page->version, "%s", t->plugin->info.version);
  status = cts_probe(t, 0);
  if (status == HAL_UNAVAILABLE) cts_skip(t, "the hardware is not on this machine: %s", hal_error_message());
  CTS_CHECK(t, !status, "probe returned %s: %s", hal_status_name(status), hal_error_message());
  status = cts_device_count(t, &page->device_count);
  if (status == HAL_UNAVAILABLE || (!status && page->device_count == 0))
    cts_skip(t, "the plugin counts no device here");
  CTS_CHECK(t, !status, "device_count returned %s: %s", hal_status_name(status), hal_error_message());
  if (t->device >= page->device_count)
    cts_skip(t, "device %d was requested, there are %d", t->device, page->device_count);
}

void cts_start(cts_t *t) {
  cts_page_t *const page = t->page;
  if (!t->plugin->api.info) cts_look(t);
  const hal_status_t status = cts_init(t, "");
  if (status == HAL_UNAVAILABLE) cts_skip(t, "init: no driver or device here: %s", hal_error_message());
  CTS_CHECK(t, !status, "init returned %s: %s", hal_status_name(status), hal_error_message());
  t->info.struct_size = HAL_STRUCT_SIZE(hal_device_info_t, max_binding);
  CTS_OK(t, device_info, t->device, &t->info);
  page->flags = t->info.flags;
  snprintf(page->device_name, sizeof page->device_name, "%.63s", t->info.name);
  snprintf(page->dialects, sizeof page->dialects, "%.63s", t->info.dialects);
}

static void check_needs(cts_t *t, const cts_case_t *which) {
  if ((which->needs & CTS_PROVIDED) && !cts_provides(t, which->slot))
    cts_skip(t, "the plugin does not provide %s", cts_slot_name(which->slot));
  if (which->needs & CTS_ASYNC) {
    if (!(t->info.flags & HAL_DEVICE_ASYNC)) cts_skip(t, "the device does not have HAL_DEVICE_ASYNC");
    if (!cts_is_async(t))
      cts_skip(t, "the plugin does not provide stream_host_call, with which the suite holds a stream");
  }
  if ((which->needs & CTS_EVENTS) && !(CTS_PROVIDES(t, event_create) && CTS_PROVIDES(t, stream_wait_event)))
    cts_skip(t, "the plugin does not provide events and stream_wait_event");
  if ((which->needs & CTS_TWO) && t->page->device_count < 2) cts_skip(t, "there is one device only");
}

static CTS_NORETURN void live(cts_run_t *run, const cts_case_t *which) {
  static hal_plugin_t plugin;
  cts_t t = {.plugin = &plugin,
             .page = run->page,
             .path = run->path,
             .fault = run->fault,
             .compiler = run->compiler,
             .dialect = run->dialect,
             .device = run->device};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  setenv("HAL_PLUGIN_TRIAL", "0", 1);
  cts_process_remember();
  char text[512] = "";
  if (!(which->needs & CTS_UNLOADED)) cts_start(&t);
  check_needs(&t, which);
  cts_judge(&t, which->slot, which->phrase);
  which->run(&t);
  const uint32_t last = cts_judged();
  const uint32_t change = cts_process_changes(text, sizeof text, run->page->process_known);
  if (change) {
    run->page->process_known |= change;
    CTS_GENERAL(&t, "does not change the process");
    cts_fail(&t, "%s", text);
  }
  atomic_store(&run->page->held[last], 1);
  atomic_store(&run->page->verdict, CTS_PASS);
  _exit(0);
}

/* ---- the parent ---- */

static void reset(cts_page_t *page, const cts_case_t *which) {
  const uint32_t known = page->process_known;
  memset(page, 0, sizeof *page);
  page->process_known = known;
  atomic_store(&page->slot, HAL_SLOT_COUNT);
  atomic_store(&page->last_slot, HAL_SLOT_COUNT);
  atomic_store(&page->rule, cts_rule_find(which->slot, which->phrase));
}

static const char *where(const cts_page_t *page, char *text, size_t size) {
  const uint32_t slot = atomic_load(&page->slot), last = atomic_load(&page->last_slot);
  if (slot < HAL_SLOT_COUNT)
    snprintf(text, size, "in %s",
             slot == HAL_SLOT_info && !page->name[0] ? "loading, hal_plugin_entry or info" : cts_slot_name(slot));
  else
    snprintf(text, size, "after %s had returned", cts_slot_name(last));
  return text;
}

/* Returns 1 = it ended with `*out_status`; 0 = its time was over. */
static int wait_for(pid_t child, int limit_s, int *out_status) {
  const int64_t end = cts_now_ns() + limit_s * INT64_C(1000000000);
  for (long step = 100000;; step = step < 10000000 ? step + step / 4 : step) {
    const pid_t got = waitpid(child, out_status, WNOHANG);
    if (got == child) return 1;
    if (got < 0 && errno != EINTR) return 1;
    if (cts_now_ns() > end) break;
    nanosleep(&(struct timespec){.tv_nsec = step}, NULL);
  }
  kill(-child, SIGKILL);
  kill(child, SIGKILL);
  waitpid(child, out_status, 0);
  return 0;
}

static void read_output(int file, char *text, size_t size) {
  const off_t end = lseek(file, 0, SEEK_END), from = end > (off_t)size - 1 ? end - ((off_t)size - 1) : 0;
  const ssize_t length = pread(file, text, size - 1, from);
  text[length > 0 ? length : 0] = '\0';
}

void cts_run_case(cts_run_t *run, const cts_case_t *which, cts_result_t *result) {
  cts_page_t *const page = run->page;
  char at[96];
  int status = 0;
  reset(page, which);
  const int words = memfd_create("stderr", MFD_CLOEXEC);
  const int64_t begin = cts_now_ns();
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    if (words >= 0) dup2(words, STDERR_FILENO);
    live(run, which);
  }
  if (child < 0) {
    result->verdict = CTS_FAIL;
    snprintf(result->text, sizeof result->text, "error of the suite: no child process can be made: %s",
             strerror(errno));
    if (words >= 0) close(words);
    return;
  }
  setpgid(child, child);
  const int ended = wait_for(child, run->limit_s, &status);
  kill(-child, SIGKILL); /* processes that the plugin may have started */
  result->seconds = (double)(cts_now_ns() - begin) * 1e-9;
  result->verdict = atomic_load(&page->verdict);
  const int told = result->verdict == CTS_FAIL || result->verdict == CTS_SKIP;
  result->rule = told ? page->verdict_rule : atomic_load(&page->rule);
  page->text[sizeof page->text - 1] = '\0';
  snprintf(result->text, sizeof result->text, "%s", page->text);
  if (words >= 0) read_output(words, result->output, sizeof result->output), close(words);
  if (result->verdict != CTS_NONE) return;
  result->verdict = CTS_FAIL;
  where(page, at, sizeof at);
  if (!ended)
    snprintf(result->text, sizeof result->text, "the plugin did not come back within %d s, %s", run->limit_s, at);
  else if (WIFSIGNALED(status))
    snprintf(result->text, sizeof result->text, "the process was ended by %s, %s", strsignal(WTERMSIG(status)), at);
  else
    snprintf(result->text, sizeof result->text, "the plugin ended the process with code %d, %s", WEXITSTATUS(status),
             at);
}
