/* search_path.c: the directories that are searched for plugins: those added by the program, newest first, then
 * HAL_PLUGIN_PATH, a colon-separated list. */
#define _POSIX_C_SOURCE 200809L
#include "plugin/search_path.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/text.h"
#include "hal/log.h"
#include "hal/status.h"
#include "plugin/plugin.h"

enum { MAX_FOUND = 64 };

typedef struct directory_s {
  struct directory_s *next;
  char path[];
} directory_t;

/* Directories of the program, newest first; never freed, since another thread may be reading the list. */
static directory_t *added;
static hal_lock_t added_lock;

int hal_process_is_privileged(void) { return getauxval(AT_SECURE) != 0; }

int hal_plugin_name_is_valid(const char *name, size_t length) {
  if (length == 0 || length >= HAL_PLUGIN_NAME_BYTES || name[0] < 'a' || name[0] > 'z') return 0;
  for (size_t i = 0; i < length; i++) {
    const char c = name[i];
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')) return 0;
  }
  return 1;
}

hal_status_t hal_registry_add_path(const char *path) {
  if (!path || path[0] != '/')
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "plugin directory '%s' is not an absolute path; expected one that begins with /",
                         path ? path : "(null)");
  const size_t bytes = strlen(path) + 1;
  directory_t *const directory = hal_malloc(sizeof *directory + bytes);
  if (!directory)
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory while adding plugin directory %s", path);
  memcpy(directory->path, path, bytes);
  hal_lock(&added_lock);
  directory->next = added;
  added = directory;
  hal_unlock(&added_lock);
  return HAL_OK;
}

/* Calls `visit` for each directory in order, until it returns non-zero, and returns that. */
static int each_directory(int (*visit)(const char *directory, void *user_data), void *user_data) {
  hal_lock(&added_lock);
  const directory_t *directory = added;
  hal_unlock(&added_lock); /* the list after the head never changes */
  const directory_t *const newest = directory;
  for (; directory; directory = directory->next) {
    const directory_t *twin = newest; /* a directory that was added again has the position of its newest entry */
    while (twin != directory && strcmp(twin->path, directory->path)) twin = twin->next;
    if (twin != directory) continue;
    const int result = visit(directory->path, user_data);
    if (result) return result;
  }
  const char *rest = hal_process_is_privileged() ? NULL : getenv("HAL_PLUGIN_PATH");
  while (rest && *rest) {
    const size_t length = strcspn(rest, ":");
    char path[PATH_MAX];
    if (rest[0] != '/' && length > 0) {
      hal_log(HAL_LOG_WARNING, "HAL_PLUGIN_PATH: '%.*s' is skipped, since it is not an absolute path", (int)length,
              rest);
    } else if (length > 0 && length < sizeof path) {
      memcpy(path, rest, length);
      path[length] = '\0';
      const int result = visit(path, user_data);
      if (result) return result;
    }
    rest += length + (rest[length] == ':');
  }
  return 0;
}

typedef struct search_s {
  const char *name;
  int length;
  char *path;
  char tried[512];
} search_t;

static int find_in(const char *directory, void *user_data) {
  search_t *const search = user_data;
  const int length = snprintf(search->path, PATH_MAX, "%s/libhal_%.*s.so", directory, search->length, search->name);
  if (length < PATH_MAX && access(search->path, F_OK) == 0) return 1;
  hal_text_append(search->tried, sizeof search->tried, "%s%s", search->tried[0] ? ", " : "", directory);
  return 0;
}

hal_status_t hal_search_plugin(const char *name, size_t length, char out_path[PATH_MAX]) {
  if (!hal_plugin_name_is_valid(name, length))
    return hal_error_set(
        HAL_INVALID_ARGUMENT,
        "'%.*s' cannot name a plugin; expected a name of lower-case letters, digits and '_' that begins with a "
        "letter, or the absolute path of a plugin's file",
        (int)(length < 200 ? length : 200), name);
  search_t search = {.name = name, .length = (int)length, .path = out_path};
  if (each_directory(find_in, &search)) return HAL_OK;
  if (!search.tried[0])
    return hal_error_set(HAL_NOT_FOUND,
                         "plugin '%.*s' was not found: no directory is searched; set HAL_PLUGIN_PATH to the "
                         "directory of libhal_%.*s.so, or pass its absolute path",
                         (int)length, name, (int)length, name);
  return hal_error_set(HAL_NOT_FOUND,
                       "plugin '%.*s' was not found: there is no libhal_%.*s.so in %s; check the name, or set "
                       "HAL_PLUGIN_PATH to the file's directory",
                       (int)length, name, (int)length, name, search.tried);
}

typedef struct found_s {
  int (*visit)(const char *path, void *user_data);
  void *user_data;
  char names[MAX_FOUND][HAL_PLUGIN_NAME_BYTES];
  int count;
} found_t;

int hal_plugin_file_name(const char *file, char out_name[HAL_PLUGIN_NAME_BYTES]) {
  const char *const slash = strrchr(file, '/');
  if (slash) file = slash + 1;
  const size_t head = strlen("libhal_"), tail = strlen(".so"), length = strlen(file);
  if (length <= head + tail || strncmp(file, "libhal_", head) || strcmp(file + length - tail, ".so")) return 0;
  const size_t name_length = length - head - tail;
  if (!hal_plugin_name_is_valid(file + head, name_length)) return 0;
  memcpy(out_name, file + head, name_length);
  out_name[name_length] = '\0';
  return 1;
}

static int compare_names(const void *a, const void *b) { return strcmp(a, b); }

static int visit_all_in(const char *directory, void *user_data) {
  found_t *const found = user_data;
  DIR *const stream = opendir(directory);
  if (!stream) return 0;
  const int first = found->count;
  for (const struct dirent *entry; (entry = readdir(stream)) && found->count < MAX_FOUND;) {
    char *const name = found->names[found->count];
    if (!hal_plugin_file_name(entry->d_name, name)) continue;
    int hidden = 0;
    for (int i = 0; i < first; i++) hidden |= strcmp(found->names[i], name) == 0;
    found->count += !hidden;
  }
  closedir(stream);
  qsort(found->names[first], (size_t)(found->count - first), HAL_PLUGIN_NAME_BYTES, compare_names);
  for (int i = first; i < found->count; i++) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/libhal_%s.so", directory, found->names[i]) >= (int)sizeof path) continue;
    const int result = found->visit(path, found->user_data);
    if (result) return result;
  }
  return 0;
}

hal_status_t hal_search_all(int (*visit)(const char *path, void *user_data), void *user_data) {
  found_t *const found = hal_calloc(1, sizeof *found);
  if (!found) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory while searching for plugins");
  found->visit = visit;
  found->user_data = user_data;
  each_directory(visit_all_in, found);
  hal_free(found);
  return HAL_OK;
}
