/* numa.c: see numa.h. Drivers report the PCI address more often than the node; the kernel knows both. */
#include "device/numa.h"

#include <stdio.h>

void hal_numa_complete(const char *folder, hal_device_info_t *inout_info) {
  char path[512];
  int node = -1; /* the kernel's value on a machine with one node */
  const uint32_t domain = inout_info->pci_domain, bus = inout_info->pci_bus, slot = inout_info->pci_device;
  if (inout_info->known & HAL_DEVICE_KNOWS_NUMA_NODE) return;
  if (!domain && !bus && !slot) return; /* no address: 0:0.0 is the root of the bus */
  const int length = snprintf(path, sizeof path, "%s/%04x:%02x:%02x.%x/numa_node", folder, (unsigned)domain,
                              (unsigned)bus, (unsigned)slot, (unsigned)inout_info->pci_function);
  if (length < 0 || length >= (int)sizeof path) return;
  FILE *const file = fopen(path, "re");
  if (!file) return;
  const int found = fscanf(file, "%d", &node) == 1 && node >= 0;
  fclose(file);
  if (!found) return;
  inout_info->numa_node = node;
  inout_info->known |= HAL_DEVICE_KNOWS_NUMA_NODE;
}
