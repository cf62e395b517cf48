/* program.c: a collective as a program of replicas, in StableHLO. A group keeps the programs that it has used last. */
#include <stdio.h>
#include <string.h>

#include "../emit.h"
#include "comm.h"

/* Of memory of the host, the argument %b0 of an operator in place, or %b1 else, is where the result is written. */
int comm_in_place(uint32_t op) { return op == HAL_COMM_ALL_REDUCE || op == HAL_COMM_BROADCAST; }

int64_t comm_argument_count(const comm_group_t *group, const comm_call_t *call) {
  const int all = call->op == HAL_COMM_REDUCE_SCATTER || call->op == HAL_COMM_ALL_TO_ALL;
  return all ? call->count * group->size : call->count;
}

int64_t comm_result_count(const comm_group_t *group, const comm_call_t *call) {
  const int all = call->op == HAL_COMM_ALL_GATHER || call->op == HAL_COMM_ALL_TO_ALL;
  return all ? call->count * group->size : call->count;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void put_groups(emit_t *e, const comm_group_t *group) {
  emit_put(e, "replica_groups = dense<[[");
  for (int32_t rank = 0; rank < group->size; rank++) emit_put(e, rank ? ", %d" : "%d", (int)rank);
  emit_put(e, "]]> : tensor<1x%dxi64>", (int)group->size);
}

/* Writes the operation that combines elements of two ranks. */
static void put_region(emit_t *e, uint32_t reduce, int32_t type) {
  static const char *const names[] = {[HAL_REDUCE_SUM] = "add",
                                      [HAL_REDUCE_PROD] = "multiply",
                                      [HAL_REDUCE_MIN] = "minimum",
                                      [HAL_REDUCE_MAX] = "maximum",
                                      [HAL_REDUCE_AVG] = "add"};
  const char *const element = emit_element(type);
  emit_put(e, "({ ^bb0(%%a: tensor<%s>, %%b: tensor<%s>): %%c = stablehlo.%s %%a, %%b : tensor<%s>\n", element, element,
           names[reduce], element);
  emit_put(e, "      stablehlo.return %%c : tensor<%s> })", element);
}

/* A reduction is computed in float32 at least, and rounded once. */
static value_t put_reduction(emit_t *e, const comm_group_t *group, uint32_t reduce, value_t x, int scatters) {
  const int64_t count = scatters ? x.sizes[0] / group->size : x.sizes[0];
  const value_t wide = emit_convert(e, x, emit_compute_type(x.type)), reduced = emit_fresh(e, wide.type, 1, &count);
  emit_put(e, "    %s = \"stablehlo.%s\"(%s) ", emit_name(reduced).s, scatters ? "reduce_scatter" : "all_reduce",
           emit_name(wide).s);
  put_region(e, reduce, wide.type);
  emit_put(e, scatters ? " {scatter_dimension = 0 : i64, " : " {");
  put_groups(e, group);
  emit_put(e, "} : (%s) -> %s\n", emit_type(wide).s, emit_type(reduced).s);
  if (reduce != HAL_REDUCE_AVG) return emit_convert(e, reduced, x.type);
  const value_t ranks = emit_broadcast(e, emit_constant(e, wide.type, group->size), NULL, 1, &count);
  return emit_convert(e, emit_binary(e, "stablehlo.divide", reduced, ranks), x.type);
}

/* The sum of what the root sends and the zeros of the other ranks. The elements are integers. */
static value_t put_broadcast(emit_t *e, const comm_group_t *group, const comm_call_t *call, value_t x) {
  const value_t rank = emit_fresh(e, PJRT_U32, 0, NULL);
  emit_put(e, "    %s = stablehlo.replica_id : tensor<ui32>\n", emit_name(rank).s);
  const value_t is_root = emit_compare(e, "EQ", rank, emit_constant(e, PJRT_U32, call->peer)),
                zero = emit_broadcast(e, emit_constant(e, x.type, 0), NULL, 1, x.sizes);
  return put_reduction(e, group, HAL_REDUCE_SUM, emit_select(e, emit_broadcast(e, is_root, NULL, 1, x.sizes), x, zero),
                       0);
}

static value_t put_exchange(emit_t *e, const comm_group_t *group, const comm_call_t *call, value_t x) {
  const int64_t count = comm_result_count(group, call);
  const value_t result = emit_fresh(e, x.type, 1, &count);
  if (call->op == HAL_COMM_ALL_GATHER)
    emit_put(e, "    %s = \"stablehlo.all_gather\"(%s) {all_gather_dim = 0 : i64, ", emit_name(result).s,
             emit_name(x).s);
  else
    emit_put(e,
             "    %s = \"stablehlo.all_to_all\"(%s) {split_dimension = 0 : i64, concat_dimension = 0 : i64, "
             "split_count = %d : i64, ",
             emit_name(result).s, emit_name(x).s, (int)group->size);
  put_groups(e, group);
  emit_put(e, "} : (%s) -> %s\n", emit_type(x).s, emit_type(result).s);
  return result;
}

static value_t put_body(emit_t *e, const comm_group_t *group, const comm_call_t *call, value_t x) {
  if (call->op == HAL_COMM_BROADCAST) return put_broadcast(e, group, call, x);
  if (call->op == HAL_COMM_ALL_REDUCE || call->op == HAL_COMM_REDUCE_SCATTER)
    return put_reduction(e, group, call->reduce, x, call->op == HAL_COMM_REDUCE_SCATTER);
  return put_exchange(e, group, call, x);
}

static void put_program(emit_t *e, const comm_group_t *group, const comm_call_t *call) {
  static const char *const donated = "{tf.aliasing_output = 0 : i32}";
  const int in_place = comm_in_place(call->op);
  const value_t x = {.id = -1, .type = call->type, .rank = 1, .sizes = {comm_argument_count(group, call)}},
                y = {.id = -2, .type = call->type, .rank = 1, .sizes = {comm_result_count(group, call)}};
  emit_put(e, "module attributes {mhlo.num_replicas = %d : i32} {\n  func.func @main(%%b0: %s %s", (int)group->size,
           emit_type(x).s, in_place && !pjrt.opaque ? donated : "");
  if (!in_place && !pjrt.opaque) emit_put(e, ", %%b1: %s %s", emit_type(y).s, donated);
  emit_put(e, ") -> %s {\n", emit_type(y).s);
  const value_t result = put_body(e, group, call, x);
  emit_put(e, "    return %s : %s\n  }\n}\n", emit_name(result).s, emit_type(result).s);
}

/* ---- compilation ------------------------------------------------------------------------------------------------- */

typedef struct options_s {
  unsigned char bytes[96 + 12 * PJRT_MAX_DEVICES];
  size_t size;
} options_t;

static void put_varint(options_t *to, uint64_t number) {
  for (; number >= 128; number >>= 7) to->bytes[to->size++] = (unsigned char)(number | 128);
  to->bytes[to->size++] = (unsigned char)number;
}

static void put_part(options_t *to, int tag, const options_t *part) {
  to->bytes[to->size++] = (unsigned char)tag;
  put_varint(to, part->size);
  memcpy(to->bytes + to->size, part->bytes, part->size);
  to->size += part->size;
}

static hal_status_t read_device_id(int32_t device, uint64_t *out_id, char *why) {
  const pjrt_table_t *const table = pjrt_table_of(device);
  pjrt_failure_t failure;
  pjrt_Device_GetDescription_t description = {.device = pjrt.devices[device]};
  pjrt_DeviceDescription_Id_t id = {.id = 0};
  if (!PJRT_HAS(table, Device_GetDescription) || !PJRT_HAS(table, DeviceDescription_Id)) {
    snprintf(why, PJRT_WHY, "the platform has no numbers of devices");
    return HAL_UNIMPLEMENTED;
  }
  hal_status_t status = pjrt_failed(table, PJRT_CALL(table, Device_GetDescription, description), &failure);
  id.device_description = description.device_description;
  if (!status) status = pjrt_failed(table, PJRT_CALL(table, DeviceDescription_Id, id), &failure);
  if (status) snprintf(why, PJRT_WHY, "the platform has no number of device %d: %.160s", (int)device, failure.text);
  *out_id = (uint64_t)id.id;
  return status;
}

/* CompileOptionsProto: env_option_overrides (7): the CPU's replicas wait 30 minutes for each other, not 40 seconds, in
 * which a busy machine may not have run all of them. */
static const char patience[] =
    "\x3a\x38\x0a\x31"
    "xla_cpu_collective_call_terminate_timeout_seconds\x12\x03\x18\x88\x0e";

/* CompileOptionsProto: executable_build_options (3) with num_replicas (4), num_partitions (5) = 1, and
 * device_assignment (9): replica_count (1), computation_count (2) = 1, computation_devices (3) of the computation:
 * replica_device_ids (1). */
static hal_status_t make_options(const comm_group_t *group, int patient, options_t *out_options, char *why) {
  options_t ids = {.size = 0}, devices = {.size = 0}, assignment = {.size = 0}, build = {.size = 0};
  uint64_t id = 0;
  for (int32_t rank = 0; rank < group->size; rank++) {
    const hal_status_t status = read_device_id(group->devices[rank], &id, why);
    if (status) return status;
    put_varint(&ids, id);
  }
  put_part(&devices, 0x0a, &ids);
  put_varint(&assignment, 0x08), put_varint(&assignment, (uint64_t)group->size);
  put_varint(&assignment, 0x10), put_varint(&assignment, 1);
  put_part(&assignment, 0x1a, &devices);
  put_varint(&build, 0x20), put_varint(&build, (uint64_t)group->size);
  put_varint(&build, 0x28), put_varint(&build, 1);
  put_part(&build, 0x4a, &assignment);
  out_options->size = 0;
  put_part(out_options, 0x1a, &build);
  if (!patient) return HAL_OK;
  memcpy(out_options->bytes + out_options->size, patience, sizeof patience - 1);
  out_options->size += sizeof patience - 1;
  return HAL_OK;
}

/* The devices are a part of the options, so the text names them: it identifies a stored program. */
static void put_devices(emit_t *e, const comm_group_t *group) {
  char why[PJRT_WHY];
  uint64_t id = 0;
  emit_put(e, "// devices");
  for (int32_t rank = 0; rank < group->size; rank++)
    if (!read_device_id(group->devices[rank], &id, why)) emit_put(e, " %llu", (unsigned long long)id);
  emit_put(e, "\n");
}

static hal_status_t compile_text(const comm_group_t *group, const emit_text_t *text, int patient,
                                 pjrt_loaded_t **out_loaded, char *why) {
  options_t options;
  pjrt_failure_t failure;
  hal_status_t status = make_options(group, patient, &options, why);
  if (status) return status;
  status = pjrt_compile_for(text->data, text->size, (const char *)options.bytes, options.size, group->devices[0],
                            out_loaded, &failure);
  if (status) snprintf(why, PJRT_WHY, "the platform cannot compile it: %.200s", failure.text);
  return status;
}

static hal_status_t compile(const comm_group_t *group, const comm_call_t *call, pjrt_loaded_t **out_loaded, char *why) {
  emit_t e = {.status = HAL_OK};
  put_devices(&e, group);
  put_program(&e, group, call);
  if (e.status) snprintf(why, PJRT_WHY, "no host memory for the text of a program");
  /* Other platforms, and older ones of the CPU, refuse the option. */
  hal_status_t status = e.status ? e.status : HAL_UNIMPLEMENTED;
  pjrt_loaded_t *const stored =
      e.status ? NULL : pjrt_cache_load(e.text.data, e.text.size, PJRT_FULL, group->devices[0]);
  if (stored) *out_loaded = stored, status = HAL_OK;
  if (!e.status && status && !pjrt_platform_of(group->devices[0])->plain_options)
    status = compile_text(group, &e.text, 1, out_loaded, why);
  if (!e.status && status) status = compile_text(group, &e.text, 0, out_loaded, why);
  if (!status && !stored) pjrt_cache_store(e.text.data, e.text.size, PJRT_FULL, group->devices[0], *out_loaded);
  hal_host->mem_free(e.text.data);
  return status;
}

/* ---- the programs of a group ------------------------------------------------------------------------------------- */

static int serves(const comm_program_t *program, const comm_call_t *call) {
  return program->loaded && program->op == call->op && program->reduce == call->reduce && program->type == call->type &&
         program->peer == call->peer && program->count == call->count;
}

/* The new program takes the place of the one that has not been used for longest. */
hal_status_t comm_program(comm_group_t *group, const comm_call_t *call, pjrt_loaded_t **out_program, char *why) {
  comm_program_t *oldest = &group->programs[0];
  for (int i = 0; i < COMM_PROGRAMS; i++) {
    comm_program_t *const program = &group->programs[i];
    if (serves(program, call)) {
      program->used = group->round + 1;
      *out_program = program->loaded;
      return HAL_OK;
    }
    if (program->used < oldest->used) oldest = program;
  }
  pjrt_loaded_t *loaded = NULL;
  const hal_status_t status = compile(group, call, &loaded, why);
  if (status) return status;
  pjrt_program_release(group->devices[0], oldest->loaded);
  *oldest = (comm_program_t){call->op, call->reduce, call->type, call->peer, call->count, group->round + 1, loaded};
  *out_program = loaded;
  return HAL_OK;
}

void comm_programs_release(comm_group_t *group) {
  for (int i = 0; i < COMM_PROGRAMS; i++) pjrt_program_release(group->devices[0], group->programs[i].loaded);
}
