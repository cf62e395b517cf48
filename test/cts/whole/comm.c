/* comm.c: collectives between the threads or processes of one machine. Ranks share a file without a name, in which each has a place
 * for what it sends; a collective is a host function on its stream, which copies there, waits for the others, and reads theirs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "own_ops.h"
#include "whole.h"

enum { RANKS = 4, ROOM = 4 << 20 /* bytes that a rank sends at most */ };

typedef struct shared_s {
  _Atomic int32_t joined, left, aborted;
  _Atomic uint64_t arrived;                                   /* at barriers, by all ranks together */
  _Atomic uint64_t posted[RANKS][RANKS], taken[RANKS][RANKS]; /* sends from, to */
  uint8_t place[RANKS][ROOM], mail[RANKS][RANKS][ROOM];
} shared_t;

typedef struct id_s { /* what lies in hal_comm_id_t */
  int32_t pid, file;
  uint64_t number;
} comm_id_t;

struct hal_plugin_comm_s {
  shared_t *shared;
  int32_t rank, size, device;
  uint64_t barriers;    /* by this rank */
  _Atomic int32_t refs; /* by the user, and by what is queued */
};

hal_status_t whole_comm_unique_id(hal_comm_id_t *out_id) {
  static _Atomic uint64_t number;
  const int file = memfd_create("comm", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, sizeof(shared_t))) {
    if (file >= 0) close(file);
    return whole_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for a communicator");
  }
  const comm_id_t id = {getpid(), file,
                        atomic_fetch_add(&number, 1)}; /* the file stays open: ranks may join whenever they like */
  memset(out_id, 0, sizeof *out_id);
  memcpy(out_id->bytes, &id, sizeof id);
  return HAL_OK;
}

hal_status_t whole_comm_create(int32_t device, const hal_comm_id_t *id, int32_t rank, int32_t size,
                               hal_plugin_comm_t **out_comm) {
  char path[64];
  comm_id_t known;
  if (size < 1 || size > RANKS || rank < 0 || rank >= size)
    return whole_refuse(HAL_INVALID_ARGUMENT,
                        "whole: comm_create with a rank that is not below the size, or with more than 4 ranks");
  memcpy(&known, id->bytes, sizeof known);
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)known.pid, (int)known.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  shared_t *const shared =
      file < 0 ? MAP_FAILED : mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  hal_plugin_comm_t *const comm = malloc(sizeof *comm);
  if (file >= 0) close(file);
  if (shared == MAP_FAILED || !comm)
    return free(comm),
           whole_refuse(HAL_INVALID_ARGUMENT, "whole: comm_create with what is no id of comm_unique_id in use");
  *comm = (hal_plugin_comm_t){.shared = shared, .rank = rank, .size = size, .device = device, .refs = 1};
  atomic_fetch_add(&shared->joined, 1);
  while (atomic_load(&shared->joined) < size) usleep(100);
  *out_comm = comm;
  return HAL_OK;
}

static void drop(hal_plugin_comm_t *comm) {
  if (atomic_fetch_sub(&comm->refs, 1) != 1) return;
  munmap(comm->shared, sizeof *comm->shared);
  free(comm);
}

hal_status_t whole_comm_destroy(hal_plugin_comm_t *comm, int32_t abort) {
  if (abort) atomic_store(&comm->shared->aborted, 1);
  drop(comm);
  return HAL_OK;
}

hal_status_t whole_comm_group(int32_t begin) {
  return (void)begin, HAL_OK;
} /* whatever is queued waits on its stream only */

static void wait_for(const hal_plugin_comm_t *comm, _Atomic uint64_t *counter, uint64_t least) {
  while (atomic_load(counter) < least && !atomic_load(&comm->shared->aborted)) usleep(50);
}

static void meet(hal_plugin_comm_t *comm) {
  atomic_fetch_add(&comm->shared->arrived, 1);
  wait_for(comm, &comm->shared->arrived, ++comm->barriers * (uint64_t)comm->size);
}

/* Element `index` of what all ranks have in their places, reduced. */
static void reduce(const hal_plugin_comm_t *comm, const hal_collective_t *desc, uint64_t index, uint8_t *to) {
  static const own_op_t plain;
  const hal_dtype_t dtype = desc->dtype;
  const size_t size = own_size(dtype);
  const int real = dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16 || dtype == HAL_FLOAT32 || dtype == HAL_FLOAT64;
  double value = 0;
  int64_t whole = 0;
  for (int rank = 0; rank < comm->size; rank++) {
    const uint8_t *const from = comm->shared->place[rank] + index * size;
    const double x = real ? own_read(&plain, dtype, from) : 0;
    const int64_t i = real ? 0 : own_read_whole(&plain, dtype, from);
    const int first = rank == 0;
    switch (desc->reduce) {
      case HAL_REDUCE_PROD:
        value = first ? x : value * x, whole = first ? i : (int64_t)((uint64_t)whole * (uint64_t)i);
        break;
      case HAL_REDUCE_MIN:
        value = first || x < value ? x : value, whole = first || i < whole ? i : whole;
        break;
      case HAL_REDUCE_MAX:
        value = first || x > value ? x : value, whole = first || i > whole ? i : whole;
        break;
      default:
        value += x, whole = (int64_t)((uint64_t)whole + (uint64_t)i);
    }
  }
  if (desc->reduce == HAL_REDUCE_AVG) value /= comm->size;
  if (real)
    own_write(&plain, dtype, value, to);
  else
    memcpy(to, &whole, size);
}

typedef struct queued_s {
  hal_plugin_comm_t *comm;
  hal_collective_t desc;
  uint64_t counts[RANKS], displs[RANKS]; /* of an uneven all-to-all, which desc points to */
} queued_t;

static void transfer(hal_plugin_comm_t *comm, const hal_collective_t *desc, size_t bytes) {
  shared_t *const shared = comm->shared;
  const int sends = desc->op == HAL_COMM_SEND, from = sends ? comm->rank : desc->peer,
            to = sends ? desc->peer : comm->rank;
  if (sends) {
    wait_for(comm, &shared->taken[from][to], atomic_load(&shared->posted[from][to]));
    memcpy(shared->mail[from][to], desc->send, bytes);
    atomic_fetch_add(&shared->posted[from][to], 1);
  } else {
    wait_for(comm, &shared->posted[from][to], atomic_load(&shared->taken[from][to]) + 1);
    memcpy(desc->recv, shared->mail[from][to], bytes);
    atomic_fetch_add(&shared->taken[from][to], 1);
  }
}

/* All-to-all of parts of several sizes; one list says for each other rank what goes there and what comes from there. */
static void exchange(hal_plugin_comm_t *comm, const hal_collective_t *desc, size_t size) {
  for (int rank = 0; rank < comm->size; rank++)
    memcpy(comm->shared->mail[comm->rank][rank], (const uint8_t *)desc->send + desc->displs[rank] * size,
           desc->counts[rank] * size);
  meet(comm);
  for (int rank = 0; rank < comm->size; rank++)
    memcpy((uint8_t *)desc->recv + desc->displs[rank] * size, comm->shared->mail[rank][comm->rank],
           desc->counts[rank] * size);
  meet(comm); /* nobody writes to its mail before all have read */
}

static void perform(queued_t *queued) {
  hal_plugin_comm_t *const comm = queued->comm;
  const hal_collective_t *const desc = &queued->desc;
  const size_t size = own_size(desc->dtype), bytes = (size_t)desc->count * size;
  const uint32_t op = desc->op;
  const int sends_all = op == HAL_COMM_REDUCE_SCATTER || op == HAL_COMM_ALL_TO_ALL;
  uint8_t *const recv = desc->recv;
  if (op == HAL_COMM_SEND || op == HAL_COMM_RECV) {
    transfer(comm, desc, bytes);
    return;
  }
  if (desc->counts) {
    exchange(comm, desc, size);
    return;
  }
  if (op != HAL_COMM_BARRIER && (op != HAL_COMM_BROADCAST || desc->peer == comm->rank))
    memcpy(comm->shared->place[comm->rank], desc->send, sends_all ? bytes * (size_t)comm->size : bytes);
  meet(comm);
  for (uint64_t i = 0; i < desc->count && (op == HAL_COMM_ALL_REDUCE || op == HAL_COMM_REDUCE_SCATTER ||
                                           (op == HAL_COMM_REDUCE && desc->peer == comm->rank));
       i++)
    reduce(comm, desc, op == HAL_COMM_REDUCE_SCATTER ? (uint64_t)comm->rank * desc->count + i : i, recv + i * size);
  if (op == HAL_COMM_BROADCAST) memcpy(recv, comm->shared->place[desc->peer], bytes);
  for (int rank = 0; rank < comm->size && (op == HAL_COMM_ALL_GATHER || op == HAL_COMM_ALL_TO_ALL); rank++)
    memcpy(recv + (size_t)rank * bytes,
           comm->shared->place[rank] + (op == HAL_COMM_ALL_TO_ALL ? (size_t)comm->rank * bytes : 0), bytes);
  meet(comm); /* nobody writes to its place before all have read */
}

static void run(void *data) {
  queued_t *const queued = data;
  perform(queued);
  drop(queued->comm);
  free(queued);
}

static int knows(hal_dtype_t dtype) {
  return dtype == HAL_FLOAT16 || dtype == HAL_BFLOAT16 || dtype == HAL_FLOAT32 || dtype == HAL_FLOAT64 ||
         dtype == HAL_INT32 || dtype == HAL_INT64 || dtype == HAL_UINT8;
}

hal_status_t whole_comm_collective(hal_plugin_comm_t *comm, stream_t *stream, const hal_collective_t *desc) {
  const int real = desc->dtype == HAL_FLOAT16 || desc->dtype == HAL_BFLOAT16 || desc->dtype == HAL_FLOAT32 ||
                   desc->dtype == HAL_FLOAT64;
  const int reduces =
      desc->op == HAL_COMM_ALL_REDUCE || desc->op == HAL_COMM_REDUCE || desc->op == HAL_COMM_REDUCE_SCATTER;
  if (desc->op > HAL_COMM_BARRIER || (desc->counts && (desc->op != HAL_COMM_ALL_TO_ALL || !desc->displs)) ||
      (desc->op != HAL_COMM_BARRIER && !knows(desc->dtype)))
    return HAL_UNIMPLEMENTED;
  if (reduces && (desc->reduce > HAL_REDUCE_AVG || (desc->reduce == HAL_REDUCE_AVG && !real))) return HAL_UNIMPLEMENTED;
  if (desc->op != HAL_COMM_BARRIER && desc->count > ROOM / RANKS / own_size(desc->dtype)) return HAL_UNIMPLEMENTED;
  queued_t *const queued = malloc(sizeof *queued);
  if (!queued) return whole_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for a collective");
  *queued = (queued_t){.comm = comm, .desc = *desc};
  for (int rank = 0; desc->counts && rank < comm->size; rank++) {
    if (desc->counts[rank] > ROOM / own_size(desc->dtype)) return free(queued), HAL_UNIMPLEMENTED;
    queued->counts[rank] = desc->counts[rank], queued->displs[rank] = desc->displs[rank];
  }
  if (desc->counts) queued->desc.counts = queued->counts, queued->desc.displs = queued->displs;
  atomic_fetch_add(&comm->refs, 1);
  return whole_good.stream_host_call(stream, run, queued);
}
