/* store.c: the values that the ranks of a transport exchange through the store. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/status_internal.h"
#include "comm/hierarchy/internal.h"
#include "comm/shm/system.h"

static const int64_t slice_ns = 50 * 1000 * 1000; /* between two reads of the failure */
static const int64_t glance_ns = 1000 * 1000;     /* for keys that may be missing */

static void key_of(const hal_hier_store_t *store, const char *key, char *out) {
  snprintf(out, HAL_HIER_KEY, "%s/hosts/%s", store->name, key);
}

hal_status_t hal_hier_store_set(const hal_hier_store_t *store, const char *key, const void *value, size_t size) {
  char full[HAL_HIER_KEY];
  key_of(store, key, full);
  return hal_shm_store_set(&store->table, full, value, size);
}

int hal_hier_store_look(const hal_hier_store_t *store, const char *key, int64_t timeout_ns, void *out, size_t size) {
  char full[HAL_HIER_KEY];
  size_t length = 0;
  hal_error_saved_t saved; /* a missing key is no error */
  hal_error_save(&saved);
  key_of(store, key, full);
  const hal_status_t status = hal_shm_store_get(&store->table, full, timeout_ns, out, size, &length);
  hal_error_restore(&saved);
  return !status && length == size;
}

int hal_hier_store_failed(const hal_hier_store_t *store, hal_hier_words_t *out) {
  if (!hal_hier_store_look(store, "failed", glance_ns, out, sizeof *out)) return 0;
  out->text[sizeof out->text - 1] = '\0';
  if (!out->code) out->code = HAL_INTERNAL;
  return 1;
}

void hal_hier_store_fail(const hal_hier_store_t *store, hal_status_t code, const char *text) {
  hal_hier_words_t words = {.code = code}, earlier;
  if (hal_hier_store_failed(store, &earlier)) return;
  snprintf(words.text, sizeof words.text, "%s", text);
  (void)hal_hier_store_set(store, "failed", &words, sizeof words);
}

/* ---- a store that fails with the first rank ---- */

static hal_status_t guarded_set(void *context, const char *key, const void *value, size_t size) {
  const hal_hier_guard_t *const guard = context;
  return hal_shm_store_set(&guard->store->table, key, value, size);
}

static hal_status_t guarded_get(void *context, const char *key, int64_t timeout_ns, void *out, size_t capacity,
                                size_t *out_size) {
  hal_hier_guard_t *const guard = context;
  for (int64_t left = timeout_ns;; left -= slice_ns) {
    const hal_status_t status =
        hal_shm_store_get(&guard->store->table, key, left < slice_ns ? left : slice_ns, out, capacity, out_size);
    if (status != HAL_NOT_READY) return status;
    const int64_t now = hal_clock_ns();
    hal_hier_words_t words;
    if (now - atomic_load(&guard->looked_ns) >= slice_ns) {
      atomic_store(&guard->looked_ns, now);
      /* HAL_NOT_READY would mean a missing key. */
      if (hal_hier_store_failed(guard->store, &words)) return hal_error_set(HAL_ABORTED, "%s", words.text);
    }
    if (left <= slice_ns)
      return hal_error_set(HAL_NOT_READY, "the store has no key '%s' after %.3f s", key, (double)timeout_ns / 1e9);
  }
}

hal_comm_store_t hal_hier_guarded(hal_hier_guard_t *guard) {
  return (hal_comm_store_t){
      .struct_size = sizeof(hal_comm_store_t), .context = guard, .set = guarded_set, .get = guarded_get};
}
