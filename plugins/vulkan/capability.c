/* capability.c: checks that a device has the capabilities that a module requires. A driver may crash on a module that
 * uses a feature which is missing or not enabled. */
#include "module.h"

enum { HEADER_WORDS = 5, OP_CAPABILITY = 17, MATRIX = 0, SHADER = 1 };

/* Capabilities that need a feature; the bit of a device's capability is its index here. Operations of subgroups come
 * last, in the order of the bits of subgroupSupportedOperations. */
static const struct {
  uint32_t number;
  const char *feature;
} capabilities[] = {{9, "shaderFloat16"},
                    {10, "shaderFloat64"},
                    {11, "shaderInt64"},
                    {22, "shaderInt16"},
                    {39, "shaderInt8"},
                    {4433, "storageBuffer16BitAccess"},
                    {4434, "uniformAndStorageBuffer16BitAccess"},
                    {4435, "storagePushConstant16"},
                    {4448, "storageBuffer8BitAccess"},
                    {4449, "uniformAndStorageBuffer8BitAccess"},
                    {4450, "storagePushConstant8"},
                    {4441, "variablePointersStorageBuffer"},
                    {4442, "variablePointers"},
                    {5345, "vulkanMemoryModel"},
                    {5346, "vulkanMemoryModelDeviceScope"},
                    {61, "operations of subgroups"},
                    {62, "votes of subgroups"},
                    {63, "arithmetic of subgroups"},
                    {64, "ballots of subgroups"},
                    {65, "shuffles of subgroups"},
                    {66, "relative shuffles of subgroups"},
                    {67, "clusters of subgroups"},
                    {68, "quads of subgroups"}};
enum { CAPABILITIES = sizeof capabilities / sizeof *capabilities, SUBGROUPS = 8 };

uint32_t vulkan_capabilities(const VkPhysicalDeviceFeatures *all, const VkPhysicalDeviceVulkan11Features *all11,
                             const VkPhysicalDeviceVulkan12Features *all12, uint32_t subgroup_operations) {
  const VkBool32 enabled[CAPABILITIES - SUBGROUPS] = {all12->shaderFloat16,
                                                      all->shaderFloat64,
                                                      all->shaderInt64,
                                                      all->shaderInt16,
                                                      all12->shaderInt8,
                                                      all11->storageBuffer16BitAccess,
                                                      all11->uniformAndStorageBuffer16BitAccess,
                                                      all11->storagePushConstant16,
                                                      all12->storageBuffer8BitAccess,
                                                      all12->uniformAndStorageBuffer8BitAccess,
                                                      all12->storagePushConstant8,
                                                      all11->variablePointersStorageBuffer,
                                                      all11->variablePointers,
                                                      all12->vulkanMemoryModel,
                                                      all12->vulkanMemoryModelDeviceScope};
  uint32_t bits = (subgroup_operations & ((1u << SUBGROUPS) - 1)) << (CAPABILITIES - SUBGROUPS);
  for (uint32_t i = 0; i < CAPABILITIES - SUBGROUPS; i++) bits |= (uint32_t)(enabled[i] != 0) << i;
  return bits;
}

static hal_status_t check(const vulkan_device_t *device, uint32_t number, size_t size) {
  uint32_t i = 0;
  if (number == MATRIX || number == SHADER) return HAL_OK;
  while (i < CAPABILITIES && capabilities[i].number != number) i++;
  if (i < CAPABILITIES && device->capabilities >> i & 1) return HAL_OK;
  if (i < CAPABILITIES)
    return vulkan_error(HAL_UNIMPLEMENTED, 0,
                        "vulkan: a module of %zu bytes requires %s, which '%s' does not support; compile the module "
                        "without it",
                        size, capabilities[i].feature, device->facts.deviceName);
  return vulkan_error(HAL_UNIMPLEMENTED, 0,
                      "vulkan: a module of %zu bytes requires the capability %u of SPIR-V, which the plugin does not "
                      "enable; compile the module without it",
                      size, (unsigned)number);
}

hal_status_t vulkan_check_capabilities(const vulkan_device_t *device, const uint32_t *words, size_t count) {
  hal_status_t status = HAL_OK;
  for (size_t at = HEADER_WORDS; !status && at + 1 < count && words[at] == (2u << 16 | OP_CAPABILITY); at += 2)
    status = check(device, words[at + 1], count * sizeof *words);
  return status;
}
