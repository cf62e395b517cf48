/* hierarchy.h: collectives between ranks on several hosts: shared memory within a host, other transports between hosts.
 * Private to hal/src. */
#ifndef HAL_SRC_COMM_HIERARCHY_HIERARCHY_H_
#define HAL_SRC_COMM_HIERARCHY_HIERARCHY_H_

#include "hal/comm.h"

/* Creates the transport, as hal_comm_transport_hierarchical does. `forged_host`, for tests, is a part of the host's
 * identity: ranks with different texts count as different hosts; NULL = "". */
hal_status_t hal_hier_create(const hal_comm_hosts_t *config, const char *forged_host, hal_comm_transport_t *out);

#endif /* HAL_SRC_COMM_HIERARCHY_HIERARCHY_H_ */
