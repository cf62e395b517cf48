/* layer_rules_memory.c: the rules of memory: ranges, allocations, copies, fills. */
#include <stdint.h>

#include "base/dtype.h"
#include "plugin/call.h"
#include "plugin/layer_rules.h"

/* ---- ranges of device memory ---- */

/* Reports why an address is not in a live allocation. */
static hal_status_t refuse_address(const hal_layer_call_t *call, const char *what, const void *address, size_t size,
                                   int32_t device) {
  const uintptr_t freed = hal_live_dead_range(&state_of(call)->lives, (uintptr_t)address);
  if (freed)
    return hal_validate_misuse(call,
                               "%s, %zu bytes at %p, is in device memory at %p that was freed; free it after its "
                               "last use",
                               what, size, address, (void *)freed);
  return hal_validate_misuse(call,
                             "%s, %zu bytes at %p, is in no live allocation of device %d; pass an address within "
                             "memory of memory_alloc",
                             what, size, address, device);
}

/* Calls with the device of each range: it is that of the memory. */
static int is_copy(uint32_t slot) {
  return slot == HAL_SLOT_memory_copy || slot == HAL_SLOT_memory_copy_2d || slot == HAL_SLOT_memory_copy_batch;
}

hal_status_t hal_validate_range(const hal_layer_call_t *call, const char *what, const void *address, size_t size,
                                int32_t device) {
  hal_validate_t *const validate = state_of(call);
  if (!size) return HAL_OK;
  if (!address) return hal_validate_misuse(call, "%s is NULL for %zu bytes; pass device memory", what, size);
  const int known = device >= 0 && device < HAL_MAX_DEVICES;
  const hal_live_t *const live = hal_live_find_range(&validate->lives, (uintptr_t)address);
  if (!live) {
    /* Such a device may use any host address; and the size of another process's memory is not known here. */
    if (known && (validate->device_flags[device] & HAL_DEVICE_UNIFIED)) return HAL_OK;
    if (validate->lives.counts[HAL_LIVE_IMPORTED]) return HAL_OK;
    if (known && !is_copy(call->slot) && (validate->host_pointers >> device & 1)) return HAL_OK;
    return refuse_address(call, what, address, size, device);
  }
  const size_t before = (uintptr_t)address - live->address;
  if (size > live->size - before)
    return hal_validate_misuse(call,
                               "%s, %zu bytes at %p, ends %zu bytes past the allocation of %zu bytes at %p; copy "
                               "less, or allocate more",
                               what, size, address, size - (live->size - before), live->size, (void *)live->address);
  if (live->device == device) return HAL_OK;
  if (known && validate->peers[device] >> live->device & 1) return HAL_OK;
  int32_t accessible = 0;
  const hal_plugin_t *const plugin = call->plugin;
  const int shared = known && !is_copy(call->slot) && plugin->api.device_peer_query &&
                     !plugin->api.device_peer_query(device, live->device, &accessible) && accessible;
  if (shared) return HAL_OK;
  return hal_validate_misuse(call,
                             "%s at %p is memory of device %d and not of device %d; name its own device, or copy it "
                             "there first",
                             what, address, live->device, device);
}

/* ---- memory ---- */

hal_status_t hal_rule_before_alloc(hal_layer_call_t *call) {
  if (!value_of(call, "size")) return hal_validate_misuse(call, "size is 0; pass at least one byte");
  return HAL_OK;
}

/* The minimum alignments of plugin_ops.def. */
enum { DEVICE_ALIGNMENT = 256, HOST_ALIGNMENT = 64 };

hal_status_t hal_rule_after_alloc(hal_layer_call_t *call, hal_status_t status) {
  hal_validate_t *const validate = state_of(call);
  void *const address = WRITTEN(call, 0, void *);
  const size_t size = (size_t)value_of(call, "size");
  const int32_t device = (int32_t)value_of(call, "device");
  const uint32_t own = device < HAL_MAX_DEVICES ? validate->alignment[device] : 0;
  const uint32_t alignment = own ? own : DEVICE_ALIGNMENT;
  if ((uintptr_t)address % alignment)
    return hal_validate_fault(
        call->plugin, call->slot,
        "the plugin returned %p, which is not aligned to %u bytes; align memory to 256 bytes, or set "
        "another base_alignment in device_info",
        address, alignment);
  const hal_live_t *const other = hal_live_find_overlap(&validate->lives, (uintptr_t)address, size);
  if (address && other)
    return hal_validate_fault(
        call->plugin, call->slot,
        "the plugin returned %zu bytes at %p, which overlap the live %zu bytes at %p of device %d; return "
        "separate memory for each allocation",
        size, address, other->size, (void *)other->address, other->device);
  return status;
}

hal_status_t hal_rule_after_host_alloc(hal_layer_call_t *call, hal_status_t status) {
  void *const address = WRITTEN(call, 0, void *);
  if ((uintptr_t)address % HOST_ALIGNMENT == 0) return status;
  return hal_validate_fault(call->plugin, call->slot,
                            "the plugin returned %p, which is not aligned to %d bytes; align it", address,
                            HOST_ALIGNMENT);
}

static int share_bytes(uintptr_t a, size_t a_size, uintptr_t b, size_t b_size) {
  return a < b ? b - a < a_size : a - b < b_size;
}

static hal_status_t check_sides(const hal_layer_call_t *call, int32_t to, int32_t from) {
  const hal_live_t *const stream =
      hal_live_find(&state_of(call)->lives, HAL_LIVE_STREAM, (uintptr_t)value_of(call, "stream"));
  if (to == HAL_HOST && from == HAL_HOST)
    return hal_validate_misuse(call, "both sides are host memory; use memcpy, or name a device");
  if (stream && stream->device != to && stream->device != from)
    return hal_validate_misuse(call,
                               "the stream is of device %d and the copy from %d to %d; use a stream of one of them",
                               stream->device, from, to);
  return HAL_OK;
}

static hal_status_t check_copy(const hal_layer_call_t *call, const hal_copy_t *copy) {
  const uintptr_t dst = (uintptr_t)copy->dst, src = (uintptr_t)copy->src;
  const size_t size = copy->size;
  if (!size) return HAL_OK;
  if (!dst || !src)
    return hal_validate_misuse(call, "%s is NULL for %zu bytes; pass memory, or copy 0 bytes", dst ? "src" : "dst",
                               size);
  HAL_RETURN_IF_ERROR(check_sides(call, copy->dst_device, copy->src_device));
  if (copy->dst_device != HAL_HOST)
    HAL_RETURN_IF_ERROR(hal_validate_range(call, "dst", copy->dst, size, copy->dst_device));
  if (copy->src_device != HAL_HOST)
    HAL_RETURN_IF_ERROR(hal_validate_range(call, "src", copy->src, size, copy->src_device));
  if (share_bytes(dst, size, src, size))
    return hal_validate_misuse(call, "%zu bytes from %p to %p overlap; copy through other memory", size, copy->src,
                               copy->dst);
  return HAL_OK;
}

hal_status_t hal_rule_before_copy(hal_layer_call_t *call) {
  const hal_copy_t copy = {.dst = (void *)value_of(call, "dst"),
                           .src = (const void *)value_of(call, "src"),
                           .size = (size_t)value_of(call, "size"),
                           .dst_device = (int32_t)value_of(call, "dst_device"),
                           .src_device = (int32_t)value_of(call, "src_device")};
  return check_copy(call, &copy);
}

/* The ordinal of a copy in a struct; ordinals that are arguments are checked by their names. */
static hal_status_t check_copy_ordinal(const hal_layer_call_t *call, const char *name, int32_t ordinal) {
  const int32_t count = state_of(call)->device_count;
  if (count < 0 || (ordinal >= HAL_HOST && ordinal < count)) return HAL_OK;
  return hal_validate_misuse(
      call,
      "%s is %d, and the plugin's ordinals are 0 to %d and HAL_HOST (-1); pass an ordinal of the "
      "plugin's own",
      name, ordinal, count - 1);
}

hal_status_t hal_rule_before_copy_2d(hal_layer_call_t *call) {
  const hal_copy_2d_t *const copy = (const hal_copy_2d_t *)value_of(call, "copy");
  size_t dst_size = 0, src_size = 0;
  HAL_RETURN_IF_ERROR(check_copy_ordinal(call, "copy->dst_device", copy->dst_device));
  HAL_RETURN_IF_ERROR(check_copy_ordinal(call, "copy->src_device", copy->src_device));
  if (!copy->width || !copy->height) return HAL_OK;
  if (copy->dst_pitch < copy->width || copy->src_pitch < copy->width)
    return hal_validate_misuse(call,
                               "rows of %zu bytes begin %zu (dst) and %zu (src) bytes apart; a pitch is at least "
                               "the width",
                               copy->width, copy->dst_pitch, copy->src_pitch);
  if (__builtin_mul_overflow(copy->dst_pitch, copy->height - 1, &dst_size) ||
      __builtin_add_overflow(dst_size, copy->width, &dst_size) ||
      __builtin_mul_overflow(copy->src_pitch, copy->height - 1, &src_size) ||
      __builtin_add_overflow(src_size, copy->width, &src_size))
    return hal_validate_misuse(call, "%zu rows end beyond the address space; copy fewer", copy->height);
  if (!copy->dst || !copy->src)
    return hal_validate_misuse(call, "copy->%s is NULL for %zu rows; pass memory, or copy 0 rows",
                               copy->dst ? "src" : "dst", copy->height);
  HAL_RETURN_IF_ERROR(check_sides(call, copy->dst_device, copy->src_device));
  if (copy->dst_device != HAL_HOST)
    HAL_RETURN_IF_ERROR(hal_validate_range(call, "copy->dst", copy->dst, dst_size, copy->dst_device));
  if (copy->src_device != HAL_HOST)
    HAL_RETURN_IF_ERROR(hal_validate_range(call, "copy->src", copy->src, src_size, copy->src_device));
  return HAL_OK;
}

hal_status_t hal_rule_before_copy_batch(hal_layer_call_t *call) {
  const char *const copies = (const char *)value_of(call, "copies");
  const size_t count = (size_t)value_of(call, "count"), stride = (size_t)value_of(call, "stride");
  size_t size = 0;
  if (!count) return HAL_OK;
  if (!copies || stride < sizeof(hal_copy_t) || __builtin_mul_overflow(count, stride, &size))
    return hal_validate_misuse(call, "%zu copies at %p with a stride of %zu bytes; an element has at least %zu", count,
                               (const void *)copies, stride, sizeof(hal_copy_t));
  for (size_t i = 0; i < count; i++) {
    const hal_copy_t *const copy = (const hal_copy_t *)(const void *)(copies + i * stride);
    HAL_RETURN_IF_ERROR(check_copy_ordinal(call, "dst_device of a copy", copy->dst_device));
    HAL_RETURN_IF_ERROR(check_copy_ordinal(call, "src_device of a copy", copy->src_device));
    HAL_RETURN_IF_ERROR(check_copy(call, copy));
  }
  return HAL_OK;
}

hal_status_t hal_rule_before_fill(hal_layer_call_t *call) {
  const size_t size = (size_t)value_of(call, "size"), pattern = (size_t)value_of(call, "pattern_size");
  if (!value_of(call, "pattern") || !pattern || pattern > 16 || (pattern & (pattern - 1)))
    return hal_validate_misuse(call, "invalid pattern of %zu bytes; expected 1, 2, 4, 8 or 16", pattern);
  if (size % pattern)
    return hal_validate_misuse(call, "%zu bytes are not a multiple of the pattern's %zu; fill whole patterns", size,
                               pattern);
  return hal_validate_range(call, "dst", (const void *)value_of(call, "dst"), size, (int32_t)value_of(call, "device"));
}

static hal_status_t check_hint(const hal_layer_call_t *call) {
  return hal_validate_range(call, "ptr", (const void *)value_of(call, "ptr"), (size_t)value_of(call, "size"),
                            (int32_t)value_of(call, "device"));
}

hal_status_t hal_rule_before_prefetch(hal_layer_call_t *call) { return check_hint(call); }

hal_status_t hal_rule_before_advise(hal_layer_call_t *call) {
  const uint32_t advice = (uint32_t)value_of(call, "advice");
  if (advice >= HAL_ADVICE_READ_MOSTLY && advice <= HAL_ADVICE_NOT_ACCESSED) return check_hint(call);
  return hal_validate_misuse(call, "advice is %u; pass one of HAL_ADVICE_*, 1 to %d", advice, HAL_ADVICE_NOT_ACCESSED);
}

hal_status_t hal_rule_after_memory_info(hal_layer_call_t *call, hal_status_t status) {
  const size_t available = WRITTEN(call, 0, size_t), total = WRITTEN(call, 1, size_t);
  if (available <= total) return status;
  return hal_validate_fault(call->plugin, call->slot,
                            "the plugin returned %zu bytes free of %zu; free is part of total", available, total);
}

hal_status_t hal_rule_before_random(hal_layer_call_t *call) {
  const hal_random_t *const desc = (const hal_random_t *)value_of(call, "desc");
  const size_t element = hal_dtype_size(desc->dtype);
  size_t size;
  if (!element || __builtin_mul_overflow((size_t)desc->count, element, &size))
    return hal_validate_misuse(call, "%llu elements of dtype %d; pass a dtype of plugin.h and fewer elements",
                               (unsigned long long)desc->count, (int)desc->dtype);
  if (HAL_HAS_FIELD(desc, random_state) && desc->random_state)
    HAL_RETURN_IF_ERROR(
        hal_validate_range(call, "desc->random_state", desc->random_state, 2 * sizeof(uint64_t), desc->device));
  return hal_validate_range(call, "desc->dst", desc->dst, size, desc->device);
}

/* Only the plugin knows which addresses of the device are host memory. */
hal_status_t hal_rule_after_host_pointer(hal_layer_call_t *call, hal_status_t status) {
  const int32_t device = (int32_t)value_of(call, "device");
  if (!WRITTEN(call, 0, void *))
    return hal_validate_fault(call->plugin, call->slot, "the plugin returned OK and NULL; return a failure instead");
  if (device < HAL_MAX_DEVICES) state_of(call)->host_pointers |= UINT64_C(1) << device; /* HAL_MAX_DEVICES is 64 */
  return status;
}
