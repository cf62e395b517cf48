/* Tests of packs: files next to a plugin with kernels that hal-pack compiled ahead of time. They are used without a
 * compiler. A damaged, stale or foreign pack produces one warning and never a wrong number. The plugin is a copy in
 * a separate folder. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <hal/hal.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "npu_testing.h"
#include "op/op_testing.h"
#include "op/pack.h"
#include "op/source.h"

enum { ROOM = 300, COUNT = 1000 };

static char folder[64], plugin[ROOM], pack_path[ROOM];
static int warnings;
static char last_warning[2048];

static void hear(int32_t level, const char *message, void *user_data) {
  (void)user_data;
  if (level != HAL_LOG_WARNING) return;
  warnings++;
  snprintf(last_warning, sizeof last_warning, "%s", message);
}

/* From here on PATH contains no compiler, only the tools that PoCL, which executes the kernels of the mock driver,
   needs to link its code. */
static void take_compilers(void) {
  char tools[ROOM], linker[ROOM];
  snprintf(tools, sizeof tools, "%s/bin", folder);
  snprintf(linker, sizeof linker, "%s/bin/ld", folder);
  cr_assert_eq(mkdir(tools, 0700), 0);
  cr_assert_eq(symlink("/usr/bin/ld", linker), 0);
  setenv("PATH", tools, 1);
}

static void copy_file(const char *from, const char *to) {
  char command[2 * ROOM + 16];
  snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
  cr_assert_eq(system(command), 0);
}

static void begin(void) {
  use_double("2");
  snprintf(folder, sizeof folder, "/tmp/hal_npu_pack.XXXXXX");
  cr_assert_not_null(mkdtemp(folder));
  snprintf(plugin, sizeof plugin, "%s/libhal_npu.so", folder);
  snprintf(pack_path, sizeof pack_path, "%s/libhal_npu.pack", folder);
  copy_file(PLUGIN_DIR "/libhal_npu.so", plugin);
  setenv("HAL_CACHE_DIR", "", 1); /* kernels are found only in the pack */
  hal_log_set_sink(hear, NULL);
}

static void end(void) {
  char command[ROOM + 16];
  hal_registry_close();
  snprintf(command, sizeof command, "/bin/rm -r '%s'", folder);
  cr_assert_eq(system(command), 0);
}

TestSuite(npu_pack, .init = begin, .fini = end);

/* Runs hal-pack; the test is skipped without compilers. */
static void build_pack(const char *options) {
  char command[4 * ROOM];
  snprintf(command, sizeof command, HAL_PACK_PROGRAM " --quiet --skip-code 77 --output '%s' %s >&2", pack_path,
           options);
  const int code = system(command);
  if (WIFEXITED(code) && WEXITSTATUS(code) == 77) skip("clang and llvm-spirv are not here");
  cr_assert_eq(code, 0, "%s", command);
}

static hal_kernel_stats_t stats_of(int32_t device) {
  hal_kernel_stats_t stats = {.struct_size = sizeof stats};
  assert_ok(hal_kernel_stats(device, &stats));
  return stats;
}

static void open_plugin(void) {
  const hal_status_t status = hal_registry_open(plugin);
  if (status == HAL_UNAVAILABLE) skip(hal_error_message());
  assert_ok(status);
}

/* x + x with the device's kernel: a correct result, or HAL_UNIMPLEMENTED. */
static hal_status_t twice(hal_dtype_t dtype) {
  const int64_t sizes[] = {COUNT};
  tensor_t *const x = tensor_new(dtype, 1, sizes, CONTIGUOUS), *const y = tensor_new(dtype, 1, sizes, CONTIGUOUS);
  for (int64_t i = 0; i < COUNT; i++) store(dtype, x->host + (size_t)i * x->element, (number_t){i % 50, i % 50});
  tensor_upload(x);
  const hal_value_t args[] = {of_tensor(x), of_tensor(x), of_int(1)};
  const hal_status_t status = run("add.Tensor", args, 3, y, 0);
  tensor_download(y);
  for (int64_t i = 0; i < COUNT && !status; i++)
    cr_assert_eq((int64_t)tensor_get(y, i).f, 2 * (i % 50), "element %d", (int)i);
  tensor_free(x), tensor_free(y);
  return status;
}

static const char f32_and_f16[] = "--kernels 'add_f32_*,add_f16_*'";

Test(npu_pack, without_a_compiler_what_is_in_the_pack_runs_and_nothing_is_compiled) {
  hal_device_info_t info = {.struct_size = sizeof info};
  hal_kernel_t *kernel;
  build_pack(f32_and_f16);
  take_compilers();
  open_plugin();
  assert_ok(hal_device_info(0, &info));
  cr_assert_str_eq(info.dialects, "spirv,binary");
  assert_ok(twice(HAL_FLOAT32));
  assert_ok(twice(HAL_FLOAT16));
  cr_assert_eq(twice(HAL_INT32), HAL_UNIMPLEMENTED, "it is not in the pack");
  const hal_kernel_stats_t stats = stats_of(0);
  cr_assert_eq(stats.compiled, 0);
  cr_assert_eq(stats.packed, 2);
  cr_assert_eq(stats.refused, 0);
  cr_assert_str_eq(stats.dialect, "");
  cr_assert_str_eq(stats.pack, pack_path);
  cr_assert_eq(warnings, 0, "%s", last_warning);
  assert_fails(hal_kernel_compile(0, "k", "PK_KERNEL(k, ARGS) {}", &kernel), HAL_UNIMPLEMENTED, "opencl-c");
}

Test(npu_pack, with_a_compiler_only_what_is_not_in_the_pack_is_compiled) {
  build_pack("--kernels 'add_f32_*'");
  open_plugin();
  assert_ok(twice(HAL_FLOAT32));
  assert_ok(twice(HAL_INT32));
  cr_assert_eq(stats_of(0).packed, 1);
  cr_assert_eq(stats_of(0).compiled, 1);
}

Test(npu_pack, each_form_of_kernels_is_found_by_its_own_devices) {
  build_pack("--form cpu --kernels 'add_f32_*'");
  setenv("HAL_NPU_FORM", "simt", 1);
  open_plugin();
  assert_ok(twice(HAL_FLOAT32));
  cr_assert_eq(stats_of(0).packed, 0);
}

Test(npu_pack, few_wide_cores_are_served_by_their_form) {
  build_pack("--form cpu --form simt --kernels 'add_f32_*'");
  setenv("HAL_NPU_FORM", "cpu", 1);
  take_compilers();
  open_plugin();
  assert_ok(twice(HAL_FLOAT32));
  cr_assert_eq(stats_of(0).packed, 1);
}

Test(npu_pack, what_the_driver_makes_of_it_is_kept_on_disk_and_comes_first) {
  char cache[ROOM];
  snprintf(cache, sizeof cache, "%s/cache", folder);
  setenv("HAL_CACHE_DIR", cache, 1);
  build_pack("--kernels 'add_f32_*'");
  int state = 0;
  const pid_t child = fork();
  if (child == 0) {
    open_plugin();
    _exit(twice(HAL_FLOAT32) || stats_of(0).packed != 1);
  }
  cr_assert(waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 0);
  open_plugin();
  assert_ok(twice(HAL_FLOAT32));
  cr_assert_eq(stats_of(0).loaded, 1);
  cr_assert_eq(stats_of(0).packed, 0);
}

/* ---- invalid packs ---- */

static char *bytes;
static size_t size;

static void read_pack(void) {
  struct stat facts;
  cr_assert_eq(stat(pack_path, &facts), 0);
  size = (size_t)facts.st_size;
  bytes = malloc(size);
  FILE *const file = fopen(pack_path, "r");
  cr_assert(file && bytes && fread(bytes, 1, size, file) == size);
  fclose(file);
}

static void write_pack(size_t length) {
  FILE *const file = fopen(pack_path, "w");
  cr_assert(file && (!length || fwrite(bytes, 1, length, file) == length) && fclose(file) == 0);
}

/* Opens the plugin with this pack: expects one warning with these words for both devices, and a correct number by
   compilation. */
static void assert_ignored(const char *words) {
  open_plugin();
  assert_ok(twice(HAL_FLOAT32));
  cr_assert_eq(stats_of(0).compiled, 1);
  cr_assert_eq(stats_of(0).packed, 0);
  if (hal_device_count() == 2) cr_assert_eq(stats_of(1).packed, 0);
  cr_assert_eq(warnings, 1, "%d: %s", warnings, last_warning);
  cr_assert_not_null(strstr(last_warning, words), "%s", last_warning);
  cr_assert_not_null(strstr(last_warning, pack_path), "%s", last_warning);
}

static void change(size_t at) {
  build_pack("--kernels 'add_f32_contig'");
  read_pack();
  bytes[at < size ? at : size - 1] ^= 1;
  write_pack(size);
}

Test(npu_pack, a_damaged_module_is_a_warning_and_compiled) {
  change((size_t)-1); /* the last byte belongs to a module */
  assert_ignored("damaged");
}
Test(npu_pack, a_damaged_index_is_a_warning_and_compiled) {
  change(sizeof(hal_pack_header_t) + 3);
  assert_ignored("its index is damaged");
}
Test(npu_pack, another_version_of_the_format_is_a_warning) {
  change(7); /* the last byte of the magic is the version of the format */
  assert_ignored("another version");
}
Test(npu_pack, a_file_that_is_no_pack_is_a_warning) {
  change(0);
  assert_ignored("it is not a pack");
}

Test(npu_pack, a_pack_cut_short_is_a_warning) {
  build_pack("--kernels 'add_f32_contig'");
  read_pack();
  write_pack(size - 1);
  assert_ignored("its length is wrong");
}
Test(npu_pack, an_empty_file_is_a_warning) {
  write_pack(0);
  assert_ignored("too short");
}
Test(npu_pack, a_pack_that_others_can_write_is_a_warning) {
  build_pack("--kernels 'add_f32_contig'");
  cr_assert_eq(chmod(pack_path, 0666), 0);
  unsetenv("HAL_ALLOW_UNSAFE_PLUGINS");
  cr_assert_eq(chmod(plugin, 0700), 0);
  assert_ignored("chmod");
}
Test(npu_pack, one_for_another_dialect_is_left_alone) {
  build_pack("--kernels 'add_f32_contig' --dialect ptx --compiler 'cp'");
  open_plugin();
  assert_ok(twice(HAL_FLOAT32));
  cr_assert_eq(stats_of(0).compiled, 1);
  cr_assert_eq(warnings, 0, "%s", last_warning);
}

static void reseal(hal_pack_header_t *header) {
  const hal_hash_t check = hal_pack_check(header, (const hal_pack_entry_t *)(header + 1));
  header->check[0] = hal_hash_high(&check), header->check[1] = hal_hash_low(&check);
}

Test(npu_pack, of_another_versions_sources_what_is_the_same_is_used_with_a_warning) {
  build_pack("--kernels 'add_f32_contig,add_i32_contig'");
  read_pack();
  hal_pack_header_t *const header = (hal_pack_header_t *)(void *)bytes;
  header->kernels[0] ^= 1;
  reseal(header);
  write_pack(size);
  open_plugin();
  assert_ok(twice(HAL_FLOAT32));
  cr_assert_eq(stats_of(0).packed, 1);
  cr_assert_eq(warnings, 1, "%d: %s", warnings, last_warning);
  cr_assert_not_null(strstr(last_warning, "another version's sources"), "%s", last_warning);
}

Test(npu_pack, an_entry_beyond_the_file_is_a_warning) {
  build_pack("--kernels 'add_f32_contig'");
  read_pack();
  hal_pack_header_t *const header = (hal_pack_header_t *)(void *)bytes;
  ((hal_pack_entry_t *)(header + 1))->size += 1000;
  reseal(header);
  write_pack(size);
  assert_ignored("its index is invalid");
}

Test(npu_pack, a_module_that_the_driver_refuses_is_a_warning_and_compiled) {
  build_pack("--kernels 'add_f32_contig' --compiler 'cp'"); /* the source itself instead of SPIR-V */
  assert_ignored("rejects the kernel");
}

/* ---- binaries ---- */

Test(npu_pack, binaries_of_a_device_serve_it_without_a_compiler) {
  build_pack("--plugin " PLUGIN_DIR "/libhal_npu.so --kernels 'add_f32_*'");
  take_compilers();
  open_plugin();
  assert_ok(twice(HAL_FLOAT32));
  cr_assert_eq(stats_of(0).packed, 1);
  cr_assert_eq(stats_of(0).compiled, 0);
  cr_assert_eq(warnings, 0, "%s", last_warning);
}

Test(npu_pack, another_devices_binaries_are_refused_by_the_plugin_and_compiled) {
  build_pack("--plugin " PLUGIN_DIR "/libhal_npu.so --kernels 'add_f32_contig'");
  setenv("HAL_NPU_DEVICE", "TEST DOUBLE) 1", 1); /* the pack is of device 0 */
  assert_ignored("was made for");
}

Test(npu_pack, further_packs_are_used_together_with_the_first) {
  char second[ROOM];
  build_pack("--kernels 'add_f32_contig'");
  snprintf(second, sizeof second, "%s/libhal_npu.more.pack", folder);
  cr_assert_eq(rename(pack_path, second), 0);
  build_pack("--kernels 'add_i32_contig'");
  take_compilers();
  open_plugin();
  assert_ok(twice(HAL_FLOAT32));
  assert_ok(twice(HAL_INT32));
  cr_assert_eq(stats_of(0).packed, 2);
  cr_assert_str_eq(stats_of(0).pack, pack_path);
}

/* ---- hal-pack ---- */

Test(npu_pack, the_same_kernels_produce_the_same_bytes_and_a_failure_leaves_the_old_pack) {
  build_pack("--kernels 'add_f32_*'");
  read_pack();
  char *const before = bytes;
  const size_t length = size;
  build_pack("--kernels 'add_f32_*' --jobs 1");
  read_pack();
  cr_assert(size == length && memcmp(bytes, before, size) == 0);
  char command[4 * ROOM];
  snprintf(command, sizeof command,
           HAL_PACK_PROGRAM " --output '%s' --kernels add_f32_contig --compiler false 2>/dev/null", pack_path);
  cr_assert_neq(system(command), 0);
  read_pack();
  cr_assert(size == length && memcmp(bytes, before, size) == 0);
}

Test(npu_pack, what_is_the_same_in_both_forms_has_one_key) {
  build_pack(
      "--kernels 'add_f32_contig' --source cuda-c --dialect ptx --form simt --form cpu --fp64 yes "
      "--compiler 'take() { cp \"$1\" \"$2\"; }; take'");
  read_pack();
  cr_assert_eq(((const hal_pack_header_t *)(const void *)bytes)->count, 1);
}

Test(npu_pack, kernels_whose_freeze_means_something_are_translated_without_passes) {
  build_pack("--kernels 'scatter_i64_columns,scatter_reduce_f32_sum'");
  read_pack();
  cr_assert_eq(((const hal_pack_header_t *)(const void *)bytes)->count, 4);
}

/* Runs hal-pack and stores what it prints in `text`. Returns its exit code. */
static int run_pack(const char *options, char *text, size_t room) {
  char command[4 * ROOM];
  snprintf(command, sizeof command, HAL_PACK_PROGRAM " --output '%s' %s 2>&1", pack_path, options);
  FILE *const pipe = popen(command, "r");
  cr_assert_not_null(pipe);
  const size_t length = fread(text, 1, room - 1, pipe);
  text[length] = '\0';
  const int code = pclose(pipe);
  cr_assert(WIFEXITED(code));
  return WEXITSTATUS(code);
}

Test(npu_pack, a_compiler_that_hangs_is_ended_and_its_kernel_named) {
  char text[4096], options[2 * ROOM];
  snprintf(options, sizeof options,
           "--limit 0.3 --kernels 'add_f32_contig,mul_f32_contig' --source cuda-c --dialect ptx --fp64 yes --compiler "
           "'run() { case $HAL_PACK_KERNEL in mul*) echo $$ > %s/pid; sleep 1000;; esac; cp \"$1\" \"$2\"; }; run'",
           folder);
  cr_assert_eq(run_pack(options, text, sizeof text), 1);
  cr_assert(strstr(text,
                   "1 of 2 modules are not in the pack\n"
                   "  took longer than the limit of 0.3 s; --limit sets another\n    mul_f32_contig\n"),
            "%s", text);
  read_pack(); /* with the other module */
  char path[2 * ROOM];
  snprintf(path, sizeof path, "%s/pid", folder);
  FILE *const file = fopen(path, "r");
  long process = 0;
  cr_assert(file && fscanf(file, "%ld", &process) == 1 && process > 1);
  fclose(file);
  cr_assert(kill((pid_t)process, 0) && errno == ESRCH);
}

Test(npu_pack, failures_are_listed_by_reason) {
  char text[4096];
  cr_assert_eq(
      run_pack("--kernels 'add_f32_contig,mul_f32_contig,sub_f32_contig' --source cuda-c --dialect ptx --fp64 "
               "yes --compiler 'run() { case $HAL_PACK_KERNEL in sub*) exit 0;; esac; echo error: no unit >&2; "
               "exit 1; }; run'",
               text, sizeof text),
      1);
  cr_assert(strstr(text, "  the compiler failed: error: no unit\n    add_f32_contig mul_f32_contig\n"), "%s", text);
  cr_assert(strstr(text, "  the compiler wrote no output\n    sub_f32_contig\n"), "%s", text);
}

Test(npu_pack, invalid_usage_is_reported) {
  static const char *const wrong[] = {"",
                                      "--output x --form round",
                                      "--output x --fp64 perhaps",
                                      "--output x more",
                                      "--output x --source c",
                                      "--output x --limit soon",
                                      "--output x --limit -1",
                                      "--output x --compiler a --plugin b"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char command[4 * ROOM];
    snprintf(command, sizeof command, HAL_PACK_PROGRAM " %s >/dev/null 2>&1", wrong[i]);
    const int code = system(command);
    cr_assert(WIFEXITED(code) && WEXITSTATUS(code) == 2, "%s: %d", wrong[i], code);
  }
}
