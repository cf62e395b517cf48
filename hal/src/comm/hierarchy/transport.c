/* transport.c: creates and destroys the transport, and implements its functions. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/host_malloc.h"
#include "base/status_internal.h"
#include "base/text.h"
#include "comm/hierarchy/internal.h"

static int64_t deadline_of(int64_t timeout_ns) {
  int64_t deadline;
  if (__builtin_add_overflow(hal_clock_ns(), timeout_ns > 0 ? timeout_ns : 0, &deadline)) deadline = INT64_MAX;
  return deadline;
}

/* ---- running ---- */

static hal_status_t run_one(hal_hier_run_t *run, const hal_hier_call_t *call) {
  switch (call->desc.op) {
    case HAL_COMM_ALL_REDUCE:
    case HAL_COMM_REDUCE:
      return hal_hier_run_reduction(run, call);
    case HAL_COMM_REDUCE_SCATTER:
      return hal_hier_run_reduce_scatter(run, call);
    case HAL_COMM_BROADCAST:
      return hal_hier_run_broadcast(run, call);
    case HAL_COMM_ALL_GATHER:
      return hal_hier_run_all_gather(run, call);
    case HAL_COMM_ALL_TO_ALL:
    case HAL_COMM_GATHER:
    case HAL_COMM_SCATTER:
      return hal_hier_run_exchange(run, call);
    default: /* a barrier is only the comparison */
      return HAL_OK;
  }
}

static void describe(hal_hier_run_t *run, const hal_collective_t *call, uint64_t number) {
  const int is_message = hal_comm_op_is_message(call->op);
  char *const what = run->what;
  what[0] = '\0';
  hal_text_append(what, sizeof run->what, "%s", hal_comm_op_name(call->op));
  if (!is_message) hal_text_append(what, sizeof run->what, " #%llu", (unsigned long long)number);
  if (is_message)
    hal_text_append(what, sizeof run->what, " %s rank %d", call->op == HAL_COMM_SEND ? "to" : "from", (int)call->peer);
  if (call->op == HAL_COMM_BARRIER) return;
  hal_text_append(what, sizeof run->what, " (%s, %llu elements)", hal_dtype_name(call->dtype),
                  (unsigned long long)call->count);
}

static hal_status_t run_collectives(hal_hier_run_t *run, const hal_collective_t *calls, uint32_t count) {
  hal_hier_t *const hier = run->hier;
  hal_hier_call_t few[4] = {0};
  hal_hier_call_t *const compared =
      count <= sizeof few / sizeof *few ? few : hal_calloc(count, sizeof(hal_hier_call_t));
  describe(run, calls, hier->sequence + 1);
  if (!compared) {
    hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory for a bracket of %u collectives", count);
    return hal_hier_fail_by_last(run, HAL_RESOURCE_EXHAUSTED);
  }
  hal_status_t status = hal_hier_compare(run, calls, count, compared);
  if (!status && hier->is_flat) status = hal_hier_whole(run, calls, count);
  for (uint32_t i = 0; !status && !hier->is_flat && i < count; i++) {
    if (i) describe(run, &compared[i].desc, hier->sequence + i + 1);
    status = run_one(run, &compared[i]);
  }
  hier->sequence += count;
  hal_hier_calls_free(compared, count);
  hal_hier_buffers_trim(hier);
  if (compared != few) hal_free(compared);
  return status;
}

/* Uses the host's shared memory if the receiver is on the same host, else the transport that connects all ranks. */
static hal_status_t run_message(hal_hier_run_t *run, const hal_collective_t *calls) {
  const hal_hier_t *const hier = run->hier;
  hal_collective_t call = *calls;
  HAL_RETURN_IF_ERROR(hal_comm_check(hier->shape, &call));
  describe(run, &call, 0);
  run->is_message = 1;
  if (hier->at.host_of[call.peer] != hier->at.host) return hal_hier_outer(run, call);
  call.peer = hier->at.local_of[call.peer];
  return hal_hier_inner(run, call);
}

static hal_status_t check_bracket(const hal_collective_t *calls, uint32_t count) {
  if (!calls) return hal_error_set(HAL_INVALID_ARGUMENT, "%u calls are NULL", count);
  if (calls->struct_size < sizeof *calls)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_collective_t: struct_size is %zu; set it to sizeof(hal_collective_t)",
                         calls->struct_size);
  for (uint32_t i = 0; i < count && count > 1; i++)
    if (hal_comm_op_is_message(calls[i].op))
      return hal_error_set(HAL_INVALID_ARGUMENT, "a bracket of %u calls has a %s; bring each SEND and RECV alone",
                           count, hal_comm_op_name(calls[i].op));
  return HAL_OK;
}

static hal_status_t run(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  hal_hier_t *const hier = context;
  if ((int32_t)getpid() != hier->pid)
    return hal_error_set(HAL_FAILED_PRECONDITION,
                         "communicator '%s' belongs to the process that created it, %d, and this is a child: create "
                         "one here",
                         hier->store.name, (int)hier->pid);
  hal_hier_run_t step = {.hier = hier, .timeout_ns = timeout_ns, .deadline_ns = deadline_of(timeout_ns)};
  step.grace_ns = timeout_ns / 20 < 500000000 ? timeout_ns / 20 : 500000000;
  hal_status_t status = hal_hier_failed(hier);
  if (!status && count) status = check_bracket(calls, count);
  if (!status && count) {
    const int is_message = hal_comm_op_is_message(calls->op);
    hal_hier_watch_run(hier->watch, is_message, 1);
    status = is_message ? run_message(&step, calls) : run_collectives(&step, calls, count);
    hal_hier_watch_run(hier->watch, is_message, 0);
    if (status) hal_hier_watch_flush(hier->watch);
  }
  return status ? hal_error_prefix(status, "communicator '%s': ", hier->store.name) : HAL_OK;
}

static void abort_transport(void *context, const char *reason) {
  hal_hier_t *const hier = context;
  char text[HAL_HIER_TEXT] = "";
  if ((int32_t)getpid() != hier->pid) return;
  hal_text_append(text, sizeof text, "rank %d aborted: %s", (int)hier->at.rank, reason ? reason : "no reason is given");
  hal_error_saved_t saved; /* error of the caller, which reports it */
  hal_error_save(&saved);
  hal_hier_fail(hier, HAL_ABORTED, text);
  hal_error_restore(&saved);
}

/* Requests that the watcher looks for failures of other ranks. The result is available after the look. */
static hal_status_t query(void *context) {
  hal_hier_t *const hier = context;
  const hal_comm_transport_t *const inner = &hier->inner;
  if ((int32_t)getpid() != hier->pid) return HAL_OK;
  hal_status_t status = hal_hier_failed(hier);
  if (!status) hal_hier_watch_query(hier->watch);
  if (!status && inner->run && inner->query && (status = inner->query(inner->context))) {
    char words[HAL_HIER_TEXT], text[HAL_HIER_TEXT] = "";
    snprintf(words, sizeof words, "%s", hal_error_message());
    hal_text_append(text, sizeof text, "among ");
    hal_hier_append_host(&hier->at, hier->at.host, text, sizeof text);
    status = hal_error_set(status, "%s of one host, there numbered from 0: %s", text, words);
  }
  return status ? hal_error_prefix(status, "communicator '%s': ", hier->store.name) : HAL_OK;
}

/* ---- lifetime ---- */

static void destroy(void *context) {
  hal_hier_t *const hier = context;
  if ((int32_t)getpid() == hier->pid) { /* a child has neither the thread nor the connections */
    hal_hier_watch_end(hier->watch);
    if (hier->messages.run && !hier->messages_are_outer) hier->messages.destroy(hier->messages.context);
    if (hier->outer.run) hier->outer.destroy(hier->outer.context);
  }
  if (hier->inner.run) hier->inner.destroy(hier->inner.context);
  for (int buffer = 0; buffer < HAL_HIER_BUFFERS; buffer++) hal_free(hier->buffers[buffer]);
  hal_hier_layout_free(&hier->at);
  hal_free(hier->shape);
  hal_free(hier);
}

static hal_status_t check_config(const hal_comm_hosts_t *config, const void *out) {
  if (!config || config->struct_size < sizeof *config)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "hal_comm_hosts_t: struct_size is %zu; set it to sizeof(hal_comm_hosts_t)",
                         config ? config->struct_size : 0);
  if (!config->store || !config->store->set || !config->store->get || !config->name || !config->connect || !out)
    return hal_error_set(
        HAL_INVALID_ARGUMENT,
        "a communicator over hosts needs a store with set and get, a name, `connect` and an address for the result");
  if (strlen(config->name) >= HAL_HIER_NAME)
    return hal_error_set(HAL_OUT_OF_RANGE, "the name of a communicator has %zu bytes, and at most %d are possible",
                         strlen(config->name), HAL_HIER_NAME - 1);
  if (config->size < 2)
    return hal_error_set(HAL_UNIMPLEMENTED, "communicator '%s': %d ranks; between hosts there are at least 2",
                         config->name, (int)config->size);
  if (config->rank < 0 || config->rank >= config->size)
    return hal_error_set(HAL_INVALID_ARGUMENT, "communicator '%s': rank %d is out of range: there are %d ranks",
                         config->name, (int)config->rank, (int)config->size);
  return HAL_OK;
}

static hal_status_t connect(const hal_comm_hosts_t *config, hal_hier_t *hier, int64_t deadline_ns, const char *use,
                            int32_t rank, int32_t size, hal_comm_transport_t *out) {
  hal_hier_guard_t guard = {.store = &hier->store};
  const hal_comm_store_t guarded = hal_hier_guarded(&guard);
  const int64_t left = deadline_ns - hal_clock_ns();
  const uint64_t mark = hal_error_mark();
  const hal_status_t status = hal_error_since(
      mark, config->connect(config->context, use, rank, size, &guarded, left > 1000000 ? left : 1000000, out));
  if (status) memset(out, 0, sizeof *out);
  return status ? hal_error_prefix(status, "connecting %s: ", use) : HAL_OK;
}

static hal_status_t connect_hosts(const hal_comm_hosts_t *config, hal_hier_t *hier, int64_t deadline_ns) {
  const hal_hier_layout_t *const at = &hier->at;
  char use[32];
  snprintf(use, sizeof use, "column %d", (int)at->local);
  if (at->local < at->columns)
    HAL_RETURN_IF_ERROR(connect(config, hier, deadline_ns, use, at->host, at->hosts, &hier->outer));
  hier->messages_are_outer = at->hosts == at->size;
  if (hier->messages_are_outer)
    hier->messages = hier->outer;
  else
    HAL_RETURN_IF_ERROR(connect(config, hier, deadline_ns, "messages", at->rank, at->size, &hier->messages));
  int32_t *const done = hal_calloc((size_t)at->size, sizeof *done);
  if (!done) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for %d ranks", (int)at->size);
  const hal_status_t status =
      hal_hier_meet_share(config, &hier->store, "connected", deadline_ns, &at->host, sizeof at->host, done);
  hal_free(done);
  return status;
}

static hal_hier_t *allocate(const hal_comm_hosts_t *config) {
  hal_hier_t *const hier = hal_calloc(1, sizeof *hier);
  if (!hier) return NULL;
  hier->store.table = *config->store;
  snprintf(hier->store.name, sizeof hier->store.name, "%s", config->name);
  hier->shape = hal_calloc(1, sizeof *hier->shape);
  if (hier->shape) hier->watch = hal_hier_watch_create(&hier->store, config->release, config->context);
  if (!hier->watch) {
    hal_free(hier->shape);
    hal_free(hier);
    return NULL;
  }
  hier->pid = (int32_t)getpid();
  hier->is_flat = (config->flags & HAL_COMM_HOSTS_FLAT) != 0;
  hier->shape->rank = config->rank, hier->shape->size = config->size;
  hier->at.rank = config->rank;
  return hier;
}

/* Returns whether all ranks know that no two of them are on one host. The caller does not want such a transport. */
static int are_apart(const hal_comm_hosts_t *config, const hal_hier_t *hier) {
  return (config->flags & HAL_COMM_HOSTS_SHARED) && hier->at.hosts == config->size;
}

static hal_status_t create(const hal_comm_hosts_t *config, const char *forged_host, hal_hier_t *hier) {
  const int64_t deadline = deadline_of(config->timeout_ns);
  hal_hier_layout_t *const at = &hier->at;
  HAL_RETURN_IF_ERROR(hal_hier_meet(config, &hier->store, forged_host, deadline, at, &hier->inner));
  if (at->hosts == 1) return HAL_OK;
  if (are_apart(config, hier))
    return hal_error_set(HAL_UNIMPLEMENTED, "no two of the %d ranks are on one host; use another transport",
                         (int)at->size);
  HAL_RETURN_IF_ERROR(connect_hosts(config, hier, deadline));
  return hal_hier_watch_start(hier->watch, hier);
}

/* If a rank has stored an error, all ranks return it. Otherwise this rank stores its own error. */
static hal_status_t fail_for_all(const hal_comm_hosts_t *config, hal_hier_t *hier, hal_status_t status) {
  char text[HAL_HIER_TEXT];
  hal_hier_words_t words;
  snprintf(text, sizeof text, "%s", hal_error_message());
  if (hal_hier_store_failed(&hier->store, &words)) return hal_error_set(words.code, "%s", words.text);
  hal_error_set(status, "rank %d: %s", (int)config->rank, text);
  hal_hier_store_fail(&hier->store, status, hal_error_message());
  return hal_error_set(status, "rank %d: %s", (int)config->rank, text);
}

hal_status_t hal_hier_create(const hal_comm_hosts_t *config, const char *forged_host, hal_comm_transport_t *out) {
  const hal_status_t checked = check_config(config, out);
  if (checked) {
    if (config && config->struct_size >= sizeof *config && config->release) config->release(config->context);
    return checked;
  }
  hal_hier_t *const hier = allocate(config);
  if (!hier) { /* the others need not wait */
    hal_hier_store_t store = {.table = *config->store};
    snprintf(store.name, sizeof store.name, "%s", config->name);
    hal_hier_store_fail(&store, HAL_RESOURCE_EXHAUSTED, "a rank has no host memory; free some memory");
    if (config->release) config->release(config->context);
    return hal_error_set(HAL_RESOURCE_EXHAUSTED, "communicator '%s': no host memory; free some memory", config->name);
  }
  hal_status_t status = create(config, forged_host, hier);
  if (status) {
    if (!are_apart(config, hier)) status = fail_for_all(config, hier, status);
    hal_error_prefix(status, "communicator '%s': ", config->name);
  }
  const int is_one_host = !status && hier->at.hosts == 1;
  if (is_one_host) *out = hier->inner;
  if (is_one_host) memset(&hier->inner, 0, sizeof hier->inner);
  if (status || is_one_host) {
    destroy(hier);
    return status;
  }
  *out = (hal_comm_transport_t){.struct_size = sizeof *out,
                                .context = hier,
                                .name = hier->is_flat ? hier->outer.name : "hierarchical",
                                .run = run,
                                .abort = abort_transport,
                                .destroy = destroy,
                                .flags = HAL_COMM_COMPARES_CALLS,
                                .query = query};
  return HAL_OK;
}

hal_status_t hal_comm_transport_hierarchical(const hal_comm_hosts_t *hosts, hal_comm_transport_t *out_transport) {
  return hal_hier_create(hosts, NULL, out_transport);
}
