/* privileged.c: in a set-user-id process, the environment must not affect which files are loaded, and a trial needs
 * no file of /dev. Run as root, it creates a copy of itself that runs as another user, and checks there; otherwise
 * it is skipped (exit status 77). */
#define _GNU_SOURCE /* unshare */
#include <errno.h>
#include <fcntl.h>
#include <hal/hal.h>
#include <hal/plugin_setting.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77, NOBODY = 65534 };

static int expect(const char *list, hal_status_t code, const char *text) {
  const hal_status_t status = hal_registry_open(list);
  if (status == code && strstr(hal_error_message(), text)) return 0;
  fprintf(stderr, "'%s': %s instead of %s with '%s': %s\n", list ? list : "(TORCH_BACKEND)", hal_status_name(status),
          hal_status_name(code), text, hal_error_message());
  return 1;
}

static int check(const char *unsafe_plugin) {
  char safe_plugin[PATH_MAX];
  if (!getauxval(AT_SECURE)) return SKIPPED; /* the file system ignores the set-user-id bit */
  int mistakes = expect("five", HAL_NOT_FOUND, "no directory is searched"); /* HAL_PLUGIN_PATH has one */
  mistakes += expect(NULL, HAL_FAILED_PRECONDITION, "a path in TORCH_BACKEND is ignored");
  mistakes +=
      expect(unsafe_plugin, HAL_FAILED_PRECONDITION, "can be written by other users"); /* HAL_ALLOW_UNSAFE_PLUGINS=1 */
  if (hal_setting("HAL_PLUGIN_PATH") || !getenv("HAL_PLUGIN_PATH")) {
    fprintf(stderr, "a setting of a plugin was read from the environment\n");
    mistakes++;
  }
  /* HAL_PLUGIN_TRIAL=0 is ignored: the helper next to the program tries the plugin. */
  const size_t folder = (size_t)(strrchr(unsafe_plugin, '/') - unsafe_plugin);
  snprintf(safe_plugin, sizeof safe_plugin, "%.*s/libhal_crashes_probe.so", (int)folder, unsafe_plugin);
  mistakes += expect(safe_plugin, HAL_INCOMPATIBLE, "crashes in hal_plugin_probe");
  snprintf(safe_plugin, sizeof safe_plugin, "%.*s/libhal_streamless.so", (int)folder, unsafe_plugin);
  return mistakes + expect(safe_plugin, HAL_OK, "");
}

static int copy_file(const char *from, const char *to) {
  char buffer[65536];
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  size_t count = 0;
  while (in && out && (count = fread(buffer, 1, sizeof buffer, in)) > 0)
    if (fwrite(buffer, 1, count, out) != count) break;
  if (in) fclose(in);
  return !in || !out || fclose(out) || count ? -1 : 0;
}

/* The files next to the program: the helper, its library, and plugins that others may not write. */
static const char *const others[] = {HAL_HELPER, HAL_LIBRARY, FIXTURE_DIR "/libhal_streamless.so",
                                     FIXTURE_DIR "/libhal_crashes_probe.so"};
enum { OTHERS = sizeof others / sizeof *others };

static void name_in(const char *directory, const char *path, char name[PATH_MAX]) {
  snprintf(name, PATH_MAX, "%s%s", directory, strrchr(path, '/'));
}

static int copy_others(const char *directory) {
  char name[PATH_MAX];
  for (int i = 0; i < OTHERS; i++) {
    name_in(directory, others[i], name);
    if (copy_file(others[i], name) || chmod(name, 0755)) return -1;
  }
  return 0;
}

static void remove_others(const char *directory) {
  char name[PATH_MAX];
  for (int i = 0; i < OTHERS; i++) name_in(directory, others[i], name), unlink(name);
}

/* In a mount namespace of this process: only root may open /dev/null. Returns -1 if namespaces are not allowed. */
static int hide_null(const char *directory) {
  char name[PATH_MAX];
  snprintf(name, sizeof name, "%s/null", directory);
  const int file = open(name, O_CREAT | O_WRONLY, 0600);
  if (file < 0 || close(file)) return -1;
  int failed = unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
  failed = failed || mount(name, "/dev/null", NULL, MS_BIND, NULL);
  unlink(name);
  return failed ? -1 : 0;
}

/* Runs `program` as its owner, with /dev/null or without; returns the status of waitpid. */
static int run(const char *program, const char *plugin, const char *directory, int has_null) {
  int status = 1 << 8;
  const pid_t child = fork();
  if (child == 0) {
    if (!has_null && hide_null(directory)) {
      fprintf(stderr, "not run without /dev/null: %s\n", strerror(errno));
      _exit(0);
    }
    execl(program, program, plugin, (char *)NULL);
    _exit(1);
  }
  return waitpid(child, &status, 0) == child ? status : 1 << 8;
}

int main(int argument_count, char **arguments) {
  if (argument_count == 2) {
    fflush(NULL);
    _exit(check(arguments[1])); /* without the leak check at exit, which cannot trace a set-user-id process */
  }
  if (geteuid() != 0) return SKIPPED;
  char directory[] = "/tmp/hal-privileged-XXXXXX", program[PATH_MAX], plugin[PATH_MAX];
  if (!mkdtemp(directory) || chmod(directory, 0755)) return 1;
  snprintf(program, sizeof program, "%s/program", directory);
  snprintf(plugin, sizeof plugin, "%s/libhal_five.so", directory);
  int status = 1 << 8;
  if (!copy_file("/proc/self/exe", program) && !copy_file(FIXTURE_DIR "/libhal_five.so", plugin) &&
      !copy_others(directory) && !chown(program, NOBODY, NOBODY) && !chmod(program, 04755) && !chmod(plugin, 0777)) {
    setenv("HAL_PLUGIN_PATH", FIXTURE_DIR, 1);
    setenv("TORCH_BACKEND", plugin, 1);
    setenv("HAL_ALLOW_UNSAFE_PLUGINS", "1", 1);
    setenv("HAL_PLUGIN_TRIAL", "0", 1);
    status = run(program, plugin, directory, 1);
    if (status == 0) status = run(program, plugin, directory, 0);
  }
  unlink(program);
  unlink(plugin);
  remove_others(directory);
  rmdir(directory);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
