/* helper.c: see helper.h. */
#define _GNU_SOURCE
#include "plugin/helper.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hal/status.h"
#include "plugin/call.h"
#include "plugin/loader.h"
#include "plugin/trial.h"
#include "sdk/helper.h"

static hal_plugin_t plugin;

/* A failure with a message counts as success here: the parent gets the same message. */
static void start(void) {
  hal_trial_step(HAL_SLOT_init);
  if (hal_call_init(&plugin, "")) return;
  for (int32_t device = 0; device < plugin.device_count; device++) {
    hal_device_info_t info = {.struct_size = HAL_STRUCT_SIZE(hal_device_info_t, architecture)};
    hal_trial_step(HAL_SLOT_device_info);
    if (hal_call_device_info(&plugin, device, &info)) return;
  }
}

static int try_plugin(const char *path, int starts) {
  hal_trial_page_t *const page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, HAL_HELPER_ANSWER, 0);
  if (page == MAP_FAILED) return 2;
  hal_trial_report_to(page);
  hal_trial_step(HAL_TRIAL_LOADING);
  if (!hal_plugin_open(path, &plugin) && !hal_plugin_count_devices(&plugin) && starts) start();
  hal_trial_step(HAL_TRIAL_DONE);
  return 0;
}

static int count_devices(const char *path) {
  hal_helper_count_t reply = {.count = 0};
  unsetenv("HAL_LAYERS"); /* layers of the parent watch this call already */
  reply.status = hal_plugin_open(path, &plugin);
  if (!reply.status) reply.status = hal_call_device_count(&plugin, &reply.count);
  if (reply.status) snprintf(reply.why, sizeof reply.why, "%s", hal_error_message());
  /* within PIPE_BUF: written completely or not at all */
  const ssize_t written = write(HAL_HELPER_ANSWER, &reply, sizeof reply);
  return written == (ssize_t)sizeof reply ? 0 : 2;
}

int hal_helper_main(int count, char **words) {
  if (count != 3) return 2;
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* a plugin that crashes here must not write a core file */
  prctl(PR_SET_PDEATHSIG, SIGKILL);               /* a plugin that hangs does not outlive the program that tries it */
  int code = 2;
  if (strcmp(words[1], HAL_HELPER_LOAD) == 0) code = try_plugin(words[2], 0);
  if (strcmp(words[1], HAL_HELPER_START) == 0) code = try_plugin(words[2], 1);
  if (strcmp(words[1], HAL_HELPER_COUNT) == 0) code = count_devices(words[2]);
  _exit(code); /* no destructor of a driver runs */
}
