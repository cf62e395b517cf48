/* run.c: programs, and their runs in memory of this process. There, an argument is a buffer over that memory for one
 * run, without a copy, and a result is written in place, because the program donates the argument that stands for its
 * place. opaque_run.c runs programs of platforms with other memory. */
#include <stdio.h>
#include <string.h>

#include "../pjrt.h"

enum { FEW_BUFFERS = 64 }; /* of a run, without an allocation */

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* CompileOptionsProto: executable_build_options (3) with num_replicas (4) = 1 and num_partitions (5) = 1, and
 * compile_portable_executable (4) = true, so that a run selects the device. */
static const char plain_options[] = {0x1a, 4, 0x20, 1, 0x28, 1, 0x20, 1};
/* The same, and env_option_overrides (7): a maximum of NaN and a number is NaN, as in torch. */
static const char exact_options[] =
    "\x1a\x04\x20\x01\x28\x01\x20\x01\x3a\x21\x0a\x1b"
    "xla_cpu_enable_fast_min_max\x12\x02\x10";

/* The same at a low level of optimization. */
static const char low_options[] =
    "\x1a\x04\x20\x01\x28\x01\x20\x01\x3a\x21\x0a\x1b"
    "xla_cpu_enable_fast_min_max\x12\x02\x10\x00\x3a\x24\x0a\x1e"
    "xla_backend_optimization_level\x12\x02\x18\x00\x3a\x27\x0a\x21"
    "xla_llvm_disable_expensive_passes\x12\x02\x10\x01";

hal_status_t pjrt_compile_for(const char *text, size_t size, const char *options, size_t options_size, int32_t site,
                              pjrt_loaded_t **out_program, pjrt_failure_t *failure) {
  const pjrt_table_t *const table = pjrt_table_of(site);
  const pjrt_program_text_t program = {.struct_size = sizeof program,
                                       .code = (char *)(uintptr_t)text,
                                       .code_size = size,
                                       .format = "mlir",
                                       .format_size = strlen("mlir")};
  pjrt_Client_Compile_t compile = {.client = pjrt_client_of(site),
                                   .program = &program,
                                   .compile_options = options,
                                   .compile_options_size = options_size};
  const hal_status_t status = pjrt_failed(table, PJRT_CALL(table, Client_Compile, compile), failure);
  if (!status) *out_program = compile.executable;
  return status;
}

hal_status_t pjrt_compile(const char *text, size_t size, pjrt_level_t level, int32_t site, pjrt_loaded_t **out_program,
                          pjrt_failure_t *failure) {
  const char *options = exact_options;
  size_t options_size = sizeof exact_options;
  if (level == PJRT_LOW)
    options = low_options, options_size = sizeof low_options - 1;
  else if (pjrt_platform_of(site)->plain_options)
    options = plain_options, options_size = sizeof plain_options;
  return pjrt_compile_for(text, size, options, options_size, site, out_program, failure);
}

hal_status_t pjrt_compile_cached(const char *text, size_t size, pjrt_level_t level, int32_t site,
                                 pjrt_loaded_t **out_program, int *out_stored, pjrt_failure_t *failure) {
  pjrt_loaded_t *const stored = pjrt_cache_load(text, size, level, site);
  const hal_status_t status = stored ? HAL_OK : pjrt_compile(text, size, level, site, out_program, failure);
  *out_stored = stored != NULL;
  if (stored) *out_program = stored;
  if (!stored && !status) pjrt_cache_store(text, size, level, site, *out_program);
  return status;
}

void pjrt_program_release(int32_t site, pjrt_loaded_t *program) {
  const pjrt_table_t *const table = pjrt_table_of(site);
  pjrt_failure_t failure;
  pjrt_LoadedExecutable_Destroy_t destroy = {.executable = program};
  if (program) pjrt_failed(table, PJRT_CALL(table, LoadedExecutable_Destroy, destroy), &failure);
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

hal_status_t pjrt_await(int32_t site, pjrt_event_t *event, pjrt_failure_t *failure) {
  const pjrt_table_t *const table = pjrt_table_of(site);
  pjrt_failure_t ignored;
  if (!event) return HAL_OK;
  pjrt_Event_Await_t wait = {.event = event};
  pjrt_Event_Destroy_t destroy = {.event = event};
  const hal_status_t status = pjrt_failed(table, PJRT_CALL(table, Event_Await, wait), failure);
  pjrt_failed(table, PJRT_CALL(table, Event_Destroy, destroy), &ignored);
  return status;
}

hal_status_t pjrt_buffer_over(const pjrt_span_t *span, int32_t site, pjrt_buffer_t **out_buffer,
                              pjrt_failure_t *failure) {
  const pjrt_table_t *const table = pjrt_table_of(site);
  pjrt_Client_BufferFromHostBuffer_t create = {.client = pjrt_client_of(site),
                                               .data = span->data,
                                               .type = span->type,
                                               .dims = &span->count,
                                               .num_dims = span->count ? 1 : 0,
                                               .host_buffer_semantics = PJRT_MUTABLE_ZERO_COPY,
                                               .device = pjrt.devices[site]};
  const int aligned = (uintptr_t)span->data % PJRT_BUFFER_ALIGNMENT == 0;
  if (!aligned || !span->count || span->copied) create.host_buffer_semantics = PJRT_ONLY_DURING_CALL;
  hal_status_t status = pjrt_failed(table, PJRT_CALL(table, Client_BufferFromHostBuffer, create), failure);
  if (status) return status;
  *out_buffer = create.buffer;
  pjrt_failure_t ignored;
  pjrt_Event_Destroy_t destroy = {.event = create.done_with_host_buffer};
  if (create.host_buffer_semantics == PJRT_ONLY_DURING_CALL)
    return pjrt_await(site, create.done_with_host_buffer, failure);
  /* That event waits for the buffer's end. */
  if (destroy.event) pjrt_failed(table, PJRT_CALL(table, Event_Destroy, destroy), &ignored);
  return HAL_OK;
}

void pjrt_buffer_destroy(int32_t site, pjrt_buffer_t *buffer) {
  const pjrt_table_t *const table = pjrt_table_of(site);
  pjrt_failure_t ignored;
  pjrt_Buffer_Destroy_t destroy = {.buffer = buffer};
  if (buffer) pjrt_failed(table, PJRT_CALL(table, Buffer_Destroy, destroy), &ignored);
}

static size_t element_bytes(int type) {
  static const unsigned char bytes[] = {
      [PJRT_PRED] = 1, [PJRT_S8] = 1,  [PJRT_S16] = 2,   [PJRT_S32] = 4,    [PJRT_S64] = 8,     [PJRT_U8] = 1,
      [PJRT_U16] = 2,  [PJRT_U32] = 4, [PJRT_U64] = 8,   [PJRT_F16] = 2,    [PJRT_F32] = 4,     [PJRT_F64] = 8,
      [PJRT_BF16] = 2, [PJRT_C64] = 8, [PJRT_C128] = 16, [PJRT_F8E5M2] = 1, [PJRT_F8E4M3FN] = 1};
  return bytes[type];
}

size_t pjrt_span_bytes(const pjrt_span_t *span) { return (size_t)span->count * element_bytes(span->type); }

hal_status_t pjrt_place_result(int32_t site, pjrt_buffer_t *result, const pjrt_span_t *place, uint32_t *out_moved,
                               pjrt_failure_t *failure) {
  const pjrt_table_t *const table = pjrt_table_of(site);
  pjrt_Buffer_UnsafePointer_t pointer = {.buffer = result};
  if (PJRT_HAS(table, Buffer_UnsafePointer) &&
      !pjrt_failed(table, PJRT_CALL(table, Buffer_UnsafePointer, pointer), failure) &&
      pointer.buffer_pointer == (uintptr_t)place->data)
    return HAL_OK;
  ++*out_moved;
  pjrt_Buffer_ToHostBuffer_t copy = {.src = result, .dst = place->data, .dst_size = pjrt_span_bytes(place)};
  const hal_status_t status = pjrt_failed(table, PJRT_CALL(table, Buffer_ToHostBuffer, copy), failure);
  return status ? status : pjrt_await(site, copy.event, failure);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

hal_status_t pjrt_execute(const pjrt_run_t *run, const pjrt_buffers_t *buffers, pjrt_event_t **out_done,
                          pjrt_failure_t *failure) {
  const pjrt_table_t *const table = pjrt_table_of(run->site);
  pjrt_execute_options_t options = {.struct_size = sizeof options,
                                    .non_donatable_input_indices = buffers->kept,
                                    .num_non_donatable_input_indices = buffers->kept_count};
  pjrt_buffer_t *const *argument_list = buffers->arguments;
  pjrt_buffer_t **result_list = buffers->results;
  *out_done = NULL;
  pjrt_LoadedExecutable_Execute_t call = {.executable = run->program,
                                          .options = &options,
                                          .argument_lists = &argument_list,
                                          .num_devices = 1,
                                          .num_args = run->argument_count,
                                          .output_lists = &result_list,
                                          .device_complete_events = out_done,
                                          .execute_device = pjrt.devices[run->site]};
  return pjrt_failed(table, PJRT_CALL(table, LoadedExecutable_Execute, call), failure);
}

/* The buffers of a run in memory of this process, and of its results. */
static hal_status_t prepare(const pjrt_run_t *run, pjrt_buffer_t **arguments, pjrt_failure_t *failure) {
  hal_status_t status = HAL_OK;
  for (uint32_t i = 0; i < run->argument_count && !status; i++) {
    arguments[i] = run->arguments[i].constant;
    if (!arguments[i]) status = pjrt_views_take(run->views, &run->arguments[i], run->site, &arguments[i], failure);
  }
  return status;
}

/* Keeps the views that are still valid: those of arguments that were not donated, and those of results in their places.
 */
static hal_status_t finish(const pjrt_run_t *run, pjrt_buffer_t **arguments, pjrt_buffer_t **results,
                           uint32_t *out_moved, pjrt_failure_t *failure) {
  hal_status_t status = HAL_OK;
  for (uint32_t k = 0; k < run->result_count && !status; k++) {
    const uint32_t before = *out_moved, place = run->places[k];
    status = pjrt_place_result(run->site, results[k], &run->results[k], out_moved, failure);
    if (place != PJRT_NO_PLACE) {
      pjrt_buffer_destroy(run->site, arguments[place]);
      arguments[place] = NULL;
    }
    if (status || *out_moved != before) continue;
    pjrt_views_put(run->views, &run->results[k], run->site, results[k]);
    results[k] = NULL;
  }
  for (uint32_t i = 0; i < run->argument_count && !status; i++) {
    if (!arguments[i] || run->arguments[i].constant) continue;
    pjrt_views_put(run->views, &run->arguments[i], run->site, arguments[i]);
    arguments[i] = NULL;
  }
  return status;
}

static void release(const pjrt_run_t *run, pjrt_buffer_t **arguments, pjrt_buffer_t **results) {
  for (uint32_t i = 0; i < run->argument_count; i++)
    if (!run->arguments[i].constant) pjrt_buffer_destroy(run->site, arguments[i]);
  for (uint32_t k = 0; k < run->result_count; k++) pjrt_buffer_destroy(run->site, results[k]);
}

hal_status_t pjrt_run(const pjrt_run_t *run, uint32_t *out_moved, char *why) {
  pjrt_failure_t failure; /* not zeroed: each call writes it */
  pjrt_buffer_t *few[FEW_BUFFERS];
  const size_t count = (size_t)run->argument_count + run->result_count;
  pjrt_buffer_t **const arguments = count <= FEW_BUFFERS ? few : hal_host->mem_alloc(count * sizeof *few, sizeof *few);
  if (!arguments) {
    snprintf(why, PJRT_WHY, "no host memory for %zu buffers", count);
    return HAL_RESOURCE_EXHAUSTED;
  }
  memset(arguments, 0, count * sizeof *arguments);
  const pjrt_buffers_t buffers = {arguments, arguments + run->argument_count, NULL, 0};
  pjrt_event_t *done;
  *out_moved = 0;
  hal_status_t status = prepare(run, arguments, &failure);
  if (!status) status = pjrt_execute(run, &buffers, &done, &failure);
  if (!status) status = pjrt_await(run->site, done, &failure);
  if (!status) status = finish(run, arguments, buffers.results, out_moved, &failure);
  release(run, arguments, buffers.results);
  if (arguments != few) hal_host->mem_free(arguments);
  if (status) snprintf(why, PJRT_WHY, "%.240s", failure.text);
  return status;
}
