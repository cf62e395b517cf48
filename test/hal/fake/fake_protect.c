/* fake_protect.c: HAL_FAKE_PROTECT=1: work produces the same results as without it, and a process that accesses the
 * memory is terminated with a report. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "fake_child.h"
#include "fake_support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#else
#define TEST_SANITIZED 0
#endif

TestSuite(fake_protect, .fini = close_plugin);

static void open_protected(int async, int threads) {
  setenv("HAL_FAKE_PROTECT", "1", 1);
  setenv("HAL_FAKE_DEVICES", "2", 1);
  open_mode(async, threads);
}

/* ---- work ---- */

static float *upload(const float *host, size_t count) {
  float *device = new_memory(count * sizeof *host);
  must(fake_api.memory_copy(NULL, device, 0, host, HAL_HOST, count * sizeof *host));
  return device;
}

/* Sums, copies between two devices and fills of `count` floats, in the given mode. */
static void work(int async, int threads, size_t count) {
  open_protected(async, threads);
  hal_plugin_stream_t *stream = new_stream();
  float *host = malloc(count * sizeof *host), *back = malloc(count * sizeof *back), *far = NULL;
  for (size_t i = 0; i < count; i++) host[i] = (float)(i % 1000);
  float *a = upload(host, count), *out = new_memory(count * sizeof *out);
  must(fake_api.memory_alloc(1, count * sizeof *far, 0, (void **)&far));
  fake_add_t add;
  fake_add_set(&add, out, a, a, 2.0f, count);
  must(fake_api.kernel_launch(fake_kernel("add_f32_contig"), stream, &add.launch));
  must(fake_api.memory_copy(stream, far, 1, out, 0, count * sizeof *far));
  must(fake_api.memory_copy(stream, back, HAL_HOST, far, 1, count * sizeof *far));
  must(fake_api.stream_synchronize(stream));
  size_t wrong = 0;
  for (size_t i = 0; i < count; i++) wrong += back[i] != 3.0f * host[i];
  cr_assert_eq(wrong, 0);
  const uint32_t pattern = 0x40e00000; /* 7.0f */
  must(fake_api.memory_fill(stream, 0, out + 1, &pattern, sizeof pattern, (count - 1) * sizeof pattern));
  must(fake_api.memory_copy(stream, back, HAL_HOST, out, 0, count * sizeof *back));
  must(fake_api.stream_synchronize(stream));
  for (size_t i = 1; i < count; i++) wrong += back[i] != 7.0f;
  cr_assert_eq(wrong, 0);
  cr_assert_float_eq(back[0], 0.0f, 0);
  free(host);
  free(back);
}

Test(fake_protect, work_has_the_same_results, .timeout = 60) { work(1, 3, (5u << 20) + 3); }
Test(fake_protect, work_has_the_same_results_inline, .timeout = 60) { work(0, 3, 100003); }
Test(fake_protect, work_has_the_same_results_with_one_thread, .timeout = 60) { work(1, 1, 77); }

Test(fake_protect, the_device_reports_that_the_host_cannot_access_its_memory) {
  open_protected(1, 1);
  hal_device_info_t info = {.struct_size = sizeof info};
  must(fake_api.device_info(1, &info));
  cr_assert_eq(info.flags & (HAL_DEVICE_HOST_VISIBLE | HAL_DEVICE_UNIFIED), 0);
}

Test(fake_protect, memory_is_counted_and_given_back) {
  setenv("HAL_FAKE_MEMORY", "1M", 1);
  open_protected(1, 1);
  size_t unused = 0, total = 0;
  for (int i = 0; i < 100; i++) {
    char *ptr = new_memory(600000);
    must(fake_api.memory_info(0, &unused, &total));
    cr_assert_eq(unused, total - 602112); /* whole pages: guard pages are not counted */
    must_fail(fake_api.memory_alloc(0, 600000, 0, (void **)&ptr), HAL_RESOURCE_EXHAUSTED, "out of memory");
    must(fake_api.memory_free(0, ptr));
  }
  void *ptr = NULL;
  must_fail(fake_api.memory_alloc(0, SIZE_MAX / 2, 0, &ptr), HAL_RESOURCE_EXHAUSTED, "out of memory");
}

Test(fake_protect, pinned_memory_is_the_hosts_and_a_kernels) {
  open_protected(1, 1);
  hal_plugin_stream_t *stream = new_stream();
  float *pinned = NULL, *out = new_memory(4096), back = 0;
  must(fake_api.host_alloc(0, 4096, 0, (void **)&pinned));
  pinned[0] = 5;
  add_ones(stream, out, pinned, 1);
  must(fake_api.memory_copy(stream, &back, HAL_HOST, out, 0, sizeof back));
  must(fake_api.stream_synchronize(stream));
  cr_assert_float_eq(back, 5.0f, 0);
}

/* ---- invalid addresses of a call are errors ---- */

Test(fake_protect, addresses_without_memory_are_refused) {
  open_protected(1, 1);
  hal_plugin_stream_t *stream = new_stream();
  static float host[4];
  float *device = new_memory(100);
  fake_add_t add;
  fake_add_set(&add, device, host, device, 1.0f, 4);
  must_fail(fake_api.kernel_launch(fake_kernel("add_f32_contig"), stream, &add.launch), HAL_INVALID_ARGUMENT,
            "argument 1 of 'add_f32_contig'");
  fake_add_set(&add, device, device, device + 26, 1.0f, 4);
  must_fail(fake_api.kernel_launch(fake_kernel("add_f32_contig"), stream, &add.launch), HAL_INVALID_ARGUMENT,
            "is not in device memory");
  must_fail(fake_api.memory_copy(stream, host, HAL_HOST, device, 0, 104), HAL_INVALID_ARGUMENT, "104 bytes");
  must_fail(fake_api.memory_copy(stream, host, HAL_HOST, device, 1, 4), HAL_INVALID_ARGUMENT, "device 1");
  must_fail(fake_api.memory_copy(stream, host, 0, device, 0, 4), HAL_INVALID_ARGUMENT, "4 bytes at");
  must_fail(fake_api.memory_copy(stream, host, HAL_HOST, device, HAL_HOST, 4), HAL_INVALID_ARGUMENT,
            "are memory of device 0");
  must_fail(fake_api.memory_fill(stream, 0, device + 25, host, 4, 4), HAL_INVALID_ARGUMENT, "memory_fill: 4 bytes");
  must_fail(fake_api.memory_fill(stream, 0, host, host, 4, 4), HAL_INVALID_ARGUMENT, "memory_fill: 4 bytes");
  must(fake_api.stream_synchronize(stream));
}

/* ---- host accesses ---- */

static char report[8192];

static void (*child_body)(void);
static void call_body(const void *data) {
  (void)data;
  child_body();
}

/* Runs `body` in a separate process; returns the exit status and writes its stderr to `report`. */
static int run_child(void (*body)(void)) {
  child_body = body;
  return run_in_child(call_body, NULL, report, sizeof report);
}

/* The process was terminated by the signal; with a sanitizer, by its handler, which was installed first. */
static int died(int status) {
  return WIFSIGNALED(status) ? WTERMSIG(status) == SIGSEGV : TEST_SANITIZED && WEXITSTATUS(status) != 0;
}

#define must_report(text) cr_assert_not_null(strstr(report, (text)), "the report lacks '%s':\n%s", (text), report)

static volatile char sink;
static int in_async = 1;

static void queue_something(void) {
  open_protected(in_async, 2);
  float *data = new_memory(10000);
  add_ones(NULL, data, data, 100);
}

static char *second_device(void) {
  char *ptr = NULL;
  queue_something();
  must(fake_api.memory_alloc(1, 10000, 0, (void **)&ptr));
  must(fake_api.memory_fill(NULL, 1, ptr, "", 1, 10000));
  return ptr;
}

static void read_it(void) { sink = second_device()[123]; }
static void write_it(void) { second_device()[9999] = 1; }
static void read_before(void) { sink = second_device()[-1]; }
static void read_behind(void) { sink = second_device()[1 << 20]; }

Test(fake_protect, a_host_access_dies_and_reports_device_address_allocation_and_work, .timeout = 60) {
  for (in_async = 0; in_async < 2; in_async++) {
    cr_assert(died(run_child(read_it)), "%s", report);
    must_report("fake: memory of device 1 was ");
    must_report("by the host");
    must_report("10000 bytes; the access is at offset 123");
    must_report("last work queued on the device: memory_fill");
    must_report("hal_memory_copy");
    cr_assert(died(run_child(write_it)), "%s", report);
    must_report("at offset 9999");
#if defined(__x86_64__)
    must_report("was written");
#endif
  }
}

Test(fake_protect, an_access_outside_an_allocation_dies_and_names_it, .timeout = 60) {
  cr_assert(died(run_child(read_before)), "%s", report);
  must_report("1 bytes before its beginning");
  cr_assert(died(run_child(read_behind)), "%s", report);
  must_report("1038576 bytes after its end");
}

static void overrun(void) {
  open_protected(in_async, 2);
  hal_plugin_stream_t *stream = NULL;
  must(fake_api.stream_create(0, &(const hal_stream_desc_t)HAL_STREAM_DESC(0), &stream));
  float *small = new_memory(4096), *large = new_memory(1 << 20);
  add_ones(stream, small, large, 2048);
  fake_api.stream_synchronize(stream);
}

Test(fake_protect, a_kernel_that_leaves_its_memory_is_named, .timeout = 60) {
  for (in_async = 0; in_async < 2; in_async++) {
    cr_assert(died(run_child(overrun)), "%s", report);
    must_report("by kernel add_f32_contig out of bounds");
    must_report("4096 bytes; the access is 0 bytes after its end");
  }
}

/* ---- signals of other code ---- */

static void leave_42(int number) {
  (void)number;
  _exit(42);
}
static void with_handler(void) {
  signal(SIGSEGV, leave_42);
  read_it();
}
static void with_information(int number, siginfo_t *info, void *context) {
  (void)number, (void)context;
  _exit(info->si_addr ? 43 : 44);
}
static void with_siginfo_handler(void) {
  const struct sigaction action = {.sa_sigaction = with_information, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, NULL);
  read_it();
}

Test(fake_protect, the_handler_that_was_there_runs_after_the_report, .timeout = 60) {
  int status = run_child(with_handler);
  must_report("offset 123");
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42, "%s", report);
  status = run_child(with_siginfo_handler);
  must_report("offset 123");
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 43, "%s", report);
}

static void another_fault(void) {
  queue_something();
  sink = *(volatile char *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void sent(void) {
  queue_something();
  raise(SIGSEGV);
}
static void ignored(void) {
  signal(SIGSEGV, SIG_IGN);
  queue_something();
  raise(SIGSEGV); /* may be ignored */
  _exit(45);
}

Test(fake_protect, other_faults_and_signals_are_left_alone, .timeout = 60) {
  cr_assert(died(run_child(another_fault)), "%s", report);
  cr_assert_null(strstr(report, "fake:"), "%s", report);
  cr_assert(died(run_child(sent)), "%s", report);
  cr_assert_null(strstr(report, "fake:"), "%s", report);
  const int status = run_child(ignored);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 45, "%s", report);
}

static void after_shutdown(void) {
  signal(SIGSEGV, leave_42);
  queue_something();
  fake_api.shutdown(0);
  raise(SIGSEGV);
}

Test(fake_protect, shutdown_takes_the_handler_away, .timeout = 60) {
  const int status = run_child(after_shutdown);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42, "%s", report);
}
