/* nccl.h: NCCL as the plugin's library for collectives, and its communicators. */
#ifndef CUDA_NCCL_H_
#define CUDA_NCCL_H_

#include "../cuda_plugin.h"
#include "../libraries/library.h"
#include "nccl_api.h"

#define NCCL_DECLARE_CALL(name, parameters) ncclResult_t(*name) parameters;
#define NCCL_DECLARE_TEXT(name, parameters) const char *(*name)parameters;
typedef struct nccl_table_s {
  NCCL_CALLS(NCCL_DECLARE_CALL)
  NCCL_LATER_CALLS(NCCL_DECLARE_CALL)
  NCCL_TEXT_CALLS(NCCL_DECLARE_TEXT)
} nccl_table_t;
extern nccl_table_t nccl;

enum { NCCL_STREAMS = 8, NCCL_MESSAGE = 256 };

struct hal_plugin_comm_s {
  ncclComm_t handle; /* under cuda_nccl_lock; NULL after an abort */
  int32_t device, rank, size;
  atomic_int state; /* HAL_COMM_* */
  int64_t deadline; /* of the creation, on the clock of cuda_nccl_now; 0 = none */
  int finalizing;
  CUevent last;                               /* recorded after each submission, on its stream */
  CUdeviceptr word;                           /* the operand of barriers */
  hal_plugin_stream_t *streams[NCCL_STREAMS]; /* of submissions, as a ring; they may have been destroyed */
  unsigned next_stream;
  hal_status_t error; /* the first failure; guarded by cuda_nccl_lock, like the members below */
  int64_t native_code;
  int32_t bad_rank;
  char name[64], message[NCCL_MESSAGE];
};

/* Lock for calls of NCCL. All communicators are non-blocking, so it is held for a short time. Waits happen without it,
 * and an abort never frees a communicator that a thread is using. */
extern pthread_mutex_t cuda_nccl_lock;

/* Initializes NCCL for a device; the first call opens it. Errors: HAL_UNAVAILABLE = it is not installed, or too old. */
hal_status_t cuda_nccl_serve(int32_t device);
int cuda_nccl_version(void);
int64_t cuda_nccl_now(void); /* nanoseconds */

/* Sets the thread's error message, followed by the messages of NCCL. */
hal_status_t cuda_nccl_error(ncclResult_t code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Converts a result to the host's status. */
hal_status_t cuda_nccl_status(ncclResult_t code);

/* Waits until a communicator has finished its last call, at most `timeout_ns` (<= 0: without a limit); writes NCCL's
 * result.
 * Errors: HAL_NOT_READY; HAL_ABORTED = another thread aborted it. The caller holds cuda_nccl_lock, which is released
 * meanwhile. */
hal_status_t cuda_nccl_wait(hal_plugin_comm_t *comm, int64_t timeout_ns, ncclResult_t *out_code);

/* Records the first failure. The caller holds cuda_nccl_lock, and has set the thread's message with `text`. */
void cuda_nccl_fail(hal_plugin_comm_t *comm, hal_status_t status, ncclResult_t code, const char *text);
/* Sets the recorded failure of an unusable communicator as the thread's error; returns HAL_OK if it is ready. */
hal_status_t cuda_nccl_check(hal_plugin_comm_t *comm, const char *op);

/* Completes a communicator whose creation was started with the result `code`, or frees it. */
hal_status_t cuda_nccl_begun(hal_plugin_comm_t *comm, const hal_comm_desc_t *desc, ncclResult_t code,
                             hal_plugin_comm_t **out_comm);
/* Allocates a communicator without a handle; the context is current. */
hal_status_t cuda_nccl_new(int32_t device, const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm);
void cuda_nccl_free(hal_plugin_comm_t *comm);
nccl_config_t cuda_nccl_config(void);

#endif /* CUDA_NCCL_H_ */
