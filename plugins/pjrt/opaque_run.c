/* opaque_run.c: runs of programs in memory of the platform. An argument that has a result in its place is donated, so
 * that the result is its next version. The versions may be used before the run has ended: the platform orders its
 * runs, and copies wait for them. */
#include <stdio.h>
#include <string.h>

#include "opaque.h"

hal_status_t pjrt_upload(const pjrt_span_t *span, int32_t site, pjrt_buffer_t **out_buffer, char *why) {
  const pjrt_table_t *const table = pjrt_table_of(site);
  pjrt_failure_t failure;
  pjrt_Client_BufferFromHostBuffer_t create = {.client = pjrt_client_of(site),
                                               .data = span->data,
                                               .type = span->type,
                                               .dims = &span->count,
                                               .num_dims = 1,
                                               .host_buffer_semantics = PJRT_ONLY_DURING_CALL,
                                               .device = pjrt.devices[site]};
  hal_status_t status = pjrt_failed(table, PJRT_CALL(table, Client_BufferFromHostBuffer, create), &failure);
  if (!status) {
    *out_buffer = create.buffer;
    status = pjrt_await(site, create.done_with_host_buffer, &failure);
    if (status) pjrt_buffer_destroy(site, create.buffer);
  }
  if (status) snprintf(why, PJRT_WHY, "the platform cannot copy from the host: %.200s", failure.text);
  return status;
}

hal_status_t pjrt_download(pjrt_buffer_t *buffer, int32_t site, void *to, size_t size, char *why) {
  const pjrt_table_t *const table = pjrt_table_of(site);
  pjrt_failure_t failure;
  pjrt_Buffer_ToHostBuffer_t copy = {.src = buffer, .dst = to, .dst_size = size};
  hal_status_t status = pjrt_failed(table, PJRT_CALL(table, Buffer_ToHostBuffer, copy), &failure);
  if (!status) status = pjrt_await(site, copy.event, &failure);
  if (status) snprintf(why, PJRT_WHY, "the platform cannot copy to the host: %.200s", failure.text);
  return status;
}

/* The memory of a run. */
typedef struct opaque_run_s {
  opaque_version_t **versions; /* of the arguments */
  pjrt_buffers_t buffers;
  int64_t *kept;
} opaque_run_t;

static hal_status_t prepare(const pjrt_run_t *run, opaque_run_t *to, char *why) {
  hal_status_t status = HAL_OK;
  for (uint32_t i = 0; i < run->argument_count; i++) {
    to->buffers.arguments[i] = run->arguments[i].constant;
    if (to->buffers.arguments[i]) continue;
    status = pjrt_opaque_argument(&run->arguments[i], run->site, &to->versions[i], why);
    if (status) return status;
    to->buffers.arguments[i] = pjrt_opaque_buffer(to->versions[i]);
  }
  for (uint32_t k = 0; k < run->result_count && !status; k++) status = pjrt_opaque_claim(&run->results[k], why);
  for (uint32_t k = 0; k < run->result_count && !status; k++)
    if (run->places[k] != PJRT_NO_PLACE && !pjrt_opaque_donates(to->versions[run->places[k]]))
      to->kept[to->buffers.kept_count++] = run->places[k];
  return status;
}

/* After a call that failed: the memory of the arguments that were to be donated keeps them. */
static void restore(const pjrt_run_t *run, const opaque_run_t *from) {
  for (uint32_t k = 0; k < run->result_count; k++)
    if (run->places[k] != PJRT_NO_PLACE && from->versions[run->places[k]] &&
        pjrt_opaque_donates(from->versions[run->places[k]]))
      pjrt_opaque_restore(&run->arguments[run->places[k]], from->versions[run->places[k]]);
}

static hal_status_t execute(const pjrt_run_t *run, opaque_run_t *with, char *why) {
  pjrt_failure_t failure = {.status = HAL_OK};
  pjrt_event_t *done;
  hal_status_t status = pjrt_execute(run, &with->buffers, &done, &failure);
  if (status) {
    restore(run, with);
    snprintf(why, PJRT_WHY, "%.240s", failure.text);
    return status;
  }
  if (run->flights)
    pjrt_flights_add(run->flights, done, run->name);
  else
    status = pjrt_await(run->site, done, &failure);
  if (status) snprintf(why, PJRT_WHY, "%.240s", failure.text);
  for (uint32_t k = 0; k < run->result_count; k++) {
    const hal_status_t stored = pjrt_opaque_result(&run->results[k], run->site, with->buffers.results[k], why);
    if (!status) status = stored;
  }
  return status;
}

hal_status_t pjrt_opaque_run(const pjrt_run_t *run, char *why) {
  const size_t arguments = run->argument_count, results = run->result_count, count = 2 * arguments + 2 * results;
  void **const memory = hal_host->mem_alloc((count + 1) * sizeof(int64_t), sizeof(int64_t));
  if (!memory) {
    snprintf(why, PJRT_WHY, "no host memory for %zu buffers", arguments + results);
    return HAL_RESOURCE_EXHAUSTED;
  }
  memset(memory, 0, (count + 1) * sizeof(int64_t));
  opaque_run_t with = {.versions = (opaque_version_t **)memory,
                       .buffers.arguments = (pjrt_buffer_t **)memory + arguments,
                       .buffers.results = (pjrt_buffer_t **)memory + 2 * arguments};
  with.kept = (int64_t *)(void *)(memory + 2 * arguments + results);
  with.buffers.kept = with.kept;
  hal_status_t status = prepare(run, &with, why);
  if (status)
    restore(run, &with);
  else
    status = execute(run, &with, why);
  for (size_t i = 0; i < arguments; i++) pjrt_opaque_release(with.versions[i]);
  hal_host->mem_free(memory);
  return status;
}
