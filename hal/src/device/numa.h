/* numa.h: the NUMA node of a device whose plugin does not report it. Private to hal/src. */
#ifndef HAL_SRC_NUMA_H_
#define HAL_SRC_NUMA_H_

#include "hal/plugin.h"

/* The folder in which Linux describes PCI devices. */
#define HAL_NUMA_PCI_FOLDER "/sys/bus/pci/devices"

/* Sets numa_node from the PCI address if the plugin reported an address and no node, and the system knows it. `folder`
 * as above. */
void hal_numa_complete(const char *folder, hal_device_info_t *inout_info);

#endif /* HAL_SRC_NUMA_H_ */
