/* graph.h: recordings: what graph.c captures and graph_exec.c runs. Private. */
#ifndef FAKE_GRAPH_H_
#define FAKE_GRAPH_H_

#include "fake.h"

typedef struct fake_node_s {
  alignas(16) struct fake_node_s *next; /* the item follows */
} fake_node_t;

/* Captured work, which no longer changes. Shared by graphs, instances and queued launches. */
struct fake_recording_s {
  atomic_uint refs;
  uint64_t count;
  fake_node_t *first, **end;
  fake_branches_t branches; /* with the class race of HAL_FAKE_SANITIZE */
};

struct hal_plugin_graph_s {
  fake_recording_t *recording;
  int32_t device;
};

static inline fake_item_t *fake_node_item(const fake_node_t *node) {
  return (fake_item_t *)(void *)(uintptr_t)(node + 1);
}

static inline fake_recording_t *fake_recording_ref(fake_recording_t *recording) {
  atomic_fetch_add_explicit(&recording->refs, 1, memory_order_relaxed);
  return recording;
}

#endif /* FAKE_GRAPH_H_ */
