/* fake_compile.c: modules in the dialect "c": source that the host's C compiler compiles to a library. */
#define _GNU_SOURCE
#include <errno.h>
#include <hal/plugin_kernels.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "fake_support.h"

static char folder[] = "/tmp/fake_compile_XXXXXX";

/* Compilations use their own temporary folder here, which must be empty afterwards. */
static void begin(void) {
  cr_assert_not_null(mkdtemp(folder));
  setenv("TMPDIR", folder, 1);
}

static void finish(void) {
  close_plugin();
  cr_assert_eq(rmdir(folder), 0, "something was left in %s: %s", folder, strerror(errno));
}

TestSuite(fake_compile, .init = begin, .fini = finish, .timeout = 120);

#define TABLE                                                                                                         \
  "#include <stdint.h>\n"                                                                                             \
  "typedef struct { uint64_t begin, end; } range_t;\n"                                                                \
  "typedef struct { const char *name; void (*fn)(const range_t *, void *const *); uint32_t args, unit, grain, none; " \
  "} "                                                                                                                \
  "kernel_t;\n"
#define ADD(number)                                                           \
  TABLE                                                                       \
  "static void add(const range_t *range, void *const *args) {\n"              \
  "  float *data = *(float *const *)args[0];\n"                               \
  "  for (uint64_t i = range->begin; i < range->end; i++) data[i] += " number \
  ";\n"                                                                       \
  "}\n"                                                                       \
  "const kernel_t hal_host_kernel_add = {\"add\", add, 1, 0, 64, 0};\n"

static hal_status_t load_with(const char *source, const char *options, hal_plugin_module_t **out_module) {
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "c", .options = options, .data = source, .size = strlen(source)};
  *out_module = NULL;
  return fake_api.module_load(0, &desc, out_module);
}

static hal_status_t load(const char *source, hal_plugin_module_t **out_module) {
  return load_with(source, "", out_module);
}

/* Launches the module's kernel "add" over n floats. */
static void launch(hal_plugin_module_t *module, hal_plugin_stream_t *stream, float *data, uint32_t n) {
  hal_plugin_kernel_t *kernel = NULL;
  must(fake_api.kernel_get(module, "add", &kernel));
  const hal_arg_t argument = {&data, sizeof data, HAL_ARG_POINTER};
  const hal_launch_t what = {
      .struct_size = sizeof what, .grid = {n / 250, 1, 1}, .block = {250, 1, 1}, .arg_count = 1, .args = &argument};
  must(fake_api.kernel_launch(kernel, stream, &what));
}

/* Loads a module that adds one, runs it and unloads it. */
static void runs(void) {
  enum { COUNT = 1000 };
  hal_plugin_module_t *module;
  hal_plugin_stream_t *const stream = new_stream();
  float *const data = new_floats(COUNT, 2);
  must(load(ADD("1"), &module));
  launch(module, stream, data, COUNT);
  must(fake_api.stream_synchronize(stream));
  for (int i = 0; i < COUNT; i++) cr_assert_eq(data[i], 3, "element %d is %g", i, data[i]);
  must(fake_api.module_unload(module));
  must(fake_api.stream_destroy(stream));
}

static int lists_c(void) {
  hal_device_info_t info = {.struct_size = sizeof info};
  must(fake_api.device_info(0, &info));
  return strstr(info.dialects, ",c") != NULL;
}

Test(fake_compile, source_runs_on_a_stream) {
  open_mode(1, 2);
  cr_assert(lists_c());
  runs();
}

Test(fake_compile, source_runs_inline) {
  open_mode(0, 1);
  runs();
}

Test(fake_compile, options_reach_the_compiler) {
  hal_plugin_module_t *module;
  open_mode(0, 1);
  float *const data = new_floats(250, 0);
  must(load_with(ADD("STEP"), "-DSTEP=7 -DOTHER", &module));
  launch(module, NULL, data, 250);
  cr_assert_eq(data[249], 7);
  must(fake_api.module_unload(module));
  char options[8000];
  memset(options, 'x', sizeof options - 1);
  options[sizeof options - 1] = '\0';
  must_fail(load_with(ADD("1"), options, &module), HAL_INVALID_ARGUMENT, "too long");
}

Test(fake_compile, kernels_have_the_host_kernels_floating_point) {
  static const char source[] = TABLE
      "#if defined(__FAST_MATH__) || (defined(__FMA__) && __FP_FAST_FMAF + 0 == 0 && !defined(__FP_FAST_FMAF))\n"
      "#error wrong options\n#endif\n"
      "static void add(const range_t *range, void *const *args) {\n"
      "  volatile float a = 1.0f + 0x1p-23f; float *data = *(float *const *)args[0];\n"
      "  const float x = a, y = a;\n"
      "  for (uint64_t i = range->begin; i < range->end; i++) data[i] = x * y + data[i];\n"
      "}\n"
      "const kernel_t hal_host_kernel_add = {\"add\", add, 1, 0, 64, 0};\n";
  hal_plugin_module_t *module;
  open_mode(0, 1);
  float *const data = new_floats(250, -1.0f - 0x1p-22f); /* 2^-46 remains if the operation is fused, and zero if it
                                                            rounds twice */
  must(load(source, &module));
  launch(module, NULL, data, 250);
  cr_assert_eq(data[0], 0.0f, "%a", (double)data[0]);
  must(fake_api.module_unload(module));
}

Test(fake_compile, a_wrong_source_is_refused_with_the_compilers_words) {
  hal_plugin_module_t *module;
  open_mode(1, 1);
  must_fail(load("int this is no C;\n", &module), HAL_INVALID_ARGUMENT, "<stdin>:1:");
  must_fail(load("", &module), HAL_OK, "");
  must(fake_api.module_unload(module));
  must_fail(load("extern int nowhere(void); int here(void) { return nowhere(); }\n", &module), HAL_INVALID_ARGUMENT,
            "nowhere");
  const hal_module_desc_t none = {.struct_size = sizeof none, .dialect = "c", .options = ""};
  must_fail(fake_api.module_load(0, &none, &module), HAL_INVALID_ARGUMENT, "without a text");
}

Test(fake_compile, a_log_without_end_is_cut) {
  char *const source = malloc(2 << 20);
  hal_plugin_module_t *module;
  size_t size = 0;
  for (int i = 0; i < 20000; i++) size += (size_t)sprintf(source + size, "#warning warning number %d\n", i);
  sprintf(source + size, "#error at last\n");
  open_mode(1, 1);
  must_fail(load(source, &module), HAL_INVALID_ARGUMENT, "at last");
  free(source);
}

Test(fake_compile, what_is_no_kernel_is_not_found) {
  hal_plugin_module_t *module;
  hal_plugin_kernel_t *kernel = NULL;
  open_mode(1, 1);
  must(
      load("int hal_host_kernel_add = 5; void hal_host_kernel_code(void) {}\n"
           "const char hal_host_kernel_empty[" /* as large as an entry, and empty */
           "sizeof(void *) * 2 + 16];\n",
           &module));
  static const char *const names[] = {"add", "code", "empty", "absent", "", "printf"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    must_fail(fake_api.kernel_get(module, names[i], &kernel), HAL_NOT_FOUND, "hal_host_kernel_");
  cr_assert_null(kernel);
  size_t size;
  must_fail(fake_api.module_export(module, NULL, 0, &size), HAL_UNIMPLEMENTED, "'c'");
  must(fake_api.module_unload(module));
}

Test(fake_compile, a_name_may_have_any_length) {
  enum { LENGTH = 3000 };
  char name[LENGTH + 1], source[4 * LENGTH];
  hal_plugin_module_t *module;
  hal_plugin_kernel_t *kernel = NULL;
  open_mode(1, 1);
  memset(name, 'k', LENGTH);
  name[LENGTH] = '\0';
  snprintf(source, sizeof source,
           TABLE
           "static void run(const range_t *range, void *const *args) { (void)range, (void)args; }\n"
           "const kernel_t hal_host_kernel_%s = {\"%s\", run, 0, 0, 64, 0};\n",
           name, name);
  must(load(source, &module));
  must(fake_api.kernel_get(module, name, &kernel));
  name[LENGTH - 1] = 'l';
  must_fail(fake_api.kernel_get(module, name, &kernel), HAL_NOT_FOUND, "has no kernel 'kkk");
  must(fake_api.module_unload(module));
}

Test(fake_compile, a_missing_compiler_is_named_with_the_cure) {
  hal_plugin_module_t *module;
  setenv("HAL_FAKE_CC", "/nowhere/cc -flag", 1);
  open_mode(1, 1);
  cr_assert(lists_c());
  must_fail(load(ADD("1"), &module), HAL_UNIMPLEMENTED, "'/nowhere/cc' cannot be run: No such file or directory");
  must_fail(load(ADD("1"), &module), HAL_UNIMPLEMENTED, "HAL_FAKE_CC");
}

Test(fake_compile, none_is_wanted) {
  hal_plugin_module_t *module;
  setenv("HAL_FAKE_CC", "", 1);
  open_mode(1, 1);
  cr_assert_not(lists_c());
  must_fail(load(ADD("1"), &module), HAL_UNIMPLEMENTED, "HAL_FAKE_CC is empty");
}

Test(fake_compile, a_setting_that_is_too_long_is_refused) {
  char words[1000];
  memset(words, 'c', sizeof words - 1);
  words[sizeof words - 1] = '\0';
  setenv("HAL_FAKE_CC", words, 1);
  fake_load();
  must_fail(fake_api.init(""), HAL_INVALID_ARGUMENT, "HAL_FAKE_CC");
}

static void compiler_is(const char *words, hal_status_t code, const char *text) {
  hal_plugin_module_t *module;
  setenv("HAL_FAKE_CC", words, 1);
  open_mode(1, 1);
  must_fail(load(ADD("1"), &module), code, text);
}

Test(fake_compile, a_compiler_that_prints_nothing) { compiler_is("false", HAL_INVALID_ARGUMENT, "left no log"); }
Test(fake_compile, a_compiler_that_makes_nothing) { compiler_is("true", HAL_INVALID_ARGUMENT, "exit code 0"); }
Test(fake_compile, a_compiler_that_is_killed) {
  char path[128], words[160];
  snprintf(path, sizeof path, "%s/killed", folder);
  FILE *const script = fopen(path, "w");
  fputs("#!/bin/sh\nkill -9 $$\n", script);
  fclose(script);
  cr_assert_eq(chmod(path, 0700), 0);
  snprintf(words, sizeof words, "%s and a word", path);
  compiler_is(words, HAL_INTERNAL, "was killed");
  unlink(path);
}

Test(fake_compile, an_invalid_folder) {
  hal_plugin_module_t *module;
  open_mode(1, 1);
  setenv("TMPDIR", "/nowhere", 1);
  must_fail(load(ADD("1"), &module), HAL_FAILED_PRECONDITION, "TMPDIR");
  setenv("TMPDIR", folder, 1);
  runs();
}

Test(fake_compile, children_that_are_not_waited_for) {
  signal(SIGCHLD, SIG_IGN);
  open_mode(1, 1);
  runs();
  hal_plugin_module_t *module;
  must_fail(load("int this is no C;\n", &module), HAL_INVALID_ARGUMENT, "<stdin>:1:");
}

static void *compile_some(void *failed) {
  for (int i = 0; i < 3; i++) {
    hal_plugin_module_t *module = NULL;
    hal_plugin_kernel_t *kernel = NULL;
    if (load(ADD("1"), &module) || fake_api.kernel_get(module, "add", &kernel) || fake_api.module_unload(module))
      atomic_store((atomic_int *)failed, 1);
  }
  return NULL;
}

Test(fake_compile, threads_compile_at_the_same_time) {
  pthread_t threads[2];
  atomic_int failed = 0;
  open_mode(1, 2);
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, compile_some, &failed);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  cr_assert_not(failed);
}

Test(fake_compile, a_child_of_a_fork_compiles_too) {
  int status = 0;
  open_mode(1, 2);
  runs();
  const pid_t child = fork();
  if (child == 0) {
    runs();
    _exit(0);
  }
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  runs();
}

static void keep_name(void *name, const hal_profile_record_t *record) {
  if (record->kind == HAL_PROFILE_KERNEL) snprintf(name, 16, "%s", record->name);
}

Test(fake_compile, records_name_kernels_of_unloaded_modules) {
  hal_plugin_module_t *module;
  char name[16] = "";
  open_mode(1, 1);
  hal_plugin_stream_t *const stream = new_stream();
  must(load(ADD("1"), &module));
  must(fake_api.profile_enable(0, 1));
  launch(module, stream, new_floats(250, 0), 250);
  must(fake_api.stream_synchronize(stream));
  must(fake_api.module_unload(module));
  must(fake_api.profile_read(0, keep_name, name));
  cr_assert_str_eq(name, "add");
  must(fake_api.profile_enable(0, 0));
}
