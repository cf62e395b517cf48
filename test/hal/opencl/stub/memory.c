/* memory.c: the stub's buffers and shared memory; copies and fills run immediately. */
#include "stub.h"

ENTRY(cl_mem) clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code) {
  (void)context, (void)flags, (void)host;
  cl_mem memory = malloc(sizeof *memory);
  char *bytes = memory ? malloc(size) : NULL;
  if (!bytes) {
    free(memory);
    if (code) *code = CL_OUT_OF_HOST_MEMORY;
    return NULL;
  }
  *memory = (struct _cl_mem){.bytes = bytes, .size = size, .references = 1};
  return stub_made("buffer", memory, code);
}

ENTRY(cl_mem)
clCreateSubBuffer(cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type type, const void *region, cl_int *code) {
  (void)flags, (void)type;
  const cl_buffer_region *const part = region;
  cl_mem memory = malloc(sizeof *memory);
  if (memory)
    *memory = (struct _cl_mem){.bytes = buffer->bytes + part->origin, .size = part->size, .references = 1, .view = 1};
  if (code) *code = memory ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
  return memory;
}

ENTRY(cl_int) clReleaseMemObject(cl_mem memory) {
  if (!memory) return CL_INVALID_MEM_OBJECT;
  if (--memory->references) return CL_SUCCESS;
  if (!memory->view) free(memory->bytes);
  free(memory);
  return CL_SUCCESS;
}

ENTRY(void *) clSVMAlloc(cl_context context, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
  (void)context, (void)flags, (void)alignment;
  unsigned long long shift = 0;
  stub_says("crooked", &shift); /* addresses that are not multiples of the requested alignment */
  char *const bytes = aligned_alloc(128, (size + 255) / 128 * 128);
  return stub_made("svm", bytes ? bytes + shift : NULL, NULL);
}

ENTRY(void) clSVMFree(cl_context context, void *bytes) {
  (void)context;
  free((void *)((uintptr_t)bytes & ~(uintptr_t)127));
}

/* ---- copies ---- */

static cl_int copy(void *to, const void *from, size_t size, cl_event *event) {
  memmove(to, from, size);
  return stub_queued(event);
}

static cl_int fill(char *to, const void *pattern, size_t pattern_size, size_t size, cl_event *event) {
  for (size_t i = 0; i + pattern_size <= size; i += pattern_size) memcpy(to + i, pattern, pattern_size);
  return stub_queued(event);
}

ENTRY(cl_int)
clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool wait, size_t offset, size_t size, void *to,
                    cl_uint count, const cl_event *list, cl_event *event) {
  (void)queue, (void)wait, (void)count, (void)list;
  return copy(to, buffer->bytes + offset, size, event);
}

ENTRY(cl_int)
clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool wait, size_t offset, size_t size, const void *from,
                     cl_uint count, const cl_event *list, cl_event *event) {
  (void)queue, (void)wait, (void)count, (void)list;
  return copy(buffer->bytes + offset, from, size, event);
}

ENTRY(cl_int)
clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset, size_t size,
                    cl_uint count, const cl_event *list, cl_event *event) {
  (void)queue, (void)count, (void)list;
  return copy(to->bytes + to_offset, from->bytes + from_offset, size, event);
}

static cl_int copy_rows(char *to, const size_t *to_origin, size_t to_pitch, const char *from, const size_t *from_origin,
                        size_t from_pitch, const size_t *region, cl_event *event) {
  for (size_t row = 0; row < region[1]; row++)
    memmove(to + (to_origin[1] + row) * to_pitch + to_origin[0],
            from + (from_origin[1] + row) * from_pitch + from_origin[0], region[0]);
  return stub_queued(event);
}

ENTRY(cl_int)
clEnqueueReadBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool wait, const size_t *origin, const size_t *there,
                        const size_t *region, size_t pitch, size_t slice, size_t there_pitch, size_t there_slice,
                        void *to, cl_uint count, const cl_event *list, cl_event *event) {
  (void)queue, (void)wait, (void)slice, (void)there_slice, (void)count, (void)list;
  return copy_rows(to, there, there_pitch, buffer->bytes, origin, pitch, region, event);
}

ENTRY(cl_int)
clEnqueueWriteBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool wait, const size_t *origin, const size_t *there,
                         const size_t *region, size_t pitch, size_t slice, size_t there_pitch, size_t there_slice,
                         const void *from, cl_uint count, const cl_event *list, cl_event *event) {
  (void)queue, (void)wait, (void)slice, (void)there_slice, (void)count, (void)list;
  return copy_rows(buffer->bytes, origin, pitch, from, there, there_pitch, region, event);
}

ENTRY(cl_int)
clEnqueueCopyBufferRect(cl_command_queue queue, cl_mem from, cl_mem to, const size_t *from_origin,
                        const size_t *to_origin, const size_t *region, size_t from_pitch, size_t from_slice,
                        size_t to_pitch, size_t to_slice, cl_uint count, const cl_event *list, cl_event *event) {
  (void)queue, (void)from_slice, (void)to_slice, (void)count, (void)list;
  return copy_rows(to->bytes, to_origin, to_pitch, from->bytes, from_origin, from_pitch, region, event);
}

ENTRY(cl_int)
clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void *pattern, size_t pattern_size, size_t offset,
                    size_t size, cl_uint count, const cl_event *list, cl_event *event) {
  (void)queue, (void)count, (void)list;
  return fill(buffer->bytes + offset, pattern, pattern_size, size, event);
}

ENTRY(cl_int)
clEnqueueSVMMemcpy(cl_command_queue queue, cl_bool wait, void *to, const void *from, size_t size, cl_uint count,
                   const cl_event *list, cl_event *event) {
  (void)queue, (void)wait, (void)count, (void)list;
  return copy(to, from, size, event);
}

ENTRY(cl_int)
clEnqueueSVMMemFill(cl_command_queue queue, void *to, const void *pattern, size_t pattern_size, size_t size,
                    cl_uint count, const cl_event *list, cl_event *event) {
  (void)queue, (void)count, (void)list;
  return fill(to, pattern, pattern_size, size, event);
}

ENTRY(cl_int)
clEnqueueMigrateMemObjects(cl_command_queue queue, cl_uint objects, const cl_mem *list, cl_mem_migration_flags flags,
                           cl_uint count, const cl_event *events, cl_event *event) {
  (void)queue, (void)objects, (void)list, (void)flags, (void)count, (void)events;
  return stub_queued(event);
}

ENTRY(void *)
clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool wait, cl_map_flags flags, size_t offset, size_t size,
                   cl_uint count, const cl_event *list, cl_event *event, cl_int *code) {
  (void)queue, (void)wait, (void)flags, (void)size, (void)count, (void)list;
  stub_queued(event);
  return stub_made("map", buffer->bytes + offset, code);
}

ENTRY(cl_int)
clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem buffer, void *mapped, cl_uint count, const cl_event *list,
                        cl_event *event) {
  (void)queue, (void)buffer, (void)mapped, (void)count, (void)list;
  return stub_queued(event);
}
