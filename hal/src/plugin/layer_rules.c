/* layer_rules.c: the rules of single ops, beyond those for all ops; a table over the slots. The rules of virtual
 * memory, graphs and exports are in layer_rules_graph.c, those of memory in layer_rules_memory.c, those of collectives
 * in layer_rules_comm.c. */
#include <stdio.h>
#include <string.h>

#include "base/log_internal.h"
#include "base/status_internal.h"
#include "hal/log.h"
#include "plugin/call.h"
#include "plugin/layer_rules.h"

/* ---- plugin and devices ---- */

static hal_status_t after_count(hal_layer_call_t *call, hal_status_t status) {
  hal_validate_t *const validate = state_of(call);
  const int32_t count = WRITTEN(call, 0, int32_t);
  if (validate->device_count < 0) validate->device_count = count;
  if (count == validate->device_count) return status;
  return hal_validate_fault(call->plugin, call->slot,
                            "the plugin counted %d devices before and %d now; the count never changes in a process, so "
                            "return the first result",
                            validate->device_count, count);
}

/* Counts again, because a driver that is initialized often reports other numbers. */
static hal_status_t count_again(const hal_layer_call_t *call, const char *when) {
  const hal_validate_t *const validate = state_of(call);
  int32_t count = -1;
  if (validate->device_count < 0) return HAL_OK;
  if (call->plugin->api.device_count(&count) == HAL_OK && count == validate->device_count) return HAL_OK;
  return hal_validate_fault(call->plugin, HAL_SLOT_device_count,
                            "the plugin counted %d devices at first and %d %s; the count never changes in a process",
                            validate->device_count, count, when);
}

static hal_status_t after_init(hal_layer_call_t *call, hal_status_t status) {
  state_of(call)->state = HAL_VALIDATE_READY;
  const hal_status_t counted = count_again(call, "after init");
  return counted ? counted : status;
}

static hal_status_t before_shutdown(hal_layer_call_t *call) {
  count_again(call, "before shutdown"); /* logged; the shutdown continues */
  return HAL_OK;
}

typedef struct leak_s {
  hal_live_kind_t kind;
  const hal_live_t *first;
} leak_t;

static void find_first(hal_lives_t *lives, hal_live_t *live, void *data) {
  leak_t *const leak = data;
  (void)lives;
  if (live->kind == leak->kind && (!leak->first || live->number < leak->first->number)) leak->first = live;
}

/* Logs the objects that are still alive: one line per kind. */
static hal_status_t after_shutdown(hal_layer_call_t *call, hal_status_t status) {
  hal_validate_t *const validate = state_of(call);
  for (int kind = 0; kind < HAL_LIVE_KIND_COUNT; kind++) {
    leak_t leak = {.kind = (hal_live_kind_t)kind};
    if (kind == HAL_LIVE_KERNEL || !validate->lives.counts[kind]) continue; /* kernels end with their modules */
    hal_live_each(&validate->lives, find_first, &leak);
    hal_validate_misuse(call,
                        "%zu of the kind '%s' were not released by %s before shutdown; the first is %p of device "
                        "%d, object number %llu of the plugin",
                        validate->lives.counts[kind], hal_live_text(leak.kind), hal_live_end_op(leak.kind),
                        (void *)leak.first->address, leak.first->device, (unsigned long long)leak.first->number);
  }
  validate->state = HAL_VALIDATE_SHUT;
  return status;
}

static hal_status_t after_device_info(hal_layer_call_t *call, hal_status_t status) {
  hal_validate_t *const validate = state_of(call);
  const hal_device_info_t *const info = &WRITTEN(call, 0, hal_device_info_t);
  const int32_t device = (int32_t)value_of(call, "device");
  if (call->outs[0].size < HAL_STRUCT_SIZE(hal_device_info_t, base_alignment)) return status;
  if (!has_end(info->name, sizeof info->name) || !has_end(info->dialects, sizeof info->dialects))
    return hal_validate_fault(call->plugin, call->slot, "name or dialects has no NUL within its %zu bytes; cut it",
                              sizeof info->name);
  if (info->base_alignment & (info->base_alignment - 1))
    return hal_validate_fault(call->plugin, call->slot, "base_alignment is %u, which is not a power of two",
                              info->base_alignment);
  if (call->outs[0].size >= HAL_STRUCT_SIZE(hal_device_info_t, architecture) &&
      !has_end(info->architecture, sizeof info->architecture))
    return hal_validate_fault(call->plugin, call->slot, "architecture has no NUL within its %zu bytes; cut it",
                              sizeof info->architecture);
  if (call->outs[0].size >= HAL_STRUCT_SIZE(hal_device_info_t, firmware_version) &&
      (!has_end(info->driver_version, sizeof info->driver_version) ||
       !has_end(info->firmware_version, sizeof info->firmware_version)))
    return hal_validate_fault(call->plugin, call->slot,
                              "driver_version or firmware_version has no NUL within its %zu bytes; cut it",
                              sizeof info->driver_version);
  if (call->outs[0].size >= HAL_STRUCT_SIZE(hal_device_info_t, max_binding) &&
      (info->binding_alignment & (info->binding_alignment - 1) ||
       (info->base_alignment && info->binding_alignment > info->base_alignment)))
    return hal_validate_fault(call->plugin, call->slot,
                              "binding_alignment is %u; return a power of two, at most base_alignment, %u",
                              info->binding_alignment, info->base_alignment);
  if (device >= HAL_MAX_DEVICES) return status;
  if (call->outs[0].size >= HAL_STRUCT_SIZE(hal_device_info_t, max_binding)) {
    memcpy(validate->max_grid[device], info->max_grid, sizeof info->max_grid);
    validate->binding_alignment[device] = info->binding_alignment;
  }
  validate->device_flags[device] = info->flags;
  validate->alignment[device] = info->base_alignment;
  return status;
}

static hal_status_t after_peer_query(hal_layer_call_t *call, hal_status_t status) {
  const int32_t accessible = WRITTEN(call, 0, int32_t);
  if (accessible == 0 || accessible == 1) return status;
  return hal_validate_fault(call->plugin, call->slot, "the plugin returned %d; return 1 or 0", accessible);
}

static hal_status_t after_peer_enable(hal_layer_call_t *call, hal_status_t status) {
  const int32_t device = (int32_t)value_of(call, "device"), peer = (int32_t)value_of(call, "peer");
  if (device < HAL_MAX_DEVICES && peer < HAL_MAX_DEVICES)
    state_of(call)->peers[device] |= UINT64_C(1) << peer; /* HAL_MAX_DEVICES is 64 */
  return status;
}
_Static_assert(HAL_MAX_DEVICES <= 64, "one bit per peer");

/* Finds objects of a device that are still alive. */
typedef struct left_s {
  int32_t device;
  const hal_live_t *first;
} left_t;

static void find_left(hal_lives_t *lives, hal_live_t *live, void *data) {
  left_t *const left = data;
  (void)lives;
  if (live->device == left->device && live->kind != HAL_LIVE_KERNEL && /* kernels end with their modules */
      (!left->first || live->number < left->first->number))
    left->first = live;
}

static hal_status_t before_reset(hal_layer_call_t *call) {
  left_t left = {.device = (int32_t)value_of(call, "device")};
  hal_live_each(&state_of(call)->lives, find_left, &left);
  if (!left.first) return HAL_OK;
  return hal_validate_misuse(call, "the %s %p of device %d is still alive; end it by %s before",
                             hal_live_text(left.first->kind), (void *)left.first->address, left.device,
                             hal_live_end_op(left.first->kind));
}

static hal_status_t after_reset(hal_layer_call_t *call, hal_status_t status) {
  const int32_t device = (int32_t)value_of(call, "device");
  if (device < HAL_MAX_DEVICES) state_of(call)->peers[device] = 0;
  return status;
}

/* The record kind for each kind of object; a device has none. */
static const struct {
  int known;
  hal_live_kind_t kind;
} objects[] = {[HAL_OBJECT_DEVICE] = {0, HAL_LIVE_MEMORY}, [HAL_OBJECT_STREAM] = {1, HAL_LIVE_STREAM},
               [HAL_OBJECT_EVENT] = {1, HAL_LIVE_EVENT},   [HAL_OBJECT_MODULE] = {1, HAL_LIVE_MODULE},
               [HAL_OBJECT_KERNEL] = {1, HAL_LIVE_KERNEL}, [HAL_OBJECT_GRAPH_EXEC] = {1, HAL_LIVE_GRAPH_EXEC},
               [HAL_OBJECT_COMM] = {1, HAL_LIVE_COMM},     [HAL_OBJECT_SEMAPHORE] = {1, HAL_LIVE_SEMAPHORE},
               [HAL_OBJECT_MEMORY] = {1, HAL_LIVE_MEMORY}};

static hal_status_t before_name(hal_layer_call_t *call) {
  const uint32_t kind = (uint32_t)value_of(call, "kind");
  const uintptr_t object = (uintptr_t)value_of(call, "object");
  const int32_t device = (int32_t)value_of(call, "device");
  if (kind >= sizeof objects / sizeof *objects)
    return hal_validate_misuse(call, "kind is %u; pass one of HAL_OBJECT_*, 0 to %d", kind, HAL_OBJECT_MEMORY);
  if (!objects[kind].known) {
    if (!object) return HAL_OK;
    return hal_validate_misuse(call, "object is %p for a device, which `device` identifies; pass NULL", (void *)object);
  }
  if (hal_live_find_on(&state_of(call)->lives, objects[kind].kind, object, device)) return HAL_OK;
  return hal_validate_misuse(call, "object %p is not a live %s of device %d; pass one that the plugin returned",
                             (void *)object, hal_live_text(objects[kind].kind), device);
}

/* ---- streams and events ---- */

static hal_status_t before_host_call(hal_layer_call_t *call) {
  return value_of(call, "fn") ? HAL_OK : hal_validate_misuse(call, "fn is NULL; pass a function");
}

static hal_status_t before_stream_create(hal_layer_call_t *call) {
  const hal_stream_desc_t *const desc = (const hal_stream_desc_t *)value_of(call, "desc");
  if (desc->flags & ~HAL_STREAM_QUEUE)
    return hal_validate_misuse(call, "desc->flags is 0x%x; pass flags of plugin.h (HAL_STREAM_*)", desc->flags);
  if (desc->engine <= HAL_ENGINE_COPY) return HAL_OK;
  return hal_validate_misuse(call, "desc->engine is %u; pass one of HAL_ENGINE_*", desc->engine);
}

static hal_status_t before_stream_destroy(hal_layer_call_t *call) {
  const hal_live_t *const stream = stream_of(call);
  if (!stream || !stream->flags) return HAL_OK;
  return hal_validate_misuse(call, "the stream is being captured; call capture_end first");
}

static hal_status_t after_record(hal_layer_call_t *call, hal_status_t status) {
  hal_validate_t *const validate = state_of(call);
  hal_live_t *const event = hal_live_find(&validate->lives, HAL_LIVE_EVENT, (uintptr_t)value_of(call, "event"));
  if (!event) return status; /* destroyed by another thread meanwhile */
  event->owner = (uintptr_t)value_of(call, "stream");
  event->recorded = ++validate->records;
  return status;
}

static hal_status_t after_elapsed(hal_layer_call_t *call, hal_status_t status) {
  hal_lives_t *const lives = &state_of(call)->lives;
  const hal_live_t *const start = hal_live_find(lives, HAL_LIVE_EVENT, (uintptr_t)value_of(call, "start"));
  const hal_live_t *const end = hal_live_find(lives, HAL_LIVE_EVENT, (uintptr_t)value_of(call, "end"));
  const int64_t time = WRITTEN(call, 0, int64_t);
  if (!start || !end) return status;
  if (!(start->flags & end->flags & HAL_EVENT_TIMING) || !start->recorded || !end->recorded)
    return hal_validate_fault(call->plugin, call->slot,
                              "the plugin returned a time for an event that was %s; return FAILED_PRECONDITION",
                              start->recorded && end->recorded ? "made without HAL_EVENT_TIMING" : "never recorded");
  if (time >= 0 || start->owner != end->owner || start->recorded > end->recorded) return status;
  return hal_validate_fault(
      call->plugin, call->slot,
      "the plugin returned %lld ns, although one stream recorded start before end; take both times "
      "from one clock that never decreases",
      (long long)time);
}

/* ---- modules and kernels ---- */

static hal_status_t before_module(hal_layer_call_t *call) {
  const hal_module_desc_t *const desc = (const hal_module_desc_t *)value_of(call, "desc");
  if (!desc->dialect || !desc->options)
    return hal_validate_misuse(call, "desc->%s is NULL; pass a string, which may be empty",
                               desc->dialect ? "options" : "dialect");
  if (desc->data || !desc->size) return HAL_OK;
  return hal_validate_misuse(call, "desc->data is NULL for %zu bytes; pass the module's data", desc->size);
}

/* Returns the device of a launch: that of its stream. Without a stream it is the kernel's; if one kernel is on several
 * devices, it is the device of its memory arguments. */
static int32_t launch_device(const hal_layer_call_t *call, const void *address) {
  hal_lives_t *const lives = &state_of(call)->lives;
  const uintptr_t kernel = (uintptr_t)value_of(call, "kernel");
  const hal_live_t *const stream = stream_of(call), *const range = hal_live_find_range(lives, (uintptr_t)address);
  if (stream) return stream->device;
  if (range && hal_live_find_on(lives, HAL_LIVE_KERNEL, kernel, range->device)) return range->device;
  return hal_live_find(lives, HAL_LIVE_KERNEL, kernel)->device;
}

static hal_status_t check_launch_argument(const hal_layer_call_t *call, uint32_t number) {
  const hal_arg_t *const arg = &((const hal_launch_t *)value_of(call, "launch"))->args[number];
  const int is_local = arg->kind == HAL_ARG_LOCAL;
  if (arg->kind > HAL_ARG_LOCAL || !arg->size || (arg->value == NULL) != is_local ||
      (arg->kind == HAL_ARG_POINTER && arg->size != sizeof(void *)))
    return hal_validate_misuse(call,
                               "argument %u of the launch has kind %u, %u bytes at %p; a value has its address and "
                               "size, a pointer the address of a device address and %zu bytes, local memory no address",
                               number, arg->kind, arg->size, arg->value, sizeof(void *));
  if (arg->kind != HAL_ARG_POINTER) return HAL_OK;
  const void *address;
  char what[48];
  memcpy(&address, arg->value, sizeof address);
  snprintf(what, sizeof what, "argument %u of the launch", number);
  if (!address) return HAL_OK; /* an omitted operand */
  const int32_t device = launch_device(call, address);
  const uint32_t alignment = device < HAL_MAX_DEVICES ? state_of(call)->binding_alignment[device] : 0;
  if (alignment && (uintptr_t)address % alignment)
    return hal_validate_misuse(call,
                               "argument %u of the launch is %p, which is not a multiple of binding_alignment, %u",
                               number, address, alignment);
  return hal_validate_range(call, what, address, 1, device);
}

/* Checks the geometry against what the plugin reported. */
static hal_status_t check_launch_grid(const hal_layer_call_t *call, const hal_launch_t *launch) {
  const int32_t device = launch_device(call, NULL);
  for (int i = 0; i < 3 && device >= 0 && device < HAL_MAX_DEVICES; i++) {
    const uint32_t most = state_of(call)->max_grid[device][i];
    if (most && launch->grid[i] > most)
      return hal_validate_misuse(call, "grid is %u x %u x %u, but max_grid in dimension %d is %u", launch->grid[0],
                                 launch->grid[1], launch->grid[2], i, most);
  }
  return HAL_OK;
}

static hal_status_t before_launch(hal_layer_call_t *call) {
  const hal_launch_t *const launch = (const hal_launch_t *)value_of(call, "launch");
  for (int i = 0; i < 3; i++)
    if (!launch->grid[i] || !launch->block[i])
      return hal_validate_misuse(call, "grid is %u x %u x %u and block %u x %u x %u; each number is at least 1",
                                 launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0], launch->block[1],
                                 launch->block[2]);
  HAL_RETURN_IF_ERROR(check_launch_grid(call, launch));
  if (launch->arg_count && !launch->args)
    return hal_validate_misuse(call, "argument_count is %u and args is NULL; pass args, or a count of 0",
                               launch->arg_count);
  for (uint32_t i = 0; i < launch->arg_count; i++) HAL_RETURN_IF_ERROR(check_launch_argument(call, i));
  if (!HAL_HAS_FIELD(launch, attribute_count) || !launch->attribute_count || launch->attributes) return HAL_OK;
  return hal_validate_misuse(call, "attribute_count is %u and attributes is NULL; pass attributes, or a count of 0",
                             launch->attribute_count);
}

static hal_status_t before_kernel_info(hal_layer_call_t *call) {
  if (value_of(call, "block_threads")) return HAL_OK;
  return hal_validate_misuse(call, "block_threads is 0; a block has at least one thread");
}

static hal_status_t after_stream_error(hal_layer_call_t *call, hal_status_t status) {
  const hal_stream_error_t *const error = &WRITTEN(call, 0, hal_stream_error_t);
  if (call->outs[0].size < HAL_STRUCT_SIZE(hal_stream_error_t, message)) return status;
  if (!has_end(error->op, sizeof error->op) || !has_end(error->kernel, sizeof error->kernel) ||
      !has_end(error->message, sizeof error->message))
    return hal_validate_fault(call->plugin, call->slot, "op, kernel or message has no NUL within its bytes; cut it");
  if (error->status) return status;
  return hal_validate_fault(call->plugin, call->slot, "the plugin described a failure with status OK; return its code");
}

/* ---- the table ---- */

#define MAKES(kind) .makes = HAL_LIVE_##kind + 1
#define ENDS(kind) .ends = HAL_LIVE_##kind + 1

static hal_status_t after_op_find(hal_layer_call_t *call, hal_status_t status) {
  const hal_op_own_t *const own = call->outs[0].original;
  if (own->fn) return status;
  return hal_validate_fault(call->plugin, call->slot, "the plugin returned OK without a function");
}

static hal_status_t after_program_compiler(hal_layer_call_t *call, hal_status_t status) {
  const hal_compiler_t *const own = call->outs[0].original;
  if (own->name && own->accepts && own->compile && own->execute && own->destroy) return status;
  return hal_validate_fault(call->plugin, call->slot,
                            "the plugin returned OK without name, accepts, compile, execute or destroy");
}

static int is_percent(uint32_t sensor) {
#define UNIT(number, upper, name, unit, what) [number] = unit,
  static const char *const units[] = {HAL_SENSORS(UNIT)};
#undef UNIT
  return sensor < sizeof units / sizeof *units && units[sensor] && strcmp(units[sensor], "percent") == 0;
}

static hal_status_t after_sensor(hal_layer_call_t *call, hal_status_t status) {
  const uint32_t sensor = (uint32_t)value_of(call, "sensor");
  const int64_t value = WRITTEN(call, 0, int64_t);
  if (sensor == HAL_SENSOR_TEMPERATURE || (value >= 0 && (value <= 100 || !is_percent(sensor)))) return status;
  return hal_validate_fault(call->plugin, call->slot, "the plugin returned %lld for sensor %u; expected %s",
                            (long long)value, (unsigned)sensor, is_percent(sensor) ? "0 to 100 percent" : "0 or more");
}

const hal_rule_t hal_rules[HAL_SLOT_COUNT] = {
    [HAL_SLOT_init] = {.after = after_init},
    [HAL_SLOT_shutdown] = {.before = before_shutdown, .after = after_shutdown},
    [HAL_SLOT_device_count] = {.after = after_count},
    [HAL_SLOT_device_info] = {.after = after_device_info},
    [HAL_SLOT_device_peer_query] = {.after = after_peer_query},
    [HAL_SLOT_device_peer_enable] = {.after = after_peer_enable},
    [HAL_SLOT_device_reset] = {.before = before_reset, .after = after_reset},
    [HAL_SLOT_object_name_set] = {.before = before_name},
    [HAL_SLOT_memory_alloc] = {MAKES(MEMORY), .before = hal_rule_before_alloc, .after = hal_rule_after_alloc},
    [HAL_SLOT_memory_free] = {ENDS(MEMORY)},
    [HAL_SLOT_memory_alloc_async] = {MAKES(MEMORY), .before = hal_rule_before_alloc, .after = hal_rule_after_alloc},
    [HAL_SLOT_memory_free_async] = {ENDS(MEMORY)},
    [HAL_SLOT_memory_copy] = {.before = hal_rule_before_copy},
    [HAL_SLOT_memory_copy_2d] = {.before = hal_rule_before_copy_2d},
    [HAL_SLOT_memory_copy_batch] = {.before = hal_rule_before_copy_batch},
    [HAL_SLOT_memory_fill] = {.before = hal_rule_before_fill},
    [HAL_SLOT_memory_prefetch] = {.before = hal_rule_before_prefetch},
    [HAL_SLOT_memory_advise] = {.before = hal_rule_before_advise},
    [HAL_SLOT_memory_info] = {.after = hal_rule_after_memory_info},
    [HAL_SLOT_host_alloc] = {MAKES(HOST), .before = hal_rule_before_alloc, .after = hal_rule_after_host_alloc},
    [HAL_SLOT_host_free] = {ENDS(HOST)},
    [HAL_SLOT_host_register] = {MAKES(REGISTERED), .before = hal_rule_before_alloc},
    [HAL_SLOT_host_unregister] = {ENDS(REGISTERED)},
    [HAL_SLOT_host_device_pointer] = {.after = hal_rule_after_host_pointer},
    [HAL_SLOT_ipc_export] = {.before = hal_rule_before_export, .after = hal_rule_after_export},
    [HAL_SLOT_ipc_open] = {MAKES(IMPORTED), .before = hal_rule_before_open},
    [HAL_SLOT_ipc_close] = {ENDS(IMPORTED)},
    [HAL_SLOT_virtual_reserve] = {MAKES(RESERVED), .before = hal_rule_before_alloc},
    [HAL_SLOT_virtual_unreserve] = {ENDS(RESERVED), .before = hal_rule_before_unreserve},
    [HAL_SLOT_virtual_create] = {MAKES(PHYSICAL), .before = hal_rule_before_alloc},
    [HAL_SLOT_virtual_access] = {.before = hal_rule_before_access},
    [HAL_SLOT_virtual_export] = {.before = hal_rule_before_share, .after = hal_rule_after_share},
    [HAL_SLOT_virtual_import] = {MAKES(PHYSICAL)},
    [HAL_SLOT_virtual_release] = {ENDS(PHYSICAL), .before = hal_rule_before_release},
    [HAL_SLOT_virtual_map] = {MAKES(MAPPED), .before = hal_rule_before_map, .after = hal_rule_after_map},
    [HAL_SLOT_virtual_unmap] = {ENDS(MAPPED), .after = hal_rule_after_unmap},
    [HAL_SLOT_stream_create] = {MAKES(STREAM), .before = before_stream_create},
    [HAL_SLOT_stream_destroy] = {ENDS(STREAM), .before = before_stream_destroy},
    [HAL_SLOT_stream_error] = {.after = after_stream_error},
    [HAL_SLOT_stream_host_call] = {.before = before_host_call},
    [HAL_SLOT_event_create] = {MAKES(EVENT), .flags = HAL_EVENT_TIMING | HAL_EVENT_BLOCKING | HAL_EVENT_INTERPROCESS},
    [HAL_SLOT_event_destroy] = {ENDS(EVENT)},
    [HAL_SLOT_event_record] = {.after = after_record},
    [HAL_SLOT_event_elapsed] = {.after = after_elapsed},
    [HAL_SLOT_event_ipc_export] = {.before = hal_rule_before_export, .after = hal_rule_after_export},
    [HAL_SLOT_event_ipc_open] = {MAKES(EVENT), .before = hal_rule_before_open},
    [HAL_SLOT_module_load] = {MAKES(MODULE), .before = before_module},
    [HAL_SLOT_module_unload] = {ENDS(MODULE)},
    [HAL_SLOT_kernel_get] = {MAKES(KERNEL)},
    [HAL_SLOT_kernel_launch] = {.before = before_launch},
    [HAL_SLOT_kernel_info] = {.before = before_kernel_info},
    [HAL_SLOT_module_export] = {.before = hal_rule_before_export, .after = hal_rule_after_export},
    [HAL_SLOT_op_find] = {.after = after_op_find},
    [HAL_SLOT_program_compiler] = {.after = after_program_compiler},
    [HAL_SLOT_device_sensor] = {.after = after_sensor},
    [HAL_SLOT_extensions] = {.after = hal_rule_after_extensions},
    [HAL_SLOT_random_fill] = {.before = hal_rule_before_random},
    [HAL_SLOT_capture_begin] = {.before = hal_rule_before_capture_begin, .after = hal_rule_after_capture_begin},
    [HAL_SLOT_capture_end] = {MAKES(GRAPH), .before = hal_rule_before_capture_end, .after = hal_rule_after_capture_end,
                              .failed = hal_rule_failed_capture_end},
    [HAL_SLOT_graph_destroy] = {ENDS(GRAPH)},
    [HAL_SLOT_capture_status] = {.after = hal_rule_after_capture_status},
    [HAL_SLOT_graph_instantiate] = {MAKES(GRAPH_EXEC), .after = hal_rule_after_instantiate},
    [HAL_SLOT_graph_exec_destroy] = {ENDS(GRAPH_EXEC)},
    [HAL_SLOT_comm_info] = {.after = hal_rule_after_comm_info},
    [HAL_SLOT_comm_unique_id] = {.before = hal_rule_before_unique_id, .after = hal_rule_after_unique_id},
    [HAL_SLOT_comm_create] = {MAKES(COMM), .before = hal_rule_before_comm_create, .after = hal_rule_after_comm_create},
    [HAL_SLOT_comm_split] = {MAKES(COMM), .before = hal_rule_before_comm_part, .after = hal_rule_after_comm_part},
    [HAL_SLOT_comm_shrink] = {MAKES(COMM), .flags = HAL_COMM_SHRINK_ABORT, .before = hal_rule_before_comm_part,
                              .after = hal_rule_after_comm_part},
    [HAL_SLOT_comm_query] = {.after = hal_rule_after_comm_query},
    [HAL_SLOT_comm_destroy] = {.before = hal_rule_before_comm_destroy, .after = hal_rule_after_comm_destroy},
    [HAL_SLOT_comm_submit] = {.before = hal_rule_before_comm_submit},
    [HAL_SLOT_comm_register] = {MAKES(COMM_MEMORY), .flags = HAL_COMM_REGISTER_SYMMETRIC,
                                .before = hal_rule_before_comm_register, .after = hal_rule_after_comm_register},
    [HAL_SLOT_comm_deregister] = {ENDS(COMM_MEMORY)},
    [HAL_SLOT_semaphore_create] = {MAKES(SEMAPHORE), .flags = HAL_SEMAPHORE_INTERPROCESS},
    [HAL_SLOT_semaphore_destroy] = {ENDS(SEMAPHORE)},
    [HAL_SLOT_semaphore_export] = {.before = hal_rule_before_export, .after = hal_rule_after_export},
    [HAL_SLOT_semaphore_open] = {MAKES(SEMAPHORE), .before = hal_rule_before_open},
};
