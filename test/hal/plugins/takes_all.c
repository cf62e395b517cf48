/* takes_all.c: five.c whose op_find returns a function for each operator that accepts all calls and writes nothing: the
   cost of an own operator in addition to its work (test/bench/own_composed.py). */
#include "five.c"
static hal_status_t nothing(void *state, const hal_op_call_t *call) {
  (void)state, (void)call;
  return HAL_OK;
}
hal_status_t hal_plugin_op_find(int32_t device, const char *name, hal_op_own_t *out_op) {
  (void)device, (void)name;
  HAL_SET_FIELD(out_op, fn, nothing);
  HAL_SET_FIELD(out_op, dtypes, HAL_ALL_DTYPES);
  HAL_SET_FIELD(out_op, layouts, HAL_TAKES_ALL);
  return HAL_OK;
}
