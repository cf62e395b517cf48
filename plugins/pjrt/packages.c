/* packages.c: the PJRT plugins of packages of Python, by the name of their platform. A package is searched in the
 * folder of packages that contains this plugin, in the virtual environment, and in PYTHONPATH. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <elf.h>
#include <glob.h>
#include <hal/plugin_setting.h>
#include <stdio.h>
#include <string.h>

#include "pjrt.h"

enum { FOLDERS_BYTES = 8192, NAMES_BYTES = 128 };

/* Platforms, and where their packages have the plugin. */
static const struct {
  const char *platform, *file;
} packages[] = {{"cpu", "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"},
                {"cpu", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"},
                {"tpu", "libtpu/libtpu.so"},
                {"cuda", "jax_plugins/xla_cuda*/xla_cuda_plugin.so"},
                {"rocm", "jax_plugins/xla_rocm*/xla_rocm_plugin.so"},
                {"oneapi", "jax_plugins/*oneapi*/xla_oneapi_plugin.so"},
                {"xpu", "jax_plugins/intel_extension_for_openxla/pjrt_plugin_xpu.so"},
                {"tt", "pjrt_plugin_tt/pjrt_plugin_tt.so"},
                {"tt", "jax_plugins/pjrt_plugin_tt/pjrt_plugin_tt.so"},
                {"neuron", "libneuronxla/libneuronpjrt.so"}};
enum { PACKAGES = sizeof packages / sizeof *packages };

typedef struct found_s {
  int platforms;
  const char *last;        /* platform */
  char path[PJRT_PATH];    /* of the first package */
  char names[NAMES_BYTES]; /* of the platforms */
} found_t;

static void add_name(char *names, const char *name) {
  const size_t size = strlen(names);
  snprintf(names + size, NAMES_BYTES - size, "%s%s", size ? ", " : "", name);
}

static void list_platforms(char *names) {
  *names = '\0';
  for (int i = 0; i < PACKAGES; i++)
    if (!i || strcmp(packages[i].platform, packages[i - 1].platform) != 0) add_name(names, packages[i].platform);
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

static void add_folder(char *folders, const char *folder, size_t size) {
  const size_t before = strlen(folders);
  if (size && *folder == '/' && before + size + 2 < FOLDERS_BYTES)
    snprintf(folders + before, FOLDERS_BYTES - before, "%.*s:", (int)size, folder);
}

/* Adds the folder of packages above this plugin's file. */
static void add_own(char *folders) {
  static const char *const names[] = {"/site-packages/", "/dist-packages/"};
  Dl_info info;
  if (!dladdr(packages, &info) || !info.dli_fname) return;
  for (int i = 0; i < 2; i++) {
    const char *const at = strstr(info.dli_fname, names[i]);
    if (at) add_folder(folders, info.dli_fname, (size_t)(at - info.dli_fname) + strlen(names[i]) - 1);
  }
}

/* Writes the folders, each with a colon at its end. */
static void list_folders(char *folders) {
  const char *const environment = hal_setting("VIRTUAL_ENV"), *path = hal_setting("PYTHONPATH");
  char pattern[PJRT_PATH];
  glob_t matches;
  *folders = '\0';
  add_own(folders);
  if (environment && *environment == '/' &&
      snprintf(pattern, sizeof pattern, "%s/lib/python3*/site-packages", environment) < (int)sizeof pattern &&
      glob(pattern, 0, NULL, &matches) == 0) {
    for (size_t i = 0; i < matches.gl_pathc; i++) add_folder(folders, matches.gl_pathv[i], strlen(matches.gl_pathv[i]));
    globfree(&matches);
  }
  for (; path && *path; path += strcspn(path, ":"), path += *path == ':') add_folder(folders, path, strcspn(path, ":"));
}

/* ---- search ------------------------------------------------------------------------------------------------------ */

static void look(found_t *found, int package, const char *folder, size_t size) {
  char pattern[PJRT_PATH];
  glob_t matches;
  if (snprintf(pattern, sizeof pattern, "%.*s/%s", (int)size, folder, packages[package].file) >= (int)sizeof pattern ||
      glob(pattern, 0, NULL, &matches) != 0)
    return;
  if (!found->platforms) snprintf(found->path, sizeof found->path, "%s", matches.gl_pathv[matches.gl_pathc - 1]);
  if (!found->last || strcmp(found->last, packages[package].platform) != 0) { /* packages are listed by platform */
    found->last = packages[package].platform;
    found->platforms++;
    add_name(found->names, found->last);
  }
  globfree(&matches);
}

/* Finds the packages of a platform, or all known ones (NULL). */
static void search(const char *platform, found_t *found) {
  char folders[FOLDERS_BYTES];
  *found = (found_t){.platforms = 0};
  list_folders(folders);
  for (int i = 0; i < PACKAGES; i++)
    for (const char *folder = folders; (!platform || !strcmp(platform, packages[i].platform)) && *folder;) {
      const size_t size = strcspn(folder, ":");
      look(found, i, folder, size);
      folder += size + 1;
    }
}

static int is_platform(const char *name) {
  for (int i = 0; i < PACKAGES; i++)
    if (!strcmp(name, packages[i].platform)) return 1;
  return 0;
}

/* ---- the setting ------------------------------------------------------------------------------------------------- */

static const char cure[] =
    "set HAL_PJRT_PLUGIN to the absolute path of a PJRT plugin, a shared object with the function GetPjrtApi, or to a "
    "platform whose package is installed";

/* Finds the only package that is installed. */
static hal_status_t find_any(char *path) {
  char names[NAMES_BYTES];
  found_t found;
  search(NULL, &found);
  list_platforms(names);
  if (found.platforms > 1)
    return pjrt_error(HAL_UNAVAILABLE,
                      "pjrt: HAL_PJRT_PLUGIN is not set, and packages of several platforms are installed: %s; set it "
                      "to one of them, or to several, separated by commas",
                      found.names);
  if (!found.platforms)
    return pjrt_error(HAL_UNAVAILABLE, "pjrt: HAL_PJRT_PLUGIN is not set, and no package of %s is installed; %s", names,
                      cure);
  memcpy(path, found.path, PJRT_PATH);
  return HAL_OK;
}

/* Finds the plugin of one entry of the setting. */
static hal_status_t find_one(const char *entry, char *path) {
  char names[NAMES_BYTES];
  found_t found;
  list_platforms(names);
  if (*entry == '/') return memcpy(path, entry, strlen(entry) + 1), HAL_OK;
  if (!is_platform(entry))
    return pjrt_error(HAL_UNAVAILABLE,
                      "pjrt: HAL_PJRT_PLUGIN is not an absolute path: %.300s, and not a known platform: %s; %s", entry,
                      names, cure);
  search(entry, &found);
  if (!found.platforms)
    return pjrt_error(HAL_UNAVAILABLE, "pjrt: HAL_PJRT_PLUGIN is %.40s, and no package of it is installed; %s", entry,
                      cure);
  memcpy(path, found.path, PJRT_PATH);
  return HAL_OK;
}

hal_status_t pjrt_find_plugins(pjrt_paths_t *paths) {
  const char *rest = hal_setting("HAL_PJRT_PLUGIN");
  char entry[PJRT_PATH];
  hal_status_t status = HAL_OK;
  paths->count = 0;
  if (!rest || !*rest) return paths->count = 1, find_any(paths->paths[0]);
  for (int more = 1; more && !status;) {
    const size_t size = strcspn(rest, ",");
    if (paths->count == PJRT_MAX_PLATFORMS)
      return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: HAL_PJRT_PLUGIN has more than %d platforms", PJRT_MAX_PLATFORMS);
    if (size >= sizeof entry)
      return pjrt_error(HAL_INVALID_ARGUMENT, "pjrt: HAL_PJRT_PLUGIN has more than %d characters", PJRT_PATH - 1);
    memcpy(entry, rest, size);
    entry[size] = '\0';
    status = find_one(entry, paths->paths[paths->count++]);
    more = rest[size] == ',';
    rest += size + (size_t)more;
  }
  return status;
}

/* ---- files of other processors ----------------------------------------------------------------------------------- */

/* Returns the machine in a file's ELF header; -1 = it has none. */
static int machine_of(const char *path) {
  Elf64_Ehdr header;
  FILE *const file = fopen(path, "rbe");
  if (!file) return -1;
  const size_t count = fread(&header, 1, offsetof(Elf64_Ehdr, e_version), file);
  fclose(file);
  return count == offsetof(Elf64_Ehdr, e_version) && !memcmp(header.e_ident, ELFMAG, SELFMAG) ? header.e_machine : -1;
}

int pjrt_other_machine(const char *path) {
  Dl_info info;
  const int machine = machine_of(path);
  const int ours = dladdr(packages, &info) && info.dli_fname ? machine_of(info.dli_fname) : -1;
  return machine >= 0 && ours >= 0 && machine != ours ? machine : -1;
}
