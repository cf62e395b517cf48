/* plugin_op.h: the part of plugin.h about operators: tensors, values, calls, a plugin's own operators, random numbers,
 * collectives between processes. */
#ifndef HAL_PLUGIN_OP_H_
#define HAL_PLUGIN_OP_H_

#include "hal/plugin_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- operator calls ---------------------------------------------------------------------------------------------- */
typedef struct hal_tensor_s { /* 48 bytes; sizes and strides are borrowed for the call */
  size_t struct_size;
  void *data; /* device address of the first element, including the storage offset */
  const int64_t *sizes;
  const int64_t *strides; /* in elements */
  int32_t ndim;
  hal_dtype_t dtype;
  int32_t device; /* the plugin's ordinal */
  uint32_t flags; /* zero */
} hal_tensor_t;

enum {
  HAL_VALUE_NONE = 0,
  HAL_VALUE_BOOL = 1,
  HAL_VALUE_INT = 2,
  HAL_VALUE_DOUBLE = 3,
  HAL_VALUE_STRING = 4,
  HAL_VALUE_TENSOR = 5,
  HAL_VALUE_TENSOR_LIST = 6,
  HAL_VALUE_INT_LIST = 7,
  HAL_VALUE_DOUBLE_LIST = 8,
  HAL_VALUE_DTYPE = 9,
  HAL_VALUE_COMPLEX = 10,
  HAL_VALUE_BOOL_LIST = 11,
  HAL_VALUE_SCALAR_LIST = 12,  /* values of the tags BOOL, INT, DOUBLE and COMPLEX */
  HAL_VALUE_DEVICE = 13,       /* the plugin's ordinal, or HAL_HOST */
  HAL_VALUE_LAYOUT = 14,       /* HAL_LAYOUT_* */
  HAL_VALUE_MEMORY_FORMAT = 15 /* HAL_FORMAT_* */
};

/* The numbers are those of c10::Layout and c10::MemoryFormat. */
enum {
  HAL_LAYOUT_STRIDED = 0,
  HAL_LAYOUT_SPARSE = 1,
  HAL_LAYOUT_SPARSE_CSR = 2,
  HAL_LAYOUT_SPARSE_CSC = 4,
  HAL_LAYOUT_SPARSE_BSR = 5,
  HAL_LAYOUT_SPARSE_BSC = 6,
  HAL_LAYOUT_JAGGED = 7
};
enum {
  HAL_FORMAT_CONTIGUOUS = 0,
  HAL_FORMAT_PRESERVE = 1,
  HAL_FORMAT_CHANNELS_LAST = 2,
  HAL_FORMAT_CHANNELS_LAST_3D = 3
};

typedef struct hal_value_s { /* 16 bytes */
  uint32_t tag;              /* HAL_VALUE_*: which member */
  uint32_t count;            /* length of a list */
  union {
    int64_t i; /* bool, int, dtype, device, layout, memory format */
    double d;
    const char *s;
    const hal_tensor_t *t;
    const hal_tensor_t *const *tl;
    const int64_t *il;
    const double *dl;             /* double list; complex: two doubles */
    const uint8_t *bl;            /* bool list: 0 or 1 each */
    const struct hal_value_s *vl; /* scalar list */
  } u;
} hal_value_t;

/* hal_op_call_t.flags */
#define HAL_CALL_DENSE (1u << 0) /* all tensors have one shape and are contiguous, all operands have one dtype */

typedef struct hal_op_call_s { /* a call of an operator */
  size_t struct_size;
  hal_plugin_stream_t *stream;
  int32_t device; /* the plugin's ordinal */
  uint32_t arg_count, result_count;
  uint32_t flags;                     /* HAL_CALL_* */
  const hal_value_t *args;            /* the operator's frozen argument list, codegen/operators */
  const hal_tensor_t *const *results; /* allocated by the host, with the shapes and dtypes of the results */
  uint64_t seed, offset;              /* Philox state for random operators */
  /* Device memory in calls that are captured into a graph, else NULL: two numbers that are read when the work runs, so
   * that each replay generates new numbers. The state is then seed = random_state[0], offset = random_state[1] +
   * `offset`. */
  const uint64_t *random_state;
  void *host; /* the host's own, for hal_host->scratch_alloc */
} hal_op_call_t;

/* Queues an operator. It has copied everything that it needs of `call` when it returns. HAL_UNIMPLEMENTED = no result
 * was written. */
typedef hal_status_t (*hal_op_fn_t)(void *state, const hal_op_call_t *call);

/* Returns whether the operator accepts a call: HAL_OK or HAL_UNIMPLEMENTED. Queues nothing. The result depends only on
 * the operator's state, on shapes, strides, dtypes, numbers, flags, and the alignment of addresses up to 256 bytes:
 * `data` of the call that runs may differ. HAL_OK is binding: the function must not decline such a call. `call->stream`
 * is NULL, and there is no scratch memory. */
typedef hal_status_t (*hal_op_query_fn_t)(void *state, const hal_op_call_t *call);

/* hal_op_own_t.layouts: the layouts of a call's tensors; each tensor has one of them. */
#define HAL_TAKES_CONTIGUOUS (UINT32_C(1) << 0) /* C order; dimensions of size 1 may have any stride */
#define HAL_TAKES_CHANNELS_LAST \
  (UINT32_C(1) << 1) /* 4 or 5 dimensions, the second one innermost, as torch.channels_last(_3d) */
#define HAL_TAKES_STRIDED (UINT32_C(1) << 2) /* any strides, including zero and overlapping ones in arguments */
#define HAL_TAKES_ALL UINT32_C(7)

/* hal_op_own_t.flags */
#define HAL_OP_CAPTURABLE \
  (UINT32_C(1) << 0) /* may be called while its stream is captured: queues work, waits for nothing */
/* reads call->random_state; without the flag such calls go to the portable kernel */
#define HAL_OP_RANDOM_STATE (UINT32_C(1) << 1)
#define HAL_OP_NEVER_DECLINES (UINT32_C(1) << 2) /* accepts every call that matches this descriptor: needs no query */
/* `fn` declines a call only because of shapes, strides, dtypes, numbers, flags, or the alignment of addresses up to 256
 * bytes, and declines such a call always: the host may remember that it declined, and not call it again. Since 0.5 */
#define HAL_OP_DECLINES_ALIKE (UINT32_C(1) << 3)

/* The result of op_find: a plugin's own operator, and which calls it accepts. A call with a tensor of another dtype or
 * layout goes directly to the portable kernel. The host zeroes the struct before the call; a descriptor without a
 * function, dtypes or layouts is not used, with a warning. */
typedef struct hal_op_own_s {
  size_t struct_size;
  hal_op_fn_t fn;
  void *state;      /* first argument of `fn` and `query`; valid until the process ends */
  uint64_t dtypes;  /* of tensors: HAL_DTYPE_BIT(...) of each, or HAL_ALL_DTYPES */
  uint32_t layouts; /* of tensors: HAL_TAKES_* */
  /* Number of arguments of the frozen list that the author knew; 0 = all of this host's. Lists only grow: a call has
   * this many arguments. If a later argument is not at its default (HAL_VALUE_NONE), the call goes to the portable
   * kernel. */
  uint32_t argument_count;
  uint32_t flags; /* HAL_OP_* */
  uint32_t reserved;
  hal_op_query_fn_t query; /* or NULL: then fn alone decides, when it is called */
} hal_op_own_t;

/* ---- random numbers
 * --------------------------------------------------------------------------------------------------
 *
 * Element i uses word i % 4 (32-bit dtypes and below; for 64-bit dtypes words 2*(i%2) and 2*(i%2)+1) of the
 * Philox4x32-10 block with key = seed and counter = (offset + i / 4 (or i / 2), 0) as two 64-bit numbers, low words
 * first. With w the word of element i and n = the two words of a 64-bit element, the first one low:
 *
 *   u          float32: (w >> 8) * 2^-24; float16: (w >> 21) * 2^-11; bfloat16: (w >> 24) * 2^-8;
 *              float64: (n >> 11) * 2^-53
 *   uniform low + (high - low) * u, computed in float (float64: double) without a fused multiply-add; low and high -
 *   low
 *              are rounded to that type first. A number that rounds up to high becomes low, so that the interval is
 *              half open. Equal on every plugin, bit for bit.
 *   normal     Box-Muller on the pair of elements (2j, 2j + 1) of one block, in double and rounded once:
 *              r = sqrt(-2 ln a), even element mean + deviation * r cos(2 pi b),
 *              odd element mean + deviation * r sin(2 pi b), with a = (w_even + 1) * 2^-32, b = w_odd * 2^-32 (float64:
 *              a = ((n_even >> 11) + 1) * 2^-53,
 *              b = (n_odd >> 11) * 2^-53). An element's number does not depend on `count`.
 *   bernoulli  u < p0 ? 1 : 0 with u as for float32 (64-bit dtypes: as for float64), compared in double
 *   bits       the low bits of w (64-bit dtypes: n); bool: the lowest bit. Integers and bool only. */
enum { HAL_RANDOM_UNIFORM = 0, HAL_RANDOM_NORMAL = 1, HAL_RANDOM_BERNOULLI = 2, HAL_RANDOM_BITS = 3 };

typedef struct hal_random_s { /* the argument of random_fill */
  size_t struct_size;
  void *dst;      /* contiguous */
  uint64_t count; /* elements */
  uint64_t seed, offset;
  int32_t device;
  hal_dtype_t dtype;
  int32_t distribution; /* HAL_RANDOM_* */
  int32_t reserved;
  double p0, p1;                /* uniform: low, high; normal: mean, deviation; bernoulli: probability */
  const uint64_t *random_state; /* device memory or NULL, as in hal_op_call_t */
} hal_random_t;

/* ---- collectives between processes, which are also those of hal/comm.h ------------------------------------------- */

/* Operators: `op` of hal_collective_t. `n` is the number of ranks, `count` the number of elements that a rank sends to
 * or receives from each rank.
 *
 *                     send (elements)     recv (elements)
 *   ALL_REDUCE        count               count            the reduction over all ranks, on every rank
 *   REDUCE            count               count            the reduction, on rank `peer` only (recv NULL elsewhere)
 *   BROADCAST         count               count            what rank `peer` sends (send NULL elsewhere)
 *   ALL_GATHER        count               n * count        the ranks' elements in their order, on every rank
 *   REDUCE_SCATTER    n * count           count            the reduction of block `rank`
 *   ALL_TO_ALL        n * count           n * count        block i goes to rank i and comes from rank i
 *   GATHER            count               n * count        as ALL_GATHER, on rank `peer` only (recv NULL elsewhere)
 *   SCATTER           n * count           count            block `rank` of what rank `peer` sends (send NULL elsewhere)
 *   SEND, RECV count or none none or count to or from rank `peer`; calls of one pair and tag match in order
 *   BARRIER           none                none             returns when all ranks have called it
 *
 * In-place operation: send == recv for ALL_REDUCE, REDUCE and BROADCAST; send == recv + rank * count for ALL_GATHER;
 * recv == send + rank * count for REDUCE_SCATTER. Other overlap is invalid. A count of 0 is valid. */
#define HAL_COMM_ALL_REDUCE UINT32_C(0)
#define HAL_COMM_BROADCAST UINT32_C(1)
#define HAL_COMM_REDUCE UINT32_C(2)
#define HAL_COMM_ALL_GATHER UINT32_C(3)
#define HAL_COMM_REDUCE_SCATTER UINT32_C(4)
#define HAL_COMM_ALL_TO_ALL UINT32_C(5)
#define HAL_COMM_SEND UINT32_C(6)
#define HAL_COMM_RECV UINT32_C(7)
#define HAL_COMM_BARRIER UINT32_C(8)
#define HAL_COMM_GATHER UINT32_C(9)
#define HAL_COMM_SCATTER UINT32_C(10)

/* Reductions: `reduce` of hal_collective_t. AVG divides the sum by the number of ranks before it is rounded; not for
 * integers. The bitwise ones are for integers and bool. PREMUL_SUM multiplies by `scale` before it adds; for
 * floating-point types. Of bool, SUM is "or" and PROD is "and". Complex types: SUM, PROD and AVG. MIN and MAX return
 * NaN if an element is NaN. */
#define HAL_REDUCE_SUM UINT32_C(0)
#define HAL_REDUCE_PROD UINT32_C(1)
#define HAL_REDUCE_MIN UINT32_C(2)
#define HAL_REDUCE_MAX UINT32_C(3)
#define HAL_REDUCE_AVG UINT32_C(4)
#define HAL_REDUCE_BAND UINT32_C(5)
#define HAL_REDUCE_BOR UINT32_C(6)
#define HAL_REDUCE_BXOR UINT32_C(7)
#define HAL_REDUCE_PREMUL_SUM UINT32_C(8)

/* Flags of hal_collective_t. SCALE_ON_DEVICE: `scale` is device memory, read when the collective runs. FLOAT32_SUM:
 * float16 and bfloat16 are summed in float32 and rounded once. DETERMINISTIC: equal operands produce equal bits, in
 * every run. */
#define HAL_COLLECTIVE_SCALE_ON_DEVICE (UINT32_C(1) << 0)
#define HAL_COLLECTIVE_FLOAT32_SUM (UINT32_C(1) << 1)
#define HAL_COLLECTIVE_DETERMINISTIC (UINT32_C(1) << 2)

/* One collective. Pointers are borrowed until it is done; the struct and its arrays are borrowed for the call. */
typedef struct hal_collective_s {
  size_t struct_size;
  uint32_t op;       /* HAL_COMM_* */
  uint32_t reduce;   /* HAL_REDUCE_*, if op reduces */
  hal_dtype_t dtype; /* of the elements; operators that only copy accept every type */
  int32_t peer;      /* root of BROADCAST, REDUCE, GATHER, SCATTER; the other rank of SEND and RECV */
  uint32_t tag;      /* of SEND and RECV */
  uint32_t flags;    /* HAL_COLLECTIVE_* */
  const void *send;
  void *recv;
  uint64_t count; /* elements, as in the table above */
  /* For ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER and SCATTER: NULL, or an array with a number for each rank
   * instead of `count`: the elements that this rank sends to and receives from it, and where they begin. If this rank
   * sends or receives one block, only the arrays of the other side are read, and `count` is the size of the block.
   * Without displacements, blocks are contiguous. */
  const uint64_t *send_counts, *send_displs, *recv_counts, *recv_displs;
  const void *scale;    /* PREMUL_SUM: one number on the host: float for float16 and bfloat16, else of dtype */
  uint64_t sequence;    /* number of the communicator's call, from 1 on; set by the HAL */
  uint64_t fingerprint; /* of op, reduce, dtype, peer and the counts that all ranks share; set by the HAL */
} hal_collective_t;

/* ---- communicators of a plugin: group COMM ----------------------------------------------------------------------- */
/* The maximum size of an id (comm_unique_id). */
#define HAL_COMM_ID_BYTES 8192

/* hal_comm_info_t.flags: the capabilities of the library. Without a flag the slot or the descriptor's flag is
 * HAL_UNIMPLEMENTED. */
#define HAL_COMM_CAN_NONBLOCKING (UINT32_C(1) << 0) /* HAL_COMM_NONBLOCKING */
#define HAL_COMM_CAN_SPLIT (UINT32_C(1) << 1)       /* comm_split */
#define HAL_COMM_CAN_SHRINK (UINT32_C(1) << 2)      /* comm_shrink */
#define HAL_COMM_CAN_REGISTER (UINT32_C(1) << 3)    /* comm_register */
#define HAL_COMM_CAN_CAPTURE (UINT32_C(1) << 4)     /* comm_submit on a stream that is captured */
#define HAL_COMM_CAN_UNEVEN (UINT32_C(1) << 5)      /* arrays of counts in hal_collective_t */
#define HAL_COMM_CAN_TAG (UINT32_C(1) << 6) /* SEND and RECV match by tag; without the flag in the order of the calls */
#define HAL_COMM_CAN_SHARE_DEVICE (UINT32_C(1) << 7)     /* several ranks on one device */
#define HAL_COMM_CAN_CROSS_HOSTS (UINT32_C(1) << 8)      /* ranks on several hosts */
#define HAL_COMM_CAN_FLOAT32_SUM (UINT32_C(1) << 9)      /* HAL_COLLECTIVE_FLOAT32_SUM */
#define HAL_COMM_CAN_DETERMINISTIC (UINT32_C(1) << 10)   /* HAL_COMM_DETERMINISTIC, HAL_COLLECTIVE_DETERMINISTIC */
#define HAL_COMM_CAN_SCALE_ON_DEVICE (UINT32_C(1) << 11) /* HAL_COLLECTIVE_SCALE_ON_DEVICE */
/* A limit: the ranks are threads of one process, with a device each. Between processes the host's collectives run.
 * Since 0.5. */
#define HAL_COMM_WITHIN_PROCESS (UINT32_C(1) << 12)

/* The capabilities of a device's library for collectives, see comm_info. */
typedef struct hal_comm_info_s {
  size_t struct_size;
  uint32_t id_bytes;          /* of comm_unique_id, at most HAL_COMM_ID_BYTES */
  uint32_t max_ranks;         /* of a communicator; 0 = no limit */
  uint64_t ops;               /* bit HAL_COMM_*: the operators */
  uint64_t copy_dtypes;       /* HAL_DTYPE_BIT: of the operators that only copy; the host passes others as bytes */
  uint64_t reduce_dtypes[16]; /* HAL_DTYPE_BIT by HAL_REDUCE_*; 0 = no such reduction */
  uint32_t flags;             /* HAL_COMM_CAN_* */
  uint32_t version;           /* the library's own number */
  char name[32];              /* of the library, for messages: "nccl"; NUL-ended */
} hal_comm_info_t;

/* hal_comm_desc_t.flags. NONBLOCKING: comm_create returns at once, in state CREATING. DETERMINISTIC: for all
 * collectives. */
#define HAL_COMM_NONBLOCKING (UINT32_C(1) << 0)
#define HAL_COMM_DETERMINISTIC (UINT32_C(1) << 1)

/* The properties of a communicator of comm_create, comm_split and comm_shrink. The latter two ignore id, rank and
 * size. */
typedef struct hal_comm_desc_s {
  size_t struct_size;
  const void *id; /* of comm_unique_id on one of the ranks; borrowed for the call */
  size_t id_size;
  int32_t rank, size;
  uint32_t flags;     /* HAL_COMM_NONBLOCKING, HAL_COMM_DETERMINISTIC */
  int32_t priority;   /* of the device's work, as of hal_stream_desc_t */
  int64_t timeout_ns; /* time limit for all ranks to join; <= 0 = no limit */
  const char *name;   /* for messages and profiles; borrowed for the call */
} hal_comm_desc_t;

/* hal_comm_state_t.state */
#define HAL_COMM_CREATING UINT32_C(1)
#define HAL_COMM_READY UINT32_C(2)
#define HAL_COMM_FAILED UINT32_C(3)
#define HAL_COMM_ABORTED UINT32_C(4)

/* The result of comm_query. */
typedef struct hal_comm_state_s {
  size_t struct_size;
  uint32_t state;                 /* HAL_COMM_CREATING, _READY, _FAILED, _ABORTED */
  hal_status_t error;             /* FAILED, ABORTED: the first failure */
  int32_t bad_rank;               /* the rank that caused it; -1 = unknown */
  uint32_t reserved;              /* 0 */
  int64_t native_code;            /* the library's own number, 0 if none */
  uint64_t queued, started, done; /* calls of comm_submit; 0 where the library does not count */
  char message[256];              /* NUL-terminated, "" if there is none */
} hal_comm_state_t;

/* One collective of comm_submit. The struct may grow: elements are `stride` bytes apart. */
typedef struct hal_comm_call_s {
  hal_plugin_comm_t *comm;
  hal_plugin_stream_t *stream; /* of the communicator's device; NULL: done when comm_submit returns */
  const hal_collective_t *desc;
} hal_comm_call_t;

/* Flags of comm_register. SYMMETRIC: all ranks register memory of the same size, in the same order. */
#define HAL_COMM_REGISTER_SYMMETRIC (UINT32_C(1) << 0)
/* Flags of comm_shrink. ABORT: the parent's calls are aborted first. */
#define HAL_COMM_SHRINK_ABORT (UINT32_C(1) << 0)

/* ---- semaphores: group SEMAPHORE --------------------------------------------------------------------------------- */
/* Flags of semaphore_create. INTERPROCESS: for semaphore_export. */
#define HAL_SEMAPHORE_INTERPROCESS (UINT32_C(1) << 0)
/* The value of a poisoned semaphore, which satisfies no wait: each waiter fails. */
#define HAL_SEMAPHORE_POISON UINT64_MAX

#ifdef __cplusplus
}
#endif
#endif /* HAL_PLUGIN_OP_H_ */
