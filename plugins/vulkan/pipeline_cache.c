/* pipeline_cache.c: the driver's compiled pipelines, kept in a file for later processes. The file's name identifies the
 * driver by its UUID. The driver checks the content, too: a file that does not fit is as good as none. */
#define _GNU_SOURCE /* mkostemp */
#include <errno.h>
#include <fcntl.h>
#include <hal/plugin_setting.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vulkan_plugin.h"

enum { MOST_BYTES = 256 << 20, SAVED_AT_ONCE = 32 };

/* Writes the folder: HAL_CACHE_DIR, or the user's folder as the host's cache of kernels. Returns 0 if there is none. */
static int find_folder(char *folder, size_t room) {
  const char *const named = hal_setting("HAL_CACHE_DIR"), *const user = hal_setting("XDG_CACHE_HOME"),
                    *const home = hal_setting("HOME");
  int length = 0;
  if (named)
    length = *named ? snprintf(folder, room, "%s/vulkan", named) : 0;
  else if (user && *user == '/')
    length = snprintf(folder, room, "%s/torch_backend/vulkan", user);
  else if (home && *home == '/')
    length = snprintf(folder, room, "%s/.cache/torch_backend/vulkan", home);
  return length > 0 && (size_t)length < room;
}

static int find_file(const vulkan_device_t *device, char *path, size_t room) {
  char folder[PATH_MAX], uuid[2 * VK_UUID_SIZE + 1];
  for (int i = 0; i < VK_UUID_SIZE; i++) snprintf(uuid + 2 * i, 3, "%02x", device->facts.pipelineCacheUUID[i]);
  if (!find_folder(folder, sizeof folder)) return 0;
  const int length = snprintf(path, room, "%s/%08x-%08x-%s", folder, (unsigned)device->facts.vendorID,
                              (unsigned)device->facts.deviceID, uuid);
  return length > 0 && (size_t)length < room;
}

/* Creates the folders of a path. */
static void make_folders(char *path) {
  for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
    *at = '\0';
    mkdir(path, 0700);
    *at = '/';
  }
}

/* Returns the bytes of a file that only this user may write, which the caller frees; NULL if there is none. */
static void *read_file(const char *path, size_t *out_size) {
  struct stat facts;
  void *data = NULL;
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return NULL;
  if (!fstat(file, &facts) && S_ISREG(facts.st_mode) && facts.st_uid == geteuid() && !(facts.st_mode & 022) &&
      facts.st_size > 0 && facts.st_size <= MOST_BYTES)
    data = hal_host->mem_alloc((size_t)facts.st_size, alignof(max_align_t));
  if (data && read(file, data, (size_t)facts.st_size) != facts.st_size) {
    hal_host->mem_free(data);
    data = NULL;
  }
  close(file);
  *out_size = data ? (size_t)facts.st_size : 0;
  return data;
}

/* Replaces a file, completely or not at all. */
static void write_file(char *path, const void *data, size_t size) {
  char temporary[PATH_MAX + 8];
  make_folders(path);
  snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
  const int file = mkostemp(temporary, O_CLOEXEC);
  if (file < 0) return;
  const int is_whole = write(file, data, size) == (ssize_t)size;
  if (close(file) || !is_whole || rename(temporary, path)) unlink(temporary);
}

void vulkan_cache_open(vulkan_device_t *device) {
  char path[PATH_MAX];
  size_t size = 0;
  void *const data = find_file(device, path, sizeof path) ? read_file(path, &size) : NULL;
  VkPipelineCacheCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, .initialDataSize = size, .pInitialData = data};
  VkResult code = vk.CreatePipelineCache(device->handle, &info, NULL, &device->cache);
  if (code && data) { /* a driver may refuse the data of another one */
    info.initialDataSize = 0;
    info.pInitialData = NULL;
    code = vk.CreatePipelineCache(device->handle, &info, NULL, &device->cache);
  }
  if (code) device->cache = NULL; /* pipelines are compiled without one */
  hal_host->mem_free(data);
}

void vulkan_cache_save(vulkan_device_t *device) {
  char path[PATH_MAX];
  size_t size = 0;
  if (!device->cache || !atomic_exchange(&device->unsaved, 0) || !find_file(device, path, sizeof path)) return;
  if (vk.GetPipelineCacheData(device->handle, device->cache, &size, NULL) || !size || size > MOST_BYTES) return;
  void *const data = hal_host->mem_alloc(size, alignof(max_align_t));
  if (data && !vk.GetPipelineCacheData(device->handle, device->cache, &size, data)) write_file(path, data, size);
  hal_host->mem_free(data);
}

void vulkan_cache_grew(vulkan_device_t *device) {
  if (atomic_fetch_add(&device->unsaved, 1) + 1 >= SAVED_AT_ONCE) vulkan_cache_save(device);
}
