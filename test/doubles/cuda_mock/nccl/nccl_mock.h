/* nccl_mock.h: shared by the files of the mock libnccl.so.2: collectives between processes whose "device" memory
 * is in host memory. Ranks exchange bytes through rings in a memory file that all ranks of a communicator map. See
 * ../README.md. */
#ifndef NCCL_MOCK_H_
#define NCCL_MOCK_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "nccl_api.h"

#define API __attribute__((visibility("default")))
#define DECLARE(name, parameters) API ncclResult_t name parameters;
NCCL_CALLS(DECLARE)
NCCL_LATER_CALLS(DECLARE)
#define DECLARE_TEXT(name, parameters) API const char *name parameters;
NCCL_TEXT_CALLS(DECLARE_TEXT)

enum { STALLED = 200 /* naps in a row */ };
enum { MAX_RANKS = 8, RING = 32768, SPLITS = 16, SCALES = 64, FIRST_SCALE = 5 };

/* ---- the memory file (segment.c) ---- */

typedef struct address_s { /* of a memory file: any process of this user opens it by its first one */
  int pid, file;
  unsigned magic;
} address_t;

typedef struct ring_s {
  _Atomic uint64_t written, read;
  unsigned char bytes[RING];
} ring_t;

typedef struct division_s { /* of one split or shrink, by rank of the parent */
  _Atomic int ready[MAX_RANKS];
  int color[MAX_RANKS], key[MAX_RANKS];
  _Atomic int made[MAX_RANKS]; /* `address` of the leading rank is valid */
  address_t address[MAX_RANKS];
} division_t;

typedef struct segment_s {
  _Atomic int joined[MAX_RANKS]; /* the process; 0 = not yet */
  _Atomic int left[MAX_RANKS];   /* it has destroyed or aborted its communicator */
  int device[MAX_RANKS], size[MAX_RANKS];
  division_t divisions[SPLITS];
  ring_t rings[MAX_RANKS][MAX_RANKS]; /* from, to */
} segment_t;

/* Creates a memory file, which remains open until the process exits. Returns 0 or -1. */
int segment_make(address_t *out);
segment_t *segment_map(const address_t *address);
void segment_unmap(segment_t *segment);
/* A rank whose process has exited without leaving; -1 = none. */
int segment_find_ended(const segment_t *segment, int size);

/* ---- communicators (communicator.c, divide.c) ---- */

typedef struct scale_s { /* of ncclRedOpCreatePreMulSum */
  int used, on_device;
  const void *device;
  unsigned char host[8];
} scale_t;

struct ncclComm {
  atomic_int users; /* the handle, a thread that creates it, plans that are queued */
  segment_t *segment;
  address_t address;
  int rank, size, device, blocking, divisions;
  atomic_int state;   /* ncclResult_t: InProgress, Success, or the failure */
  atomic_int pending; /* number of calls for which ncclCommGetAsyncError returns InProgress: the kernels are not
                         queued yet */
  atomic_int aborted, plans;
  atomic_int idle;   /* naps in a row of a plan that waits for other ranks */
  ncclComm_t parent; /* of a split: with its number, and the request of this rank */
  int division, color, key;
  unsigned left_out; /* bit r: rank r of the parent takes no part */
  scale_t scales[SCALES];
  struct plan_s *kept; /* captured plans, which graphs run again */
};

void comm_release(ncclComm_t comm);
ncclComm_t comm_new(const address_t *address, int rank, int size, int device, int blocking);
/* Waits for all ranks and compares their devices. */
ncclResult_t comm_join(ncclComm_t comm);
/* Returns whether a call may use it. */
ncclResult_t comm_check(ncclComm_t comm);
/* Runs `body(comm)` on a thread when the communicator is non-blocking, and stores its result as the state. */
ncclResult_t comm_begin(ncclComm_t comm, ncclResult_t (*body)(ncclComm_t));
ncclResult_t fail_with(ncclResult_t code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void nap(void);

/* The result that NCCL_MOCK_REFUSES sets for a function, else ncclSuccess. */
ncclResult_t refusal(const char *name);
int setting(const char *name, int otherwise);
int is_blocking(const ncclConfig_t *config);

/* ---- work (group.c, transfer.c, reduce.c) ---- */

typedef enum kind_e { ALL_REDUCE, REDUCE, BROADCAST, REDUCE_SCATTER, ALL_GATHER, SEND, RECV } kind_e;

typedef struct work_s {
  kind_e kind;
  const unsigned char *send;
  unsigned char *recv, *scratch; /* scratch: the blocks of all ranks, of a reduction */
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduce;
  scale_t scale;
  int peer;
} work_t;

typedef struct plan_s { /* a group's work of one communicator */
  struct plan_s *next;
  ncclComm_t comm;
  CUstream stream;
  int captured;
  size_t count;
  work_t works[];
} plan_t;

void plan_run(void *plan);
size_t bytes_of(ncclDataType_t type);
/* Writes the reduction of `size` blocks of scratch to `recv`. */
void reduce_blocks(const work_t *work, int size);

#endif /* NCCL_MOCK_H_ */
