/* counts.c: a plugin that counts its devices in another process (hal/plugin_count.h), in the mode that COUNTS_DOES
 * names. Each count adds a line to the file COUNTS_FILE: the process and its program. */
#define _POSIX_C_SOURCE 200809L
#include <hal/plugin.h>
#include <hal/plugin_count.h>
#include <hal/plugin_setting.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static hal_status_t count(int32_t *out_count, char *why) {
  const char *const does = hal_setting("COUNTS_DOES"), *const file = hal_setting("COUNTS_FILE");
  char program[512] = "";
  if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) program[0] = '\0';
  FILE *const log = file ? fopen(file, "a") : NULL;
  if (log) {
    fprintf(log, "%ld %s\n", (long)getpid(), program);
    fclose(log);
  }
  if (does && strcmp(does, "crash") == 0) raise(SIGKILL);
  if (does && strcmp(does, "none") == 0) {
    snprintf(why, HAL_COUNT_WHY, "counts: no card is in any slot");
    return HAL_UNAVAILABLE;
  }
  *out_count = 3;
  return HAL_OK;
}

hal_status_t hal_plugin_info(hal_plugin_info_t *out_info) {
  out_info->name = "counts", out_info->vendor = "tests", out_info->version = "1";
  return HAL_OK;
}

hal_status_t hal_plugin_device_count(int32_t *out_count) {
  static hal_counter_t counter = {"counts", "look at it", count, HAL_COUNTER_NEW};
  return hal_count_devices(&counter, out_count);
}

hal_status_t hal_plugin_memory_alloc(int32_t device, size_t size, uint32_t flags, void **out_ptr) {
  (void)device, (void)flags;
  *out_ptr = malloc(size);
  return *out_ptr ? HAL_OK : HAL_RESOURCE_EXHAUSTED;
}

hal_status_t hal_plugin_memory_free(int32_t device, void *ptr) { return (void)device, free(ptr), HAL_OK; }

hal_status_t hal_plugin_memory_copy(hal_plugin_stream_t *stream, void *dst, int32_t dst_device, const void *src,
                                    int32_t src_device, size_t size) {
  (void)stream, (void)dst_device, (void)src_device;
  return memcpy(dst, src, size), HAL_OK;
}
