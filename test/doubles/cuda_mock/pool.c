/* pool.c: stream-ordered memory. The same stream may immediately reuse a block that was freed on it, and other
 * streams after the stream has reached the free. Its contents are overwritten there. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mock.h"

enum { PIECE = 512, POISON = 0xdb };

typedef struct block_s {
  struct block_s *next;
  char *base;
  size_t size;
  CUmemoryPool pool;
  CUstream freed_on;
  uint64_t frees, done; /* number of frees, and number of frees that a stream has reached */
  int in_use;
} block_t;

struct CUmemPoolHandle_st {
  CUcontext context;
  cuuint64_t threshold;
  size_t reserved, used;
  block_t *blocks;
  CUmemoryPool next;
};
static CUmemoryPool pools; /* under `lock`, as all of them */

typedef struct free_command_s {
  command_t command;
  block_t *block;
  uint64_t number;
} free_command_t;

static int is_free(const block_t *block) { return !block->in_use && block->done == block->frees; }

/* Returns free blocks to the device until the pool holds no more than `keep` bytes. The caller holds `lock`. */
static void trim(CUmemoryPool pool, size_t keep) {
  for (block_t **at = &pool->blocks; *at && pool->reserved > keep;) {
    block_t *const block = *at;
    if (!is_free(block)) {
      at = &block->next;
      continue;
    }
    *at = block->next;
    pool->reserved -= block->size;
    pool->context->used -= block->size;
    munmap(block->base, block->size);
    free(block);
  }
}

void pools_synchronised(CUcontext context) {
  pthread_mutex_lock(&lock);
  for (CUmemoryPool pool = pools; pool; pool = pool->next)
    if (pool->context == context && pool->reserved > pool->threshold) trim(pool, (size_t)pool->threshold);
  pthread_mutex_unlock(&lock);
}

/* ---- pools ---- */

API CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
  CUresult code = check_initialised();
  if (!code) code = check_device(properties->location.id);
  if (code) return code;
  if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
      properties->win32SecurityAttributes)
    return CUDA_ERROR_INVALID_VALUE;
  if (!setting("CUDA_MOCK_POOLS", 1)) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemoryPool const made = calloc(1, sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made->context = &contexts[properties->location.id];
  pthread_mutex_lock(&lock);
  made->next = pools;
  pools = made;
  pthread_mutex_unlock(&lock);
  *pool = made;
  return CUDA_SUCCESS;
}

/* Its blocks in use are returned when they are freed; the pool remains until the process exits. */
API CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const CUresult code = check_initialised();
  if (code || !pool) return code ? code : CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  trim(pool, 0);
  const int empty = !pool->blocks;
  CUmemoryPool *at = &pools;
  while (empty && *at != pool) at = &(*at)->next;
  if (empty) *at = pool->next;
  pthread_mutex_unlock(&lock);
  if (empty) free(pool);
  return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  const CUresult code = check_initialised();
  if (code) return code;
  if (!pool || attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  memcpy(&pool->threshold, value, sizeof pool->threshold);
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  const CUresult code = check_initialised();
  if (code) return code;
  pthread_mutex_lock(&lock);
  const cuuint64_t number = !pool                                               ? 0
                            : attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD    ? pool->threshold
                            : attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool->reserved
                                                                                : pool->used;
  pthread_mutex_unlock(&lock);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  memcpy(value, &number, sizeof number);
  return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *list, size_t count) {
  CUresult code = check_initialised();
  if (!code && !pool) code = CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count && !code; i++) code = check_device(list[i].location.id);
  return code;
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  const CUresult code = check_initialised();
  if (code) return code;
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  trim(pool, keep);
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

void pools_release(CUcontext context) {
  for (CUmemoryPool pool = pools; pool; pool = pool->next) {
    if (pool->context != context) continue;
    for (block_t *block = pool->blocks; block; block = block->next) block->in_use = 0, block->done = block->frees;
    trim(pool, 0);
  }
}

/* ---- memory ---- */

/* A block that is large enough and not too large. The caller holds `lock`. */
static block_t *take_block(CUmemoryPool pool, CUstream stream, size_t size) {
  for (block_t *block = pool->blocks; block; block = block->next)
    if (!block->in_use && block->size >= size && block->size <= 2 * size &&
        (block->freed_on == stream || is_free(block)))
      return block;
  return NULL;
}

/* `lock` is held. */
static block_t *make_block(CUmemoryPool pool, size_t size) {
  if (size > memory_of_device() - pool->context->used) return NULL;
  void *const base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  block_t *const block = base == MAP_FAILED ? NULL : calloc(1, sizeof *block);
  if (!block) {
    if (base != MAP_FAILED) munmap(base, size);
    return NULL;
  }
  *block = (block_t){.next = pool->blocks, .base = base, .size = size, .pool = pool};
  pool->blocks = block;
  pool->reserved += size;
  pool->context->used += size;
  return block;
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  CUcontext context;
  CUresult code = enter(&context);
  if (code) return code;
  CUstream const where = stream_resolve(stream, context);
  code = capture_forbids_stream(where);
  if (code) return code;
  if (!bytes || !pool || pool->context != context) return CUDA_ERROR_INVALID_VALUE;
  if (fault_takes(FAULT_ALLOC)) return CUDA_ERROR_OUT_OF_MEMORY;
  const size_t size = (bytes + PIECE - 1) / PIECE * PIECE;
  pthread_mutex_lock(&lock);
  block_t *block = take_block(pool, where, size);
  if (!block) block = make_block(pool, size);
  if (block) block->in_use = 1, pool->used += block->size;
  pthread_mutex_unlock(&lock);
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!memory_add_mapped(context, block->base, block->size)) {
    pthread_mutex_lock(&lock);
    block->in_use = 0, pool->used -= block->size;
    pthread_mutex_unlock(&lock);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = (CUdeviceptr)(uintptr_t)block->base;
  return CUDA_SUCCESS;
}

/* The block in use that begins there. The caller holds `lock`. */
static block_t *find_block(CUdeviceptr address) {
  for (CUmemoryPool pool = pools; pool; pool = pool->next)
    for (block_t *block = pool->blocks; block; block = block->next)
      if (block->in_use && (CUdeviceptr)(uintptr_t)block->base == address) return block;
  return NULL;
}

static void run_free(command_t *command, CUcontext context) {
  const free_command_t *const own = (const free_command_t *)command;
  (void)context;
  memset(own->block->base, POISON, own->block->size < 4096 ? own->block->size : 4096);
  pthread_mutex_lock(&lock);
  own->block->done = own->number;
  pthread_mutex_unlock(&lock);
}

API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  CUcontext context;
  CUresult code = enter(&context);
  if (code) return code;
  CUstream const where = stream_resolve(stream, context);
  code = capture_forbids_stream(where);
  if (code) return code;
  free_command_t *const command = command_new(sizeof *command, run_free);
  if (!command) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  block_t *const block = find_block(address);
  if (block) {
    block->in_use = 0, block->freed_on = where, block->pool->used -= block->size;
    command->block = block, command->number = ++block->frees, command->command.always = 1;
  }
  pthread_mutex_unlock(&lock);
  if (!block) {
    command_drop(&command->command);
    return CUDA_ERROR_INVALID_VALUE;
  }
  memory_take_mapped(block->base, block->size);
  return command_push(stream, context, &command->command);
}

int pool_free_now(CUdeviceptr address) {
  pthread_mutex_lock(&lock);
  block_t *const block = find_block(address);
  if (block) block->in_use = 0, block->freed_on = NULL, block->pool->used -= block->size;
  pthread_mutex_unlock(&lock);
  return block && memory_take_mapped(block->base, block->size);
}
