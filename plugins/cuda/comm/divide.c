/* divide.c: communicators of a subset of another one's ranks, and memory registered with NCCL. */
#include "nccl.h"

/* NCCL reports the ranks' numbers in the new communicator when it is ready. */
static hal_status_t check_parent(hal_plugin_comm_t *parent, const hal_comm_desc_t *desc, const char *op) {
  const hal_status_t status = hal_flags_check("cuda: comm_split and comm_shrink", desc->flags, HAL_COMM_NONBLOCKING);
  return status ? status : cuda_nccl_check(parent, op);
}

static ncclResult_t begin_split(hal_plugin_comm_t *parent, int32_t color, int32_t key, hal_plugin_comm_t *made) {
  nccl_config_t config = cuda_nccl_config();
  ncclResult_t code = ncclInvalidUsage;
  pthread_mutex_lock(&cuda_nccl_lock);
  if (parent->handle) code = nccl.ncclCommSplit(parent->handle, color, key, &made->handle, (ncclConfig_t *)&config);
  pthread_mutex_unlock(&cuda_nccl_lock);
  return code;
}

/* The parent is in use until NCCL has created the new communicator, or none for a rank without a color. */
static hal_status_t wait_for_parent(hal_plugin_comm_t *parent, int64_t timeout_ns, ncclResult_t *code) {
  ncclResult_t own = ncclSuccess;
  pthread_mutex_lock(&cuda_nccl_lock);
  const hal_status_t status = cuda_nccl_wait(parent, timeout_ns, &own);
  pthread_mutex_unlock(&cuda_nccl_lock);
  if (!*code || *code == ncclInProgress) *code = own;
  if (!status) return HAL_OK;
  return cuda_error(status, 0, "cuda: comm_split of communicator '%s': %s", parent->name,
                    status == HAL_ABORTED ? "it was aborted" : "ranks are missing after the timeout");
}

static hal_status_t make_of(hal_plugin_comm_t *parent, const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm) {
  const hal_status_t status = cuda_nccl_new(parent->device, desc, out_comm);
  if (status) return status;
  (*out_comm)->rank = parent->rank;
  (*out_comm)->size = parent->size;
  (*out_comm)->deadline = desc->timeout_ns > 0 ? cuda_nccl_now() + desc->timeout_ns : 0;
  return HAL_OK;
}

hal_status_t hal_plugin_comm_split(hal_plugin_comm_t *parent, int32_t color, int32_t key, const hal_comm_desc_t *desc,
                                   hal_plugin_comm_t **out_comm) {
  hal_plugin_comm_t *made = NULL;
  cuda_scope_t scope;
  hal_status_t status = check_parent(parent, desc, "comm_split");
  if (!status && color < -1)
    status = cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: comm_split with color %d: expected -1 or more", (int)color);
  if (!status) status = cuda_enter(parent->device, &scope);
  if (status) return status;
  status = make_of(parent, desc, &made);
  if (!status) {
    ncclResult_t code = begin_split(parent, color, key, made);
    status = wait_for_parent(parent, desc->timeout_ns, &code);
    if (!status && !code && !made->handle) {
      cuda_nccl_free(made); /* no color */
      *out_comm = NULL;
    } else if (!status) {
      status = cuda_nccl_begun(made, desc, code, out_comm);
    } else {
      pthread_mutex_lock(&cuda_nccl_lock);
      if (made->handle) nccl.ncclCommAbort(made->handle);
      pthread_mutex_unlock(&cuda_nccl_lock);
      cuda_nccl_free(made);
    }
  }
  cuda_leave(&scope);
  return status;
}

/* A parent with ended ranks may have failed; NCCL allows this after its calls have been aborted. */
hal_status_t hal_plugin_comm_shrink(hal_plugin_comm_t *parent, const int32_t *ranks, size_t count, uint32_t flags,
                                    const hal_comm_desc_t *desc, hal_plugin_comm_t **out_comm) {
  hal_plugin_comm_t *made = NULL;
  cuda_scope_t scope;
  hal_status_t status = hal_flags_check("cuda: comm_shrink", flags, HAL_COMM_SHRINK_ABORT);
  if (!status) status = hal_flags_check("cuda: comm_shrink", desc->flags, HAL_COMM_NONBLOCKING);
  if (!status && !nccl.ncclCommShrink)
    status = cuda_error(HAL_UNIMPLEMENTED, 0, "cuda: NCCL %d has no comm_shrink; install 2.27 or later",
                        cuda_nccl_version());
  if (!status && (!(flags & HAL_COMM_SHRINK_ABORT) || atomic_load(&parent->state) == (int)HAL_COMM_ABORTED))
    status = cuda_nccl_check(parent, "comm_shrink");
  for (size_t i = 0; i < count && !status; i++)
    if (ranks[i] < 0 || ranks[i] >= parent->size || ranks[i] == parent->rank)
      status = cuda_error(HAL_INVALID_ARGUMENT, 0, "cuda: comm_shrink by rank %d of %d without rank %d",
                          (int)parent->rank, (int)parent->size, (int)ranks[i]);
  if (!status) status = cuda_enter(parent->device, &scope);
  if (status) return status;
  status = make_of(parent, desc, &made);
  if (!status) {
    nccl_config_t config = cuda_nccl_config();
    ncclResult_t code = ncclInvalidUsage;
    pthread_mutex_lock(&cuda_nccl_lock);
    if (parent->handle)
      code = nccl.ncclCommShrink(parent->handle, (int *)ranks, (int)count, &made->handle, (ncclConfig_t *)&config,
                                 flags & HAL_COMM_SHRINK_ABORT ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT);
    pthread_mutex_unlock(&cuda_nccl_lock);
    status = cuda_nccl_begun(made, desc, code, out_comm);
  }
  cuda_leave(&scope);
  return status;
}

/* ---- registered memory ------------------------------------------------------------------------------------------ */

hal_status_t hal_plugin_comm_register(hal_plugin_comm_t *comm, void *ptr, size_t size, uint32_t flags,
                                      hal_plugin_comm_memory_t **out_memory) {
  void *handle = NULL;
  hal_status_t status = hal_flags_check("cuda: comm_register", flags, 0);
  if (!status) status = cuda_nccl_check(comm, "comm_register");
  if (status) return status;
  pthread_mutex_lock(&cuda_nccl_lock);
  const ncclResult_t code = comm->handle ? nccl.ncclCommRegister(comm->handle, ptr, size, &handle) : ncclInvalidUsage;
  pthread_mutex_unlock(&cuda_nccl_lock);
  if (code) return cuda_nccl_error(code, "cuda: comm_register of %zu bytes at %p", size, ptr);
  *out_memory = handle; /* NCCL returns NULL if it does not use registration, and accepts that in the reverse call */
  return HAL_OK;
}

hal_status_t hal_plugin_comm_deregister(hal_plugin_comm_t *comm, hal_plugin_comm_memory_t *memory) {
  ncclResult_t code = ncclSuccess;
  pthread_mutex_lock(&cuda_nccl_lock);
  if (comm->handle && memory)
    code = nccl.ncclCommDeregister(comm->handle, memory); /* an abort has ended registrations */
  pthread_mutex_unlock(&cuda_nccl_lock);
  return code ? cuda_nccl_error(code, "cuda: comm_deregister of communicator '%s'", comm->name) : HAL_OK;
}
