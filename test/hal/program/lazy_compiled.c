/* lazy_compiled.c: groups of lazy work that the host's compiler compiles to one kernel: equal bits, and no lost work
 * if compilation fails. On the fake device. */
#include <errno.h>
#include <signal.h>
#include <time.h>

#include "lazy/lazy.h"
#include "lazy_testing.h"
#include "op/internal.h"
#include "op/source.h"
#include "op/table.h"

enum { BATCH = 6, OPERANDS = 3, PATIENCE = 60000 /* ms */ };

static void open_with(const char *runs) {
  setenv("HAL_LAZY_COMPILE", runs, 1);
  must(hal_registry_add_path(PLUGIN_DIR));
  must(hal_registry_open("fake"));
}

static void open_first(void) { open_with("1"); }

TestSuite(lazy_compiled, .init = open_first, .fini = hal_registry_close, .timeout = 300);

static uint32_t compiled_of(const hal_fuse_t *fuse) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < fuse->plan_room; i++)
    count += fuse->plans[i] && atomic_load_explicit(&fuse->plans[i]->compiled, memory_order_acquire) != NULL;
  return count;
}

/* Waits until the compiler has compiled this number of kernels. */
static int waits_for(const hal_fuse_t *fuse, uint32_t count) {
  const struct timespec moment = {.tv_nsec = 1000000};
  for (int i = 0; i < PATIENCE && compiled_of(fuse) < count; i++) nanosleep(&moment, NULL);
  return compiled_of(fuse) == count;
}

/* ---- each operator ---- */

/* An operator over the operands, in one dtype, and a tensor for its result. */
typedef struct case_s {
  uint32_t op;
  hal_value_t args[OPERANDS + 3];
  uint32_t count;
  tensor_t *result, *expected;
} case_t;

static hal_status_t run_case(const case_t *one, const tensor_t *into) {
  const hal_tensor_t *const results[] = {&into->desc};
  hal_op_call_t call = {
      .struct_size = sizeof call, .arg_count = one->count, .result_count = 1, .args = one->args, .results = results};
  return hal_op_run(0, one->op, NULL, &call);
}

static int is_candidate(const hal_op_info_t *info, hal_dtype_t dtype) {
  char instance[96];
  if (!info->kernel || !info->launch || info->checked || !(info->dtypes >> dtype & 1)) return 0;
  const char *const family = hal_op_families[info->family];
  if (strcmp(family, "unary") && strcmp(family, "binary") && strcmp(family, "ternary")) return 0;
  if (info->result != HAL_OP_RESULT_SAME && info->result != HAL_OP_RESULT_BOOL) return 0;
  snprintf(instance, sizeof instance, "%s_%s_", info->kernel, hal_op_dtype_tokens[hal_op_dtype_slots[dtype]]);
  return hal_op_source_step_is_plain(instance);
}

/* Creates a case whose expected result is that of eager mode; returns 0 if the operator does not accept these
   arguments. */
static int make_case(uint32_t op, hal_dtype_t dtype, tensor_t *const *in, case_t *one) {
  static const double scalars[] = {2, 3, 1};
  const hal_op_info_t *const info = &hal_op_infos[op];
  const hal_dtype_t result = info->result == HAL_OP_RESULT_BOOL ? HAL_BOOL : dtype;
  *one = (case_t){.op = op, .count = info->operands + (uint32_t)info->scalars};
  for (uint32_t k = 0; k < info->operands; k++) one->args[k] = of_tensor(in[k]);
  for (uint32_t k = 0; k < info->scalars; k++) one->args[info->operands + k] = of_double(scalars[k]);
  one->expected = vector(result, COUNT);
  if (!run_case(one, one->expected)) {
    tensor_download(one->expected);
    one->result = vector(result, COUNT);
    return 1;
  }
  tensor_free(one->expected);
  return 0;
}

/* Compares bits; if both operands are NaN, the C compiler chooses which NaN an operation returns. */
static int is_same(const tensor_t *got, const tensor_t *want, int i) {
  const size_t size = got->element, place = (size_t)i * size;
  const number_t x = tensor_get(got, i), y = tensor_get(want, i);
  return memcmp(got->host + place, want->host + place, size) == 0 || (x.f != x.f && y.f != y.f);
}

static void check_case(const case_t *one, const char *how) {
  tensor_download(one->result);
  for (int i = 0; i < COUNT; i++)
    cr_assert(is_same(one->result, one->expected, i), "%s in dtype %d, %s: element %d is %Lg, not %Lg",
              hal_op_infos[one->op].name, one->result->desc.dtype, how, i, tensor_get(one->result, i).f,
              tensor_get(one->expected, i).f);
}

/* Runs some operators as one group, interpreted and compiled. */
static void check_batch(hal_lazy_t *lazy, case_t *cases, uint32_t count) {
  if (count < 2) return;
  const uint32_t before = compiled_of(lazy->fuse);
  for (uint32_t i = 0; i < count; i++) must(run_case(&cases[i], cases[i].result));
  must(hal_lazy_flush(lazy));
  for (uint32_t i = 0; i < count; i++) check_case(&cases[i], "interpreted");
  cr_assert(waits_for(lazy->fuse, before + 1), "%s and others were not compiled", hal_op_infos[cases[0].op].name);
  for (uint32_t i = 0; i < count; i++) {
    tensor_randomize(cases[i].result, 99);
    must(hal_stream_synchronize(NULL));
  }
  for (uint32_t i = 0; i < count; i++) must(run_case(&cases[i], cases[i].result));
  must(hal_lazy_flush(lazy));
  for (uint32_t i = 0; i < count; i++) check_case(&cases[i], "compiled");
}

static uint32_t check_dtype(hal_dtype_t dtype) {
  tensor_t *in[OPERANDS];
  case_t cases[BATCH], all[1024];
  uint32_t total = 0;
  for (int k = 0; k < OPERANDS; k++) tensor_randomize(in[k] = vector(dtype, COUNT), (uint64_t)k + 1);
  must(hal_stream_synchronize(NULL));
  for (uint32_t op = 0; op < HAL_OP_ID_COUNT; op++)
    if (is_candidate(&hal_op_infos[op], dtype)) total += (uint32_t)make_case(op, dtype, in, &all[total]);
  hal_lazy_t *const lazy = begin();
  for (uint32_t i = 0; i < total; i += BATCH) {
    const uint32_t count = total - i < BATCH ? total - i : BATCH;
    memcpy(cases, &all[i], count * sizeof *cases);
    check_batch(lazy, cases, count);
  }
  must(hal_lazy_end(lazy));
  return total;
}

Test(lazy_compiled, float32_has_the_bits_of_eager_mode) { cr_assert_geq(check_dtype(HAL_FLOAT32), 50); }
Test(lazy_compiled, float64_has_the_bits_of_eager_mode) { cr_assert_geq(check_dtype(HAL_FLOAT64), 50); }
Test(lazy_compiled, int64_has_the_bits_of_eager_mode) { cr_assert_geq(check_dtype(HAL_INT64), 25); }
Test(lazy_compiled, int16_has_the_bits_of_eager_mode) { cr_assert_geq(check_dtype(HAL_INT16), 15); }
Test(lazy_compiled, uint8_has_the_bits_of_eager_mode) { cr_assert_geq(check_dtype(HAL_UINT8), 15); }
Test(lazy_compiled, bool_has_the_bits_of_eager_mode) { cr_assert_geq(check_dtype(HAL_BOOL), 10); }

/* ---- repeated chains ---- */

enum { LONG = 20011 /* elements: as many as count, no multiple of a block */ };

/* A chain that writes its operands, keeps two results and drops two, with changing numbers. */
typedef struct net_s {
  tensor_t *w, *g, *mean, *t, *kept;
} net_t;

static void take_step(const net_t *net, int time) {
  add(net->mean, net->g, 0.5 + time, net->t);
  add(net->t, net->mean, -0.25 * time, net->mean); /* in place */
  unary("neg", net->mean, net->t);                 /* the memory of results that are dead now */
  add(net->w, net->t, 1.0 / (3 + time), net->w);
  unary("abs", net->w, net->kept);
}

static tensor_t *long_vector(uint64_t seed) {
  tensor_t *const t = vector(HAL_FLOAT32, LONG);
  tensor_fill_ordinary(t, seed);
  must(hal_stream_synchronize(NULL));
  return t;
}

static net_t net_of(void) {
  return (net_t){long_vector(1), long_vector(2), long_vector(3), long_vector(4), long_vector(5)};
}

static void check_same(tensor_t *got, tensor_t *want) {
  tensor_download(got);
  tensor_download(want);
  cr_assert(memcmp(got->host, want->host, LONG * sizeof(float)) == 0);
}

/* Runs the same steps eagerly and compares. */
static void check_eagerly(const net_t *ours, int steps) {
  const net_t eager = net_of();
  for (int time = 0; time < steps; time++) take_step(&eager, time);
  check_same(ours->w, eager.w);
  check_same(ours->mean, eager.mean);
  check_same(ours->kept, eager.kept);
}

static void take_steps(hal_lazy_t *lazy, const net_t *net, int from, int to) {
  for (int time = from; time < to; time++) {
    take_step(net, time);
    must(hal_lazy_flush(lazy));
  }
}

/* Returns whether a repeated command list is queued with a compiled kernel. */
static int is_scheduled(const hal_lazy_t *lazy) {
  for (uint32_t i = 0; i < HAL_SCHEDULES; i++) {
    const hal_schedule_t *const schedule = lazy->schedules.schedule[i];
    for (uint32_t k = 0; schedule && k < schedule->count; k++)
      if (schedule->entry[k].plan && atomic_load(&schedule->entry[k].plan->compiled)) return 1;
  }
  return 0;
}

static uint64_t compilations(void) {
  hal_kernel_stats_t stats = {.struct_size = sizeof stats};
  must(hal_kernel_stats(0, &stats));
  return stats.compiled;
}

static void open_tenth(void) { open_with("10"); }
static void open_never(void) { open_with("0"); }
static void open_wrong(void) { open_with("ten"); }

TestSuite(lazy_compiled_again, .init = open_tenth, .fini = hal_registry_close, .timeout = 300);

Test(lazy_compiled_again, a_frequent_command_list_is_queued_with_what_was_compiled) {
  const net_t net = net_of();
  hal_lazy_t *const lazy = begin();
  take_steps(lazy, &net, 0, 9);
  cr_assert_eq(compilations(), 0);
  take_steps(lazy, &net, 9, 12);
  cr_assert(waits_for(lazy->fuse, 1));
  cr_assert_eq(compilations(), 1);
  take_steps(lazy, &net, 12, 24);
  cr_assert(is_scheduled(lazy));
  must(hal_lazy_end(lazy));
  cr_assert_eq(compilations(), 1);
  check_eagerly(&net, 24);
}

Test(lazy_compiled_again, short_ones_are_not_compiled) {
  tensor_t *const a = floats(1, 0), *const b = floats(2, 0), *const c = floats(0, 0);
  hal_lazy_t *const lazy = begin();
  for (int i = 0; i < 40; i++) {
    add(a, b, i, c);
    unary("neg", c, c);
    must(hal_lazy_flush(lazy));
  }
  must(hal_lazy_end(lazy));
  cr_assert_eq(compilations(), 0);
}

/* Groups with an operator in row form, a function of several steps, or a sum are not compiled. */
Test(lazy_compiled_again, what_is_no_loop_around_a_function_stays_interpreted) {
  const net_t net = net_of();
  hal_lazy_t *const lazy = begin();
  for (int i = 0; i < 40; i++) {
    add(net.w, net.g, i, net.t);
    unary("exp", net.t, net.kept);
    must(hal_lazy_flush(lazy));
  }
  must(hal_lazy_end(lazy));
  cr_assert_eq(compilations(), 0);
}

Test(lazy_compiled_again, never, .init = open_never) {
  const net_t net = net_of();
  hal_lazy_t *const lazy = begin();
  take_steps(lazy, &net, 0, 40);
  must(hal_lazy_end(lazy));
  cr_assert_eq(compilations(), 0);
  check_eagerly(&net, 40);
}

Test(lazy_compiled_again, a_wrong_setting_is_ignored, .init = open_wrong) {
  const net_t net = net_of();
  hal_lazy_t *const lazy = begin();
  take_steps(lazy, &net, 0, 2);
  cr_assert_eq(lazy->fuse->compile_after, 32);
  must(hal_lazy_end(lazy));
}

/* ---- failures and exit ---- */

static void open_without(void) {
  setenv("HAL_FAKE_CC", "/nowhere/cc", 1);
  open_with("10");
}

static void open_failing(void) {
  setenv("HAL_FAKE_CC", "false", 1);
  open_with("10");
}

static void fails_quietly(void) {
  const net_t net = net_of();
  hal_lazy_t *const lazy = begin();
  take_steps(lazy, &net, 0, 12);
  const struct timespec moment = {.tv_nsec = 1000000};
  for (int i = 0; i < PATIENCE && !atomic_load(&lazy->fuse->uncompiled); i++) nanosleep(&moment, NULL);
  cr_assert(atomic_load(&lazy->fuse->uncompiled));
  take_steps(lazy, &net, 12, 30);
  must(hal_lazy_end(lazy));
  check_eagerly(&net, 30);
}

Test(lazy_compiled_again, without_a_compiler_all_goes_on, .init = open_without) { fails_quietly(); }
Test(lazy_compiled_again, with_a_compiler_that_fails_all_goes_on, .init = open_failing) { fails_quietly(); }

/* A process that exits, or closes the HAL, while its compiler runs must not leave files or processes. */
static char folder[] = "/tmp/lazy_compiled_XXXXXX";

static int ends_like(void (*end)(hal_lazy_t *lazy)) {
  int status = 0;
  cr_assert_not_null(mkdtemp(folder));
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    setenv("TMPDIR", folder, 1);
    open_with("10");
    const net_t net = net_of();
    hal_lazy_t *const lazy = begin();
    take_steps(lazy, &net, 0, 11);
    const struct timespec moment = {.tv_nsec = 30000000}; /* the compiler is at work */
    nanosleep(&moment, NULL);
    end(lazy);
    exit(7);
  }
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert_eq(rmdir(folder), 0, "something was left in %s", folder);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void just_ends(hal_lazy_t *lazy) { (void)lazy; }

static void closes(hal_lazy_t *lazy) {
  must(hal_lazy_end(lazy));
  hal_registry_close();
}

static void forks(hal_lazy_t *lazy) {
  int status = 0;
  const pid_t child = fork();
#if defined(__SANITIZE_ADDRESS__) /* memory of the parent's thread is unreachable here, and the leak checker reports
                                     it */
  if (child == 0) _exit(0);
#endif
  if (child == 0) exit(0); /* does not wait for a thread of the parent */
  if (waitpid(child, &status, 0) != child || status) exit(1);
  if (!waits_for(lazy->fuse, 1)) exit(2);
}

/* A compiler that never ends, and writes its process id into a file in the same folder; `listens`: until it receives
   a signal. */
static char hanging[] = "/tmp/lazy_compiled_cc_XXXXXX";

static int ends_with_hanging(int listens, void (*end)(hal_lazy_t *lazy)) {
  char command[64], process[64];
  int pid = 0;
  const int file = mkstemp(hanging);
  cr_assert_geq(file, 0);
  dprintf(file, "%s\necho $$ >$0.pid\nwhile :; do sleep 0.1; done\n", listens ? "" : "trap '' TERM");
  close(file);
  snprintf(command, sizeof command, "sh %s", hanging);
  snprintf(process, sizeof process, "%s.pid", hanging);
  setenv("HAL_FAKE_CC", command, 1);
  const int code = ends_like(end);
  FILE *const told = fopen(process, "r");
  cr_assert(told && fscanf(told, "%d", &pid) == 1, "the compiler was not started");
  fclose(told);
  cr_expect(kill(pid, 0) && errno == ESRCH, "the compiler goes on");
  unlink(process), unlink(hanging);
  return code;
}

TestSuite(lazy_compiled_ends, .timeout = 120);
Test(lazy_compiled_ends, a_process_that_ends_ends_its_compiler) { cr_assert_eq(ends_with_hanging(1, just_ends), 7); }
Test(lazy_compiled_ends, a_process_that_ends_kills_a_compiler_that_does_not_listen) {
  cr_assert_eq(ends_with_hanging(0, just_ends), 7);
}
Test(lazy_compiled_ends, a_process_that_closes_ends_its_compiler) { cr_assert_eq(ends_with_hanging(1, closes), 7); }
Test(lazy_compiled_ends, a_process_that_ends_leaves_no_files) { cr_assert_eq(ends_like(just_ends), 7); }
Test(lazy_compiled_ends, a_process_that_closes_leaves_no_files) { cr_assert_eq(ends_like(closes), 7); }
Test(lazy_compiled_ends, a_fork_while_it_compiles) { cr_assert_eq(ends_like(forks), 7); }
