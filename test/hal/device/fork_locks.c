/* fork_locks.c: a process forks while another of its threads holds a lock of the HAL. That thread does not exist in
 * the child, so the child must acquire the lock or not need it. It never waits. base/life.h lists the locks. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compile/ir.h"
#include "device/profile_internal.h"
#include "fusion/emit.h"
#include "lazy/lazy.h"
#include "memory/internal.h"
#include "op/table.h"
#include "plugin/layer_validate.h"
#include "support.h"

TestSuite(fork_locks, .timeout = 240);

enum { CHILD_SECONDS = 20, FORKS = 60 };

/* Forks. The child calls `use`, and is killed if it waits. */
static void fork_once(const char *what, int (*use)(void)) {
  int status = -1;
  fflush(NULL);
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    signal(SIGALRM, SIG_DFL);
    alarm(CHILD_SECONDS);
    _exit(use());
  }
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM, "%s: the child waits for a lock", what);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: the child ended with status %#x", what,
            (unsigned)status);
}

/* ---- a lock that the test can acquire: a thread holds it during the fork ---- */

static atomic_int is_held, may_release;
static void (*take)(void), (*release)(void);

static void *hold(void *unused) {
  take();
  atomic_store(&is_held, 1);
  while (!atomic_load(&may_release)) usleep(100);
  release();
  return unused;
}

static void fork_while_held(const char *what, void (*with)(void), void (*without)(void), int (*use)(void)) {
  pthread_t thread;
  atomic_store(&is_held, 0);
  atomic_store(&may_release, 0);
  take = with;
  release = without;
  cr_assert_eq(pthread_create(&thread, NULL, hold, NULL), 0);
  while (!atomic_load(&is_held)) usleep(100);
  fork_once(what, use);
  atomic_store(&may_release, 1);
  pthread_join(thread, NULL);
}

/* ---- a file-local lock: a thread acquires it repeatedly, so that it is held during many of the forks ---- */

static atomic_int ends;
static void (*again)(void);

static void *repeat(void *unused) {
  while (!atomic_load(&ends)) again();
  return unused;
}

static void fork_during(const char *what, void (*calls)(void), int (*use)(void)) {
  pthread_t thread;
  atomic_store(&ends, 0);
  again = calls;
  cr_assert_eq(pthread_create(&thread, NULL, repeat, NULL), 0);
  for (int i = 0; i < FORKS; i++) fork_once(what, use);
  atomic_store(&ends, 1);
  pthread_join(thread, NULL);
}

/* ---- before the first use of a device: the child may use everything ---- */

static void set_sink(void) { hal_log_set_sink(NULL, NULL); }
static void add_path(void) { hal_registry_add_path("/nowhere"); }
static void stop_profile(void) { hal_profile_stop(); }
static void open_again(void) { hal_registry_open(FIXTURE("takes_ops")); }

static void define_operator(void) {
  const hal_op_desc_t desc = {.struct_size = sizeof desc, .name = "fork::op", .argument_count = 1};
  uint32_t op;
  hal_op_define(&desc, &op);
}

static int set_sink_returns(void) { return set_sink(), 0; }
static int add_path_returns(void) { return add_path(), 0; }
static int profile_works(void) { return hal_profile_start() || hal_profile_stop(); }
static int define_returns(void) { return define_operator(), 0; }
static int device_works(void) { return hal_registry_open(FIXTURE("takes_ops")) || hal_device_ensure(0); }

Test(fork_locks, locks_that_are_held_before_a_registry_is_opened_are_free_in_the_child) {
  fork_during("add_path", add_path, add_path_returns);
  fork_during("define", define_operator, define_returns);
  fork_during("set_sink", set_sink, set_sink_returns);
  fork_during("profile", stop_profile, profile_works);
}

Test(fork_locks, locks_that_are_held_before_a_device_is_used_are_free_in_the_child) {
  open_fixture("takes_ops");
  fork_during("registry", open_again, device_works);
  cr_assert_not(hal_device_is_initialized(0));
}

static void take_plugin(void) { hal_lock(&hal_registry.plugins[0].lock); }
static void release_plugin(void) { hal_unlock(&hal_registry.plugins[0].lock); }
static void take_device(void) { hal_lock(&hal_devices[0].lock); }
static void release_device(void) { hal_unlock(&hal_devices[0].lock); }
static void take_records(void) { pthread_mutex_lock(&hal_registry.plugins[0].validate->lives.lock); }
static void release_records(void) { pthread_mutex_unlock(&hal_registry.plugins[0].validate->lives.lock); }
static void forget_borrowed(void) { hal_borrow_forget(&hal_registry.plugins[0]); }
static int forget_returns(void) { return forget_borrowed(), 0; }

Test(fork_locks, the_locks_of_a_device_that_was_not_used_are_free_in_the_child) {
  open_fixture("takes_ops");
  fork_while_held("plugin", take_plugin, release_plugin, device_works);
  fork_while_held("device", take_device, release_device, device_works);
}

Test(fork_locks, the_mutexes_of_the_validate_layer_are_renewed_in_the_child) {
  setenv("HAL_LAYERS", "validate", 1);
  open_fixture("takes_ops");
  cr_assert_not_null(hal_registry.plugins[0].validate);
  fork_while_held("records", take_records, release_records, device_works);
  fork_during("borrowed", forget_borrowed, forget_returns);
}

/* ---- after the first use: the child destroys objects of the parent, and may create profiles and generators ---- */

static hal_generator_t *generator;
static hal_stream_t *streams[2];
static hal_block_t *block;
static hal_program_t *program;
static hal_lazy_t *lazy;

static void open_used(void) {
  const hal_program_desc_t desc = {.struct_size = sizeof desc};
  open_fixture("takes_ops");
  assert_ok(hal_generator_create(1, &generator));
  for (int i = 0; i < 2; i++) assert_ok(hal_stream_acquire(0, 0, &streams[i]));
  assert_ok(hal_memory_allocate(0, NULL, 4096, &block));
  assert_ok(hal_program_begin(streams[0], &desc, &program));
  assert_ok(hal_lazy_begin(streams[1], NULL, &lazy));
  assert_ok(hal_profile_start());
}

static void add_host_record(void) { hal_profile_host_op(0, "op", 1, 2); }
static void add_launch(void) { hal_profile_correlation(); }
static void set_seed(void) { hal_generator_set_seed(generator, 2); }
static int set_seed_returns(void) { return set_seed(), 0; }
static void forget_jobs(void) { hal_fuse_worker_forget(NULL); }
static int forget_jobs_returns(void) { return forget_jobs(), 0; }

static void count_record(void *count, const hal_profile_activity_t *activity) {
  (void)activity;
  ++*(int *)count;
}

/* The child's own profile has its own record, and none of the parent's. */
static int profile_is_own(void) {
  int count = 0;
  uint64_t lost = 1;
  if (hal_profile_running() || hal_profile_start()) return 1;
  add_launch();
  add_host_record();
  if (hal_profile_stop() || hal_profile_read(count_record, &count, &lost)) return 2;
  return count == 1 && lost == 0 ? 0 : 3;
}

Test(fork_locks, the_lock_of_the_launch_table_is_free_in_the_child, .init = open_used) {
  fork_during("launches", add_launch, profile_is_own);
}

Test(fork_locks, the_lock_of_host_records_is_free_in_the_child, .init = open_used) {
  fork_during("host records", add_host_record, profile_is_own);
}

Test(fork_locks, the_locks_of_generators_and_of_the_thread_that_compiles_are_free_in_the_child, .init = open_used) {
  fork_during("generator", set_seed, set_seed_returns);
  fork_during("worker", forget_jobs, forget_jobs_returns);
}

/* All calls that a child may make on the parent's objects, on a device that it cannot use. */
static int ends_all(void) {
  uint32_t op;
  if (hal_op_id("add.Tensor", &op) || hal_op_set_enabled(op, 1)) return 1;
  if (profile_is_own()) return 2;
  if (!hal_stream_synchronize(streams[0]) || !hal_device_synchronize(0) || !hal_stream_query(streams[1])) return 3;
  hal_memory_release(block);
  if (hal_lazy_end(lazy)) return 4;
  hal_program_destroy(program);
  hal_generator_destroy(generator);
  hal_registry_close();
  return 0;
}

#define LOCK(name, lock)                            \
  static void take_##name(void) { hal_lock(lock); } \
  static void release_##name(void) { hal_unlock(lock); }
LOCK(allocator, &hal_allocator_of(&hal_devices[0])->lock)
LOCK(failure, &streams[0]->failure.lock)
LOCK(follows, &streams[1]->follows.lock)
LOCK(lost, &hal_devices[0].lost.lock)
LOCK(recording, &program->front->lock)
LOCK(turn, &program->turn)
LOCK(deferred, &lazy->front.lock)
LOCK(queueing, &lazy->queueing)
LOCK(fuse, &lazy->fuse->lock)
LOCK(metrics, &lazy->fuse->metrics.lock)

static void take_operators(void) { pthread_mutex_lock(&hal_op_table_of(&hal_devices[0])->lock); }
static void release_operators(void) { pthread_mutex_unlock(&hal_op_table_of(&hal_devices[0])->lock); }
static void take_provider(void) { pthread_mutex_lock(&hal_op_table_of(&hal_devices[0])->provider.own_lock); }
static void release_provider(void) { pthread_mutex_unlock(&hal_op_table_of(&hal_devices[0])->provider.own_lock); }
static void begin_listener(void) { hal_lazy_retain_desc(lazy); }
static void end_listener(void) { hal_lazy_release_desc(lazy); }

Test(fork_locks, the_locks_of_a_used_device_are_free_or_not_taken_in_the_child, .init = open_used) {
  static const struct {
    const char *name;
    void (*take)(void), (*release)(void);
  } locks[] = {{"plugin", take_plugin, release_plugin},
               {"device", take_device, release_device},
               {"allocator", take_allocator, release_allocator},
               {"failure", take_failure, release_failure},
               {"follows", take_follows, release_follows},
               {"lost", take_lost, release_lost},
               {"recording", take_recording, release_recording},
               {"turn", take_turn, release_turn},
               {"deferred", take_deferred, release_deferred},
               {"queueing", take_queueing, release_queueing},
               {"fuse", take_fuse, release_fuse},
               {"metrics", take_metrics, release_metrics},
               {"operators", take_operators, release_operators},
               {"provider", take_provider, release_provider},
               {"listener", begin_listener, end_listener}};
  cr_assert_not_null(lazy->fuse);
  for (size_t i = 0; i < sizeof locks / sizeof locks[0]; i++)
    fork_while_held(locks[i].name, locks[i].take, locks[i].release, ends_all);
}
