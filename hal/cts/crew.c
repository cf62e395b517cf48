/* crew.c: see crew.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, strsignal */
#include "crew.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hal/status.h"

enum { UNTIL_ALL_COME_S = 60 };

/* ---- processes ---- */

static pid_t processes[CTS_CREW_MOST]; /* in rank 0 */
static atomic_int is_lost[CTS_CREW_MOST], has_ended[CTS_CREW_MOST];

/* Another process of the case has a finding: this one adds nothing. */
static void follow(const cts_crew_t *crew) {
  if (atomic_load(&crew->t->page->verdict) != CTS_NONE) _exit(0);
}

/* A thread of rank 0, which may wait in a collective for a rank that has ended. */
static void *watch(void *data) {
  cts_crew_t *const crew = data;
  for (;; cts_nap()) {
    follow(crew);
    for (int i = 1; i < CTS_CREW_MOST; i++) {
      int status = 0;
      if (!processes[i] || atomic_load(&has_ended[i]) || waitpid(processes[i], &status, WNOHANG) != processes[i])
        continue;
      atomic_store(&has_ended[i], 1);
      follow(crew);
      if (atomic_load(&is_lost[i]) || (WIFEXITED(status) && !WEXITSTATUS(status))) continue;
      cts_fail(crew->t, "the process of rank %d was ended by %s", i,
               WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "the plugin");
    }
  }
  return NULL;
}

void cts_crew_needs_processes(cts_crew_t *crew) {
  if (crew->info.flags & HAL_COMM_WITHIN_PROCESS)
    cts_skip(crew->t, "the library's ranks are threads of one process, which end together");
}

void cts_crew_lose(cts_crew_t *crew, int rank) { (void)crew, atomic_store(&is_lost[rank], 1); }

void cts_crew_meet(cts_crew_t *crew) {
  cts_board_t *const board = crew->board;
  const unsigned round = atomic_load(&board->round);
  if ((int)atomic_fetch_add(&board->come[round & 1], 1) + 1 == crew->size) {
    atomic_store(&board->come[(round + 1) & 1], 0);
    atomic_fetch_add(&board->round, 1);
  }
  while (atomic_load(&board->round) == round) cts_nap(), follow(crew);
}

static void read_info(cts_crew_t *crew, uint32_t slot) {
  cts_t *const t = crew->t;
  if (!cts_provides(t, slot)) cts_skip(t, "the plugin does not provide %s", cts_slot_name(slot));
  crew->info.struct_size = HAL_STRUCT_SIZE(hal_comm_info_t, name);
  const hal_status_t status = cts_comm_info(t, t->device, &crew->info);
  if (status == HAL_UNAVAILABLE || status == HAL_UNIMPLEMENTED)
    cts_skip(t, "comm_info returned %s: %s", hal_status_name(status), hal_error_message());
  cts_expect(t, HAL_SLOT_comm_info, status, HAL_OK);
}

/* Returns the number of ranks. */
static int choose_size(const cts_crew_t *crew, int least, int most) {
  const int devices = crew->t->page->device_count, shared = (crew->info.flags & HAL_COMM_CAN_SHARE_DEVICE) != 0;
  const int most_ranks = crew->info.max_ranks ? (int)crew->info.max_ranks : most;
  int size = shared || devices >= most ? most : devices < least ? least : devices;
  if (size > most_ranks) size = most_ranks;
  if (size < least || (!shared && devices < least))
    cts_skip(crew->t, "%d ranks are needed, the library wants a device for each, and there %s %d", least,
             devices == 1 ? "is" : "are", devices);
  return size;
}

/* Loads the plugin, one process after the other, because they share the page. Rank 0 determines the number of ranks. */
static void load(cts_crew_t *crew, int least, int most, uint32_t slot) {
  cts_t *const t = crew->t;
  while (atomic_load(&crew->board->turn) != crew->rank) {
    const int size = atomic_load(&crew->board->size);
    cts_nap(), follow(crew);
    if (size && crew->rank >= size) _exit(0);
  }
  cts_start(t);
  read_info(crew, slot);
  if (!crew->rank) crew->size = choose_size(crew, least, most);
  const int threads = (crew->info.flags & HAL_COMM_WITHIN_PROCESS) != 0;
  if (!crew->rank) atomic_store(&crew->board->size, threads ? -1 : crew->size);
  if (crew->rank) crew->size = atomic_load(&crew->board->size);
  crew->device = t->device = (t->device + crew->rank) % t->page->device_count;
  if (!threads) atomic_fetch_add(&crew->board->turn, 1);
}

/* All ranks begin and end the case together. */
static void run_body(cts_crew_t *crew, void (*body)(cts_crew_t *crew)) {
  cts_crew_meet(crew);
  body(crew);
  cts_crew_meet(crew);
}

/* ---- threads ---- */

static void (*thread_body)(cts_crew_t *crew);

static void *run_rank(void *data) {
  run_body(data, thread_body);
  return NULL;
}

/* Runs the ranks of `first` as threads, each with its own description of the case. The first one is this thread. */
static void run_threads(cts_crew_t *first, void (*body)(cts_crew_t *crew)) {
  static cts_crew_t crews[CTS_CREW_MOST];
  static cts_t cases[CTS_CREW_MOST];
  pthread_t threads[CTS_CREW_MOST];
  thread_body = body;
  for (int rank = 1; rank < first->size; rank++) {
    cts_crew_t *const crew = &crews[rank];
    cases[rank] = *first->t;
    cases[rank].device = (first->t->device + rank) % first->t->page->device_count;
    crew->t = &cases[rank];
    crew->rank = rank, crew->size = first->size, crew->device = cases[rank].device;
    crew->info = first->info, crew->board = first->board;
    if (pthread_create(&threads[rank], NULL, run_rank, crew))
      cts_fail(first->t, "error of the suite: no thread can be made");
  }
  run_rank(first);
  for (int rank = 1; rank < first->size; rank++) pthread_join(threads[rank], NULL);
}

/* ---- the case ---- */

void cts_crew(cts_t *t, int least, int most, uint32_t slot, void (*body)(cts_crew_t *crew)) {
  static cts_crew_t crew;
  pthread_t thread;
  crew.t = t;
  crew.board = mmap(NULL, sizeof *crew.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (crew.board == MAP_FAILED) cts_fail(t, "error of the suite: no memory for %d processes", most);
  for (int i = most - 1; i > 0; i--) { /* the last one is rank 0 */
    crew.rank = i;
    processes[i] = fork();
    if (processes[i] < 0) cts_fail(t, "error of the suite: no process can be made");
    if (processes[i]) continue;
    memset(processes, 0, sizeof processes);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    load(&crew, least, most, slot);
    run_body(&crew, body);
    _exit(0);
  }
  crew.rank = 0;
  if (pthread_create(&thread, NULL, watch, &crew)) cts_fail(t, "error of the suite: no thread can be made");
  load(&crew, least, most, slot);
  if (crew.info.flags & HAL_COMM_WITHIN_PROCESS)
    run_threads(&crew, body);
  else
    run_body(&crew, body);
}

/* ---- limits ---- */

static void *hold_to_limit(void *data) {
  cts_crew_t *const crew = data;
  for (;; cts_nap()) {
    const int64_t end = atomic_load(&crew->limit_end);
    if (end && cts_now_ns() > end) cts_fail(crew->t, "%s", crew->limit_what);
  }
  return NULL;
}

void cts_crew_limit(cts_crew_t *crew, int64_t limit_ns, const char *what) {
  pthread_t thread;
  const int first = !*crew->limit_what;
  atomic_store(&crew->limit_end, 0);
  snprintf(crew->limit_what, sizeof crew->limit_what, "%s", what);
  if (first && pthread_create(&thread, NULL, hold_to_limit, crew))
    cts_fail(crew->t, "error of the suite: no thread can be made");
  atomic_store(&crew->limit_end, cts_now_ns() + limit_ns);
}

void cts_crew_no_limit(cts_crew_t *crew) { atomic_store(&crew->limit_end, 0); }

void cts_crew_needs(cts_crew_t *crew, uint32_t flags, const char *what) {
  if ((crew->info.flags & flags) != flags) cts_skip(crew->t, "the library does not have %s", what);
}

int cts_crew_has_op(const cts_crew_t *crew, uint32_t op) { return (int)(crew->info.ops >> op & 1); }

/* ---- communicators ---- */

void cts_comm_id(cts_crew_t *crew) {
  cts_board_t *const board = crew->board;
  cts_crew_meet(crew);
  if (crew->rank == 0) CTS_OK(crew->t, comm_unique_id, crew->device, 0, board->id, sizeof board->id, &board->id_size);
  cts_crew_meet(crew);
}

hal_comm_desc_t cts_comm_desc(const cts_crew_t *crew, int64_t timeout_ns) {
  return (hal_comm_desc_t){.struct_size = HAL_STRUCT_SIZE(hal_comm_desc_t, name),
                           .id = crew->board->id,
                           .id_size = crew->board->id_size,
                           .rank = crew->rank,
                           .size = crew->size,
                           .timeout_ns = timeout_ns,
                           .name = "cts"};
}

hal_plugin_comm_t *cts_comm(cts_crew_t *crew) {
  hal_plugin_comm_t *comm = NULL;
  cts_comm_id(crew);
  const hal_comm_desc_t desc = cts_comm_desc(crew, UNTIL_ALL_COME_S * CTS_SECOND);
  CTS_OK(crew->t, comm_create, crew->device, &desc, &comm);
  CTS_CHECK(crew->t, comm, "comm_create returned HAL_OK and no communicator");
  return comm;
}

void cts_comm_end(cts_crew_t *crew, hal_plugin_comm_t *comm) {
  cts_crew_meet(crew);
  CTS_OK(crew->t, comm_destroy, comm, UNTIL_ALL_COME_S * CTS_SECOND);
}

hal_comm_state_t cts_comm_state(cts_crew_t *crew, hal_plugin_comm_t *comm) {
  hal_comm_state_t state = {.struct_size = HAL_STRUCT_SIZE(hal_comm_state_t, message)};
  CTS_OK(crew->t, comm_query, comm, &state);
  return state;
}

hal_status_t cts_comm_try(cts_crew_t *crew, hal_plugin_comm_t *comm, hal_plugin_stream_t *stream,
                          hal_collective_t call) {
  call.struct_size = HAL_STRUCT_SIZE(hal_collective_t, fingerprint);
  const hal_comm_call_t one = {comm, stream, &call};
  return cts_comm_submit(crew->t, &one, 1, sizeof one);
}

void cts_comm_queue(cts_crew_t *crew, hal_plugin_comm_t *comm, hal_plugin_stream_t *stream, hal_collective_t call) {
  cts_expect_ok(crew->t, HAL_SLOT_comm_submit, cts_comm_try(crew, comm, stream, call));
}

/* ---- memory ---- */

void cts_crew_fill(cts_crew_t *crew, void *device_ptr, uint8_t byte, size_t size) {
  CTS_OK(crew->t, memory_fill, NULL, crew->device, device_ptr, &byte, 1, size);
}
