/* layer_call.c: one wrapper per op, for plugins whose calls go through layers; generated from plugin_ops.def. */
#include "plugin/call.h"
#include "plugin/layer.h"

/* M(i, a) for each of up to six arguments. */
#define EACH_1(M, a) M(0, a)
#define EACH_2(M, a, b) EACH_1(M, a) M(1, b)
#define EACH_3(M, a, b, c) EACH_2(M, a, b) M(2, c)
#define EACH_4(M, a, b, c, d) EACH_3(M, a, b, c) M(3, d)
#define EACH_5(M, a, b, c, d, e) EACH_4(M, a, b, c, d) M(4, e)
#define EACH_6(M, a, b, c, d, e, f) EACH_5(M, a, b, c, d, e) M(5, f)
#define EACH_PICK(a, b, c, d, e, f, each, ...) each
#define EACH(M, ...) EACH_PICK(__VA_ARGS__, EACH_6, EACH_5, EACH_4, EACH_3, EACH_2, EACH_1, )(M, __VA_ARGS__)

/* A type that is missing in the list does not compile. */
#define TYPE_CASE(name, type, class) , type : HAL_TYPE_##name
#define TYPE_OF(x) _Generic((x)HAL_ARGUMENT_TYPES(TYPE_CASE))

#define COUNT_ONE(i, x) +1
#define LAY_OPEN(i, x) {.name = #x, .type = TYPE_OF(x), .value = (intptr_t)(x)},
#define TAKE_BACK(i, x) x = (__typeof__(x))call.arguments[i].value;

#define HAL_OP(since, kind, group, need, name, params, args)                    \
  hal_status_t hal_layered_##name(hal_plugin_t *plugin, HAL_UNPAREN params) {   \
    hal_layer_call_t call;                                                      \
    const hal_argument_t arguments[] = {EACH(LAY_OPEN, HAL_UNPAREN args)};      \
    call.plugin = plugin;                                                       \
    call.slot = HAL_SLOT_##name;                                                \
    call.count = EACH(COUNT_ONE, HAL_UNPAREN args);                             \
    for (uint32_t i = 0; i < call.count; i++) call.arguments[i] = arguments[i]; \
    hal_status_t status = hal_layer_enter(&call);                               \
    if (!status) {                                                              \
      EACH(TAKE_BACK, HAL_UNPAREN args)                                         \
      status = HAL_SLOT_CALL_##kind(name, args);                                \
    }                                                                           \
    return hal_layer_leave(&call, status);                                      \
  }
#include "hal/plugin_ops.def"
#undef HAL_OP
