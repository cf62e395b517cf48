/* maker.c: a device with its own operators, written against the installed header alone. Everything else (memory,
 * streams, the portable kernels) comes from another plugin, whose file MAKER_BASE names. Each call of its operators
 * is logged as a line of JSON, with the user's arguments, in the file MAKER_LOG.
 *
 * Lists of operators, separated by commas: MAKER_DECLINES: operators that decline every call ("*" means all);
 * MAKER_WATCHES: additional operators that log their calls and decline them; MAKER_HAS: additional operators of
 * maker_sized.c; MAKER_ALIKE: operators with the flag HAL_OP_DECLINES_ALIKE.
 *
 * The base runs inline (HAL_FAKE_ASYNC=0): operators compute when they are called. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "maker.h"

/* ---- the log of an operator ---- */

static void write_list(FILE *log, const int64_t *list, int64_t count) {
  fputc('[', log);
  for (int64_t i = 0; i < count; i++) fprintf(log, "%s%lld", i ? ", " : "", (long long)list[i]);
  fputc(']', log);
}

static void write_tensor(FILE *log, const hal_tensor_t *tensor) {
  if (!tensor) return (void)fputs("null", log);
  fprintf(log, "{\"dtype\": %d, \"sizes\": ", (int)tensor->dtype);
  write_list(log, tensor->sizes, tensor->ndim);
  fputs(", \"strides\": ", log);
  write_list(log, tensor->strides, tensor->ndim);
  fputc('}', log);
}

static void write_value(FILE *log, const hal_value_t *value) {
  switch (value->tag) {
    case HAL_VALUE_NONE:
      fputs("null", log);
      break;
    case HAL_VALUE_BOOL:
      fputs(value->u.i ? "true" : "false", log);
      break;
    case HAL_VALUE_INT:
      fprintf(log, "%lld", (long long)value->u.i);
      break;
    case HAL_VALUE_DOUBLE:
      fprintf(log, "%.17g", value->u.d);
      break;
    case HAL_VALUE_TENSOR:
      write_tensor(log, value->u.t);
      break;
    case HAL_VALUE_INT_LIST:
      write_list(log, value->u.il, value->count);
      break;
    case HAL_VALUE_TENSOR_LIST:
      fputc('[', log);
      for (uint32_t i = 0; i < value->count; i++) {
        if (i) fputs(", ", log);
        write_tensor(log, value->u.tl[i]);
      }
      fputc(']', log);
      break;
    default:
      fprintf(log, "\"tag %u\"", (unsigned)value->tag);
  }
}

static void write_call(const char *name, const hal_op_call_t *call, int declined) {
  const char *const path = getenv("MAKER_LOG");
  FILE *const log = path ? fopen(path, "a") : NULL;
  if (!log) return;
  fprintf(log, "{\"op\": \"%s\", \"declined\": %s, \"state\": [%llu, %llu], \"args\": [", name,
          declined ? "true" : "false", (unsigned long long)call->seed, (unsigned long long)call->offset);
  for (uint32_t i = 0; i < call->arg_count; i++) {
    if (i) fputs(", ", log);
    write_value(log, &call->args[i]);
  }
  fputs("], \"results\": [", log);
  for (uint32_t i = 0; i < call->result_count; i++) {
    if (i) fputs(", ", log);
    write_tensor(log, call->results[i]);
  }
  fputs("]}\n", log);
  fclose(log);
}

static int lists(const char *variable, const char *name) {
  const char *const listed = getenv(variable);
  if (!listed) return 0;
  const size_t length = strlen(name);
  for (const char *at = listed; *at; at += *at == ',') {
    const size_t size = strcspn(at, ",");
    if ((size == 1 && *at == '*') || (size == length && memcmp(at, name, size) == 0)) return 1;
    at += size;
  }
  return 0;
}

static hal_status_t run(void *state, const hal_op_call_t *call) {
  const maker_operator_t *const operator= state;
  hal_status_t status = !operator->run || lists("MAKER_DECLINES", operator->name) ? HAL_UNIMPLEMENTED : HAL_OK;
  for (uint32_t k = 0; k < call->arg_count; k++)
    if (!computes(tensor_at(call, k))) status = HAL_UNIMPLEMENTED;
  for (uint32_t k = 0; k < call->result_count; k++)
    if (!computes(call->results[k])) status = HAL_UNIMPLEMENTED;
  if (!status) status = operator->run(call);
  write_call(operator->name, call, status != HAL_OK);
  return status;
}

/* ---- the plugin ---- */

static hal_status_t (*base_info)(hal_plugin_info_t *out_info);

static hal_status_t info(hal_plugin_info_t *out_info) {
  const hal_status_t status = base_info(out_info);
  out_info->name = "maker";
  return status;
}

static const maker_operator_t *operator_of(const char *name) {
  for (const maker_operator_t *at = maker_operators; at->name; at++)
    if (strcmp(at->name, name) == 0) return at;
  for (const maker_operator_t *at = maker_sized; at->name; at++)
    if (strcmp(at->name, name) == 0 && lists("MAKER_HAS", name)) return at;
  if (!lists("MAKER_WATCHES", name)) return NULL;
  maker_operator_t *const watched = calloc(1, sizeof *watched); /* logged, and left to the portable kernels */
  if (watched) watched->name = strdup(name);
  return watched;
}

static hal_status_t find(int32_t device, const char *name, hal_op_own_t *out_op) {
  (void)device;
  const maker_operator_t *const operator= operator_of(name);
  if (!operator) return HAL_NOT_FOUND;
  out_op->fn = run;
  out_op->state = (void *)(uintptr_t) operator;
  out_op->dtypes = HAL_ALL_DTYPES;
  out_op->layouts = HAL_TAKES_ALL;
  out_op->flags = lists("MAKER_ALIKE", name) ? HAL_OP_DECLINES_ALIKE : 0;
  return HAL_OK;
}

HAL_PLUGIN_EXPORT hal_status_t hal_plugin_entry(const hal_host_api_t *host, hal_plugin_api_t *api) {
  void *const base = dlopen(getenv("MAKER_BASE"), RTLD_NOW | RTLD_LOCAL);
  hal_plugin_entry_fn_t entry = NULL;
  if (base) *(void **)&entry = dlsym(base, "hal_plugin_entry");
  if (!entry) return host->error_set(HAL_NOT_FOUND, 0, "maker: MAKER_BASE names no plugin");
  const hal_status_t status = entry(host, api);
  if (status) return status;
  base_info = api->info;
  api->info = info;
  api->op_find = find;
  return HAL_OK;
}
