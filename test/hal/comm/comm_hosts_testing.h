/* comm_hosts_testing.h: ranks of one machine that count as several hosts. Shared memory also works between these
 * "hosts". */
#ifndef TEST_HAL_COMM_HOSTS_TESTING_H_
#define TEST_HAL_COMM_HOSTS_TESTING_H_

#include "comm/hierarchy/hierarchy.h"
#include "comm_testing.h"

/* The host of each rank: "0011" are two hosts of two ranks. */
static const char *layout;

static inline hal_status_t connect_ranks(void *context, const char *use, int32_t rank, int32_t size,
                                         const hal_comm_store_t *store, int64_t timeout_ns, hal_comm_transport_t *out) {
  char name[128];
  snprintf(name, sizeof name, "%s/%s", (const char *)context, use);
  return hal_comm_shm_create(store, name, rank, size, timeout_ns, out);
}

static inline hal_comm_hosts_t hosts_config(const char *name, int rank, int size, int64_t timeout_ns) {
  return (hal_comm_hosts_t){.struct_size = sizeof(hal_comm_hosts_t),
                            .store = &test_store,
                            .name = name,
                            .rank = rank,
                            .size = size,
                            .timeout_ns = timeout_ns,
                            .context = (void *)(uintptr_t)name,
                            .connect = connect_ranks};
}

static inline hal_status_t try_hosts(const hal_comm_hosts_t *config, hal_comm_transport_t *out) {
  const char host[2] = {layout[config->rank], '\0'};
  return hal_hier_create(config, host, out);
}

static inline void create_hosts(const char *name, int rank, int size, hal_comm_transport_t *out) {
  const hal_comm_hosts_t config = hosts_config(name, rank, size, 20 * (int64_t)SECOND);
  CHECK_OK(try_hosts(&config, out));
}

/* Runs as many ranks as the layout has. */
static inline void run_hosts(const char *hosts, rank_t function, void *argument) {
  layout = hosts;
  run_ranks((int)strlen(hosts), function, argument);
}

#endif /* TEST_HAL_COMM_HOSTS_TESTING_H_ */
