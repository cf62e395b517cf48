/* layer_validate.c: the rules for every op: arguments, handles, out-parameters, status codes. */
#include "plugin/layer_validate.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log_internal.h"
#include "base/status_internal.h"
#include "plugin/call.h"
#include "plugin/slots.h"

enum { UNWRITTEN = 0xA5, TEXT_BYTES = 768 };

static const uint8_t classes[HAL_TYPE_COUNT] = {
#define HAL_TYPE_CLASS(name, type, class) HAL_CLASS_##class,
    HAL_ARGUMENT_TYPES(HAL_TYPE_CLASS)
#undef HAL_TYPE_CLASS
};

/* Returns the size of the target of an OUT or MADE argument. */
static size_t out_size(uint32_t type) {
  switch (type) {
    case HAL_TYPE_OUT_I32:
    case HAL_TYPE_OUT_U32:
      return sizeof(int32_t);
    case HAL_TYPE_OUT_HANDLE:
      return sizeof(hal_memory_handle_t);
    default:
      return sizeof(void *); /* handles, addresses, size_t, int64_t */
  }
}
_Static_assert(sizeof(hal_stream_error_t) <= HAL_CALL_ROOM, "the layer has memory for each");

/* ---- findings ---- */

static hal_status_t report(const hal_plugin_t *plugin, uint32_t slot, hal_status_t status, const char *text) {
  char line[TEXT_BYTES + 128];
  snprintf(line, sizeof line, "validate: %s, %s: %s", plugin->info.name ? plugin->info.name : "plugin",
           hal_registry_slot_name(slot), text);
  hal_log_write(HAL_LOG_ERROR, line); /* regardless of the level: the user has requested the layer */
  snprintf(line, sizeof line, "validate: %s", text);
  return hal_error_from_plugin(status, 0, line);
}

hal_status_t hal_validate_misuse(const hal_layer_call_t *call, const char *format, ...) {
  char text[TEXT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return report(call->plugin, call->slot, HAL_INVALID_ARGUMENT, text);
}

hal_status_t hal_validate_fault(const hal_plugin_t *plugin, uint32_t slot, const char *format, ...) {
  char text[TEXT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return report(plugin, slot, HAL_INTERNAL, text);
}

/* ---- lifetime ---- */

hal_status_t hal_validate_create(hal_plugin_t *plugin) {
  hal_validate_t *const validate = hal_calloc(1, sizeof *validate);
  if (!validate) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory while creating the validate layer");
  pthread_mutex_init(&validate->lives.lock, NULL);
  validate->device_count = -1;
  plugin->validate = validate;
  return HAL_OK;
}

void hal_validate_destroy(hal_plugin_t *plugin) {
  if (!plugin->validate) return;
  hal_borrow_forget(plugin);
  hal_live_clear(&plugin->validate->lives);
  hal_free(plugin->validate);
  plugin->validate = NULL;
}

void hal_validate_after_fork(hal_plugin_t *plugin) {
  if (plugin->validate) pthread_mutex_init(&plugin->validate->lives.lock, NULL);
  hal_borrow_after_fork();
}

/* ---- before the call ---- */

const hal_argument_t *hal_validate_argument(const hal_layer_call_t *call, const char *name) {
  for (uint32_t i = 0; i < call->count; i++)
    if (strcmp(call->arguments[i].name, name) == 0) return &call->arguments[i];
  return NULL;
}

static hal_status_t check_life(const hal_layer_call_t *call, const hal_validate_t *validate) {
  switch (call->slot) {
    case HAL_SLOT_info:
    case HAL_SLOT_probe:
    case HAL_SLOT_device_count:
      return HAL_OK;
    case HAL_SLOT_init:
      if (validate->state == HAL_VALIDATE_COLD) return HAL_OK;
      return hal_validate_misuse(call, "init is called the second time; call it once per process");
    default:
      if (validate->state == HAL_VALIDATE_READY) return HAL_OK;
      return hal_validate_misuse(
          call, validate->state == HAL_VALIDATE_COLD
                    ? "called before init; call init first, once per process"
                    : "called after shutdown, which is a plugin's last call; finish all work before it");
  }
}

/* Arguments that are ordinals by their name, and those that may be HAL_HOST. */
static int is_ordinal(const char *name) {
  static const char *const names[] = {"device", "peer", "dst_device", "src_device"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(name, names[i]) == 0) return 1;
  return 0;
}

static int may_be_host(const hal_layer_call_t *call, const char *name) {
  return call->slot == HAL_SLOT_memory_copy ||
         (call->slot == HAL_SLOT_memory_prefetch && strcmp(name, "dst_device") == 0) ||
         (call->slot == HAL_SLOT_memory_advise && strcmp(name, "peer") == 0);
}

static hal_status_t check_ordinal(const hal_layer_call_t *call, const hal_argument_t *argument, int32_t count) {
  const int32_t ordinal = (int32_t)argument->value;
  const int host = may_be_host(call, argument->name);
  if (count < 0 || (ordinal >= 0 && ordinal < count) || (host && ordinal == HAL_HOST)) return HAL_OK;
  return hal_validate_misuse(call,
                             "%s is %d, and the plugin's ordinals are 0 to %d%s; pass an ordinal of the plugin's own",
                             argument->name, ordinal, count - 1, host ? " and HAL_HOST (-1)" : "");
}

static const struct {
  hal_live_kind_t kind;
  const char *maker;
} handle_kinds[HAL_TYPE_COUNT] = {
    [HAL_TYPE_STREAM] = {HAL_LIVE_STREAM, "stream_create"},
    [HAL_TYPE_EVENT] = {HAL_LIVE_EVENT, "event_create"},
    [HAL_TYPE_MODULE] = {HAL_LIVE_MODULE, "module_load"},
    [HAL_TYPE_KERNEL] = {HAL_LIVE_KERNEL, "kernel_get"},
    [HAL_TYPE_GRAPH] = {HAL_LIVE_GRAPH, "capture_end"},
    [HAL_TYPE_GRAPH_EXEC] = {HAL_LIVE_GRAPH_EXEC, "graph_instantiate"},
    [HAL_TYPE_PHYSICAL] = {HAL_LIVE_PHYSICAL, "virtual_create"},
    [HAL_TYPE_COMM] = {HAL_LIVE_COMM, "comm_create"},
    [HAL_TYPE_COMM_MEMORY] = {HAL_LIVE_COMM_MEMORY, "comm_register"},
    [HAL_TYPE_SEMAPHORE] = {HAL_LIVE_SEMAPHORE, "semaphore_create"},
};

static hal_status_t check_handle(const hal_layer_call_t *call, hal_validate_t *validate,
                                 const hal_argument_t *argument) {
  const hal_live_kind_t kind = handle_kinds[argument->type].kind;
  const char *const maker = handle_kinds[argument->type].maker, *const text = hal_live_text(kind);
  const uintptr_t handle = (uintptr_t)argument->value;
  if (!handle) {
    /* A NULL stream is the synchronous stream; destroying NULL is allowed if plugin_ops.def allows it. */
    if (kind == HAL_LIVE_STREAM || call->slot == HAL_SLOT_event_destroy) return HAL_OK;
    return hal_validate_misuse(call, "%s is NULL; pass a %s from %s", argument->name, text, maker);
  }
  if (hal_live_find(&validate->lives, kind, handle)) return HAL_OK;
  if (hal_live_is_dead(&validate->lives, kind, handle))
    return hal_validate_misuse(call, "%s %p was destroyed by %s before; destroy a %s once, after its last use",
                               argument->name, (void *)handle, hal_live_end_op(kind), text);
  return hal_validate_misuse(call, "%s %p is not a live %s of this plugin; pass one from its %s", argument->name,
                             (void *)handle, text, maker);
}

static hal_status_t check_borrowed(const hal_layer_call_t *call, const hal_argument_t *argument) {
  static const size_t least[HAL_TYPE_COUNT] = {
      [HAL_TYPE_STREAM_DESC] = HAL_STRUCT_SIZE(hal_stream_desc_t, queue),
      [HAL_TYPE_MODULE_DESC] = HAL_STRUCT_SIZE(hal_module_desc_t, size),
      [HAL_TYPE_LAUNCH] = HAL_STRUCT_SIZE(hal_launch_t, args),
      [HAL_TYPE_RANDOM] = HAL_STRUCT_SIZE(hal_random_t, p1),
      [HAL_TYPE_COPY_2D] = HAL_STRUCT_SIZE(hal_copy_2d_t, src_device),
      [HAL_TYPE_COMM_DESC] = HAL_STRUCT_SIZE(hal_comm_desc_t, name),
  };
  const void *const at = (const void *)argument->value;
  if (!at && call->slot == HAL_SLOT_profile_range) return HAL_OK; /* ends a range */
  if (argument->type == HAL_TYPE_COPIES || argument->type == HAL_TYPE_COMM_CALLS)
    return HAL_OK; /* checked by their rules: there may be none */
  if (!at) return hal_validate_misuse(call, "%s is NULL; it must not be", argument->name);
  size_t size;
  if (!least[argument->type]) return HAL_OK;
  memcpy(&size, at, sizeof size); /* every such struct begins with its struct_size */
  if (size >= least[argument->type]) return HAL_OK;
  return hal_validate_misuse(call, "%s->struct_size is %zu, and the struct has %zu bytes; set it by HAL_STRUCT_SIZE",
                             argument->name, size, least[argument->type]);
}

static hal_status_t check_flags(const hal_layer_call_t *call, const hal_argument_t *argument) {
  const uint32_t known = hal_rules[call->slot].flags, unknown = (uint32_t)argument->value & ~known;
  if (!unknown) return HAL_OK;
  return hal_validate_misuse(call, "flags has the unknown bits 0x%x; this version defines 0x%x", unknown, known);
}

static hal_status_t check_argument(const hal_layer_call_t *call, hal_validate_t *validate,
                                   const hal_argument_t *argument) {
  switch (classes[argument->type]) {
    case HAL_CLASS_HANDLE:
      return check_handle(call, validate, argument);
    case HAL_CLASS_BORROWED:
      return check_borrowed(call, argument);
    case HAL_CLASS_VALUE:
      if (argument->type == HAL_TYPE_I32 && is_ordinal(argument->name))
        return check_ordinal(call, argument, validate->device_count);
      return argument->type == HAL_TYPE_U32 && strcmp(argument->name, "flags") == 0 ? check_flags(call, argument)
                                                                                    : HAL_OK;
    default:
      if (argument->value) return HAL_OK;
      return hal_validate_misuse(call, "%s is NULL; pass the address of a variable for the result", argument->name);
  }
}

/* Returns whether an argument belongs to the device, and its device; an argument without a device belongs to any. */
static int is_of(hal_validate_t *validate, const hal_argument_t *argument, int32_t device, int32_t *out_device) {
  *out_device = device;
  if (argument->type == HAL_TYPE_I32) {
    *out_device = (int32_t)argument->value;
    return *out_device == device;
  }
  const hal_live_kind_t kind = handle_kinds[argument->type].kind;
  const hal_live_t *const live = hal_live_find(&validate->lives, kind, (uintptr_t)argument->value);
  if (!live || hal_live_find_on(&validate->lives, kind, live->address, device)) return 1;
  *out_device = live->device;
  return 0;
}

/* Two arguments that must be of one device. */
static const struct {
  uint32_t slot;
  const char *one, *other;
} same_device[] = {
    {HAL_SLOT_event_record, "event", "stream"},       {HAL_SLOT_kernel_launch, "kernel", "stream"},
    {HAL_SLOT_memory_fill, "device", "stream"},       {HAL_SLOT_memory_alloc_async, "device", "stream"},
    {HAL_SLOT_memory_free_async, "device", "stream"}, {HAL_SLOT_graph_launch, "exec", "stream"},
    {HAL_SLOT_graph_update, "exec", "graph"},         {HAL_SLOT_virtual_export, "device", "memory"},
    {HAL_SLOT_event_elapsed, "start", "end"},         {HAL_SLOT_virtual_map, "device", "memory"},
    {HAL_SLOT_virtual_release, "device", "memory"},   {HAL_SLOT_memory_prefetch, "device", "stream"},
};

static hal_status_t check_devices(const hal_layer_call_t *call, hal_validate_t *validate) {
  for (size_t i = 0; i < sizeof same_device / sizeof same_device[0]; i++) {
    if (same_device[i].slot != call->slot) continue;
    const hal_argument_t *const one = hal_validate_argument(call, same_device[i].one);
    const hal_argument_t *const other = hal_validate_argument(call, same_device[i].other);
    const hal_live_t *const live =
        hal_live_find(&validate->lives, handle_kinds[other->type].kind, (uintptr_t)other->value);
    int32_t device;
    if (live && !is_of(validate, one, live->device, &device))
      return hal_validate_misuse(call, "%s is of device %d and %s of device %d; both must be of one device",
                                 same_device[i].one, device, same_device[i].other, live->device);
  }
  return HAL_OK;
}

/* Finds the object that the call ends, and removes it from the records, because the plugin may return its address to
 * another thread before this call returns. */
static hal_status_t take_ended(hal_layer_call_t *call, hal_validate_t *validate) {
  const uint8_t ends = hal_rules[call->slot].ends;
  if (!ends) return HAL_OK;
  const hal_live_kind_t kind = (hal_live_kind_t)(ends - 1);
  const hal_argument_t *argument = hal_validate_argument(call, "ptr"), *const device =
                                                                           hal_validate_argument(call, "device");
  for (uint32_t i = 0; !argument && i < call->count; i++)
    if (classes[call->arguments[i].type] == HAL_CLASS_HANDLE && handle_kinds[call->arguments[i].type].kind == kind)
      argument = &call->arguments[i];
  const uintptr_t address = (uintptr_t)argument->value;
  if (!address) return HAL_OK; /* check_handle has accepted it; memory_free(NULL) is HAL_OK */
  hal_live_t *const live = hal_live_find(&validate->lives, kind, address);
  if (!live && hal_live_is_dead(&validate->lives, kind, address))
    return hal_validate_misuse(call, "the %s at %p was released before; release it once", hal_live_text(kind),
                               (void *)address);
  if (!live)
    return hal_validate_misuse(call, "there is no %s that begins at %p; pass an address that the plugin returned",
                               hal_live_text(kind), (void *)address);
  if (device && live->device != (int32_t)device->value)
    return hal_validate_misuse(call, "the %s at %p is of device %d and not of device %d; pass its own device",
                               hal_live_text(kind), (void *)address, live->device, (int32_t)device->value);
  if (live->count > 1) { /* returned several times, so it must be released as often */
    live->count--;
    return HAL_OK;
  }
  hal_live_remove(&validate->lives, live);
  call->ended = live;
  return HAL_OK;
}

static hal_status_t prepare_made(hal_layer_call_t *call, hal_validate_t *validate) {
  if (!hal_rules[call->slot].makes) return HAL_OK;
  call->made = hal_calloc(1, sizeof *call->made);
  if (call->made && hal_live_reserve(&validate->lives)) return HAL_OK;
  return hal_error_from_plugin(HAL_RESOURCE_EXHAUSTED, 0, "out of host memory for the validate layer's records");
}

static hal_status_t check_call(hal_layer_call_t *call, hal_validate_t *validate) {
  HAL_RETURN_IF_ERROR(check_life(call, validate));
  for (uint32_t i = 0; i < call->count; i++) HAL_RETURN_IF_ERROR(check_argument(call, validate, &call->arguments[i]));
  HAL_RETURN_IF_ERROR(check_devices(call, validate));
  if (hal_rules[call->slot].before) HAL_RETURN_IF_ERROR(hal_rules[call->slot].before(call));
  HAL_RETURN_IF_ERROR(prepare_made(call, validate));
  return take_ended(call, validate);
}

/* Replaces every out-parameter by the layer's own memory. */
static void redirect_outs(hal_layer_call_t *call) {
  for (uint32_t i = 0; i < call->count; i++) {
    hal_argument_t *const argument = &call->arguments[i];
    const uint8_t class = classes[argument->type];
    if (class != HAL_CLASS_OUT && class != HAL_CLASS_MADE && class != HAL_CLASS_STRUCT) continue;
    hal_layer_out_t *const out = &call->outs[call->out_count++];
    out->original = (void *)argument->value;
    memset(out->room, UNWRITTEN, sizeof out->room);
    if (class == HAL_CLASS_STRUCT) {
      memcpy(&out->size, out->original, sizeof out->size); /* its struct_size */
      if (out->size > HAL_CALL_ROOM) out->size = HAL_CALL_ROOM;
      memcpy(out->room, out->original, out->size);
    } else {
      out->size = out_size(argument->type);
    }
    argument->value = (intptr_t)out->room;
  }
}

hal_status_t hal_validate_enter(hal_layer_call_t *call) {
  hal_validate_t *const validate = call->plugin->validate;
  call->made = call->ended = NULL;
  call->borrowed = NULL;
  call->out_count = 0;
  hal_error_forget_plugin();
  hal_mutex_lock_and_defer(&validate->lives.lock);
  const hal_status_t status = check_call(call, validate);
  hal_mutex_unlock_and_run(&validate->lives.lock);
  if (status) {
    hal_free(call->made);
    return status;
  }
  hal_borrow_begin(call);
  redirect_outs(call);
  return HAL_OK;
}

/* ---- after the call ---- */

static int is_code(hal_status_t status) { return strcmp(hal_status_name(status), "UNRECOGNISED") != 0; }

/* Codes that need no message. */
static int needs_no_message(uint32_t slot, hal_status_t status) {
  return status == HAL_OK || status == HAL_UNIMPLEMENTED || status == HAL_NOT_READY ||
         (status == HAL_NOT_FOUND && (slot == HAL_SLOT_op_find || slot == HAL_SLOT_memory_pointer_info ||
                                      slot == HAL_SLOT_stream_error || slot == HAL_SLOT_program_compiler));
}

static int may_be_not_ready(uint32_t slot) {
  return slot == HAL_SLOT_stream_query || slot == HAL_SLOT_stream_synchronize_timeout || slot == HAL_SLOT_event_query ||
         slot == HAL_SLOT_event_elapsed || slot == HAL_SLOT_comm_create || slot == HAL_SLOT_comm_split ||
         slot == HAL_SLOT_comm_shrink || slot == HAL_SLOT_comm_destroy || slot == HAL_SLOT_semaphore_wait;
}

static hal_status_t check_status(const hal_layer_call_t *call, hal_status_t status) {
  if (!is_code(status))
    return hal_validate_fault(call->plugin, call->slot,
                              "the plugin returned %d, which is not a status code; return one of plugin.h",
                              (int)status);
  if (status == HAL_NOT_READY && !may_be_not_ready(call->slot))
    return hal_validate_fault(call->plugin, call->slot,
                              "the plugin returned NOT_READY, which only queries may; wait, or return a failure");
  if (needs_no_message(call->slot, status) || hal_error_has_plugin_message(status)) return status;
  hal_validate_fault(call->plugin, call->slot,
                     "the plugin returned %s without a message; call hal_host->error_set with what was tried, which "
                     "value, and what to do",
                     hal_status_name(status));
  return status;
}

static int is_filled(const unsigned char *bytes, size_t size) {
  size_t i = 0;
  while (i < size && bytes[i] == UNWRITTEN) i++;
  return i == size;
}

/* Checks what the plugin wrote, and copies it to the caller if the call was successful. */
static hal_status_t check_out(const hal_layer_call_t *call, const hal_argument_t *argument, const hal_layer_out_t *out,
                              hal_status_t status) {
  const int is_struct = classes[argument->type] == HAL_CLASS_STRUCT;
  hal_status_t result = status;
  if (!is_filled(out->room + out->size, HAL_CALL_GUARD))
    result = hal_validate_fault(call->plugin, call->slot,
                                "the plugin wrote past the %zu bytes of %s; fill fields within %s only", out->size,
                                argument->name, is_struct ? "struct_size" : "its type");
  const int untouched = is_struct ? memcmp(out->room, out->original, out->size) == 0 : is_filled(out->room, out->size);
  if (status) {
    if (!untouched)
      hal_validate_fault(call->plugin, call->slot,
                         "the plugin returned %s and wrote to %s; leave it unchanged on failure",
                         hal_status_name(status), argument->name);
    return result;
  }
  if (untouched && !is_struct)
    return hal_validate_fault(call->plugin, call->slot, "the plugin returned OK and did not write %s; set it before",
                              argument->name);
  memcpy(out->original, out->room, out->size);
  return result;
}

static hal_status_t check_outs(const hal_layer_call_t *call, hal_status_t status) {
  uint32_t next = 0;
  hal_status_t result = status;
  for (uint32_t i = 0; i < call->count && next < call->out_count; i++) {
    if (call->arguments[i].value != (intptr_t)call->outs[next].room) continue;
    const hal_status_t checked = check_out(call, &call->arguments[i], &call->outs[next++], status);
    if (checked != status) result = checked;
  }
  return result;
}

/* Returns whether a handle is returned once. The plugin may already have freed a communicator whose comm_destroy is
 * running. */
static int is_unique(hal_live_kind_t kind, const hal_live_t *twin) {
  return kind == HAL_LIVE_EVENT || kind == HAL_LIVE_SEMAPHORE || (kind == HAL_LIVE_COMM && !twin->flags);
}

/* Results that may be NULL: streams, the communicator that a rank does not join, and memory whose registration a
 * library does not use. */
static hal_status_t record_made(hal_layer_call_t *call, hal_validate_t *validate) {
  hal_live_t *const made = call->made;
  const hal_live_kind_t kind = (hal_live_kind_t)(hal_rules[call->slot].makes - 1);
  const hal_argument_t *const device = hal_validate_argument(call, "device");
  uintptr_t address = 0;
  made->kind = kind;
  made->count = 1;
  if (call->out_count) memcpy(&address, call->outs[0].room, sizeof address);
  if (call->slot == HAL_SLOT_virtual_map || call->slot == HAL_SLOT_host_register)
    address = (uintptr_t)hal_validate_argument(call, "ptr")->value;
  if (device) made->device = (int32_t)device->value;
  made->address = address;
  const hal_argument_t *const size = hal_validate_argument(call, "size");
  if (size && size->type == HAL_TYPE_SIZE) made->size = (size_t)size->value;
  if (!address && (kind == HAL_LIVE_STREAM || kind == HAL_LIVE_COMM_MEMORY || call->slot == HAL_SLOT_comm_split))
    return HAL_OK;
  if (!address)
    return hal_validate_fault(call->plugin, call->slot, "the plugin returned OK and NULL; return a failure instead");
  hal_live_t *twin = hal_live_find(&validate->lives, kind, address);
  if (twin && is_unique(kind, twin))
    return hal_validate_fault(call->plugin, call->slot,
                              "the plugin returned %s %p, which is alive already; create another", hal_live_text(kind),
                              (void *)address);
  if (call->slot == HAL_SLOT_kernel_get) { /* may be one for all modules, and is not released */
    made->owner = (uintptr_t)hal_validate_argument(call, "module")->value;
    const hal_live_t *const module = hal_live_find(&validate->lives, HAL_LIVE_MODULE, made->owner);
    made->device = module ? module->device : 0;
    while (twin && (twin->kind != kind || twin->address != address || twin->owner != made->owner)) twin = twin->next;
    if (twin) return HAL_OK;
  } else if (twin && !hal_live_is_device_memory(kind) && kind != HAL_LIVE_COMM) {
    twin->count++;
    return HAL_OK;
  }
  const hal_argument_t *const flags = hal_validate_argument(call, "flags");
  if (flags && kind != HAL_LIVE_COMM) made->flags = (uint32_t)flags->value;
  call->made = NULL;
  hal_live_add(&validate->lives, made);
  return HAL_OK;
}

static void remove_kernel_of(hal_lives_t *lives, hal_live_t *live, void *module) {
  if (live->kind != HAL_LIVE_KERNEL || live->owner != (uintptr_t)module) return;
  hal_live_remove(lives, live);
  hal_free(live);
}

static void finish_ended(hal_layer_call_t *call, hal_validate_t *validate, hal_status_t status) {
  if (!call->ended) return;
  if (status) { /* it remains alive */
    hal_live_add(&validate->lives, call->ended);
  } else {
    if (call->ended->kind == HAL_LIVE_MODULE)
      hal_live_each(&validate->lives, remove_kernel_of, (void *)call->ended->address);
    hal_free(call->ended);
  }
  call->ended = NULL;
}

hal_status_t hal_validate_leave(hal_layer_call_t *call, hal_status_t status) {
  hal_validate_t *const validate = call->plugin->validate;
  const hal_rule_t *const rule = &hal_rules[call->slot];
  hal_borrow_end(call->borrowed);
  status = check_status(call, status);
  status = check_outs(call, status);
  hal_mutex_lock_and_defer(&validate->lives.lock);
  if (status && rule->failed) rule->failed(call, status);
  if (!status && rule->after) status = rule->after(call, status);
  if (!status && rule->makes) status = record_made(call, validate);
  finish_ended(call, validate, status);
  hal_mutex_unlock_and_run(&validate->lives.lock);
  hal_free(call->made);
  return status;
}
