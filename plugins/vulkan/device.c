/* device.c: opens a device, and reports its properties to the host. */
#include <hal/plugin_setting.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "vulkan_plugin.h"

enum { MOST_EXTENSIONS = 512 };

/* ---- properties ------------------------------------------------------------------------------------------------- */

/* Extensions that are enabled where the driver has them. */
enum { NON_SEMANTIC, MEMORY_BUDGET, PCI_BUS, HOST_MEMORY, MEMORY_FILE, EXTENSIONS };
static const char *const extension_names[EXTENSIONS] = {"VK_KHR_shader_non_semantic_info", "VK_EXT_memory_budget",
                                                        "VK_EXT_pci_bus_info", "VK_EXT_external_memory_host",
                                                        "VK_KHR_external_memory_fd"};

static VkResult find_extensions(VkPhysicalDevice physical, int has[EXTENSIONS]) {
  uint32_t count = MOST_EXTENSIONS;
  VkExtensionProperties *const all = hal_host->mem_alloc(MOST_EXTENSIONS * sizeof *all, alignof(VkExtensionProperties));
  if (!all) return VK_ERROR_OUT_OF_HOST_MEMORY;
  VkResult code = vk.EnumerateDeviceExtensionProperties(physical, NULL, &count, all);
  if (code == VK_INCOMPLETE) code = VK_SUCCESS;
  for (uint32_t i = 0; i < count && !code; i++)
    for (int k = 0; k < EXTENSIONS; k++) has[k] |= strcmp(all[i].extensionName, extension_names[k]) == 0;
  hal_host->mem_free(all);
  return code;
}

static void read_facts(vulkan_device_t *device, const int has[EXTENSIONS]) {
  VkPhysicalDevicePCIBusInfoPropertiesEXT pci = {.sType =
                                                     VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT};
  VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT,
      .pNext = has[PCI_BUS] ? &pci : NULL};
  VkPhysicalDeviceVulkan12Properties facts12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES,
                                                .pNext = has[HOST_MEMORY] ? (void *)&host : host.pNext};
  VkPhysicalDeviceVulkan11Properties facts11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
                                                .pNext = &facts12};
  VkPhysicalDeviceProperties2 facts = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &facts11};
  VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  VkQueueFamilyProperties family = {0};
  vk.GetPhysicalDeviceProperties2(device->physical, &facts);
  vk.GetPhysicalDeviceMemoryProperties2(device->physical, &memory);
  device->facts = facts.properties;
  device->facts.deviceName[sizeof device->facts.deviceName - 1] = '\0';
  for (char *at = device->facts.deviceName; *at; at++) /* it is part of messages and file names */
    if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
  device->memory = memory.memoryProperties;
  device->largest_allocation = facts11.maxMemoryAllocationSize;
  device->subgroup = facts11.subgroupSize;
  if (facts11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT)
    device->subgroup_operations = facts11.subgroupSupportedOperations;
  memcpy(device->uuid, facts11.deviceUUID, sizeof device->uuid);
  memcpy(device->sharing_id, facts11.deviceUUID, VK_UUID_SIZE);
  memcpy(device->sharing_id + VK_UUID_SIZE, facts11.driverUUID, VK_UUID_SIZE);
  device->uuid[VK_UUID_SIZE - 1] = (char)(device->uuid[VK_UUID_SIZE - 1] ^ device->ordinal); /* HAL_VULKAN_REPEAT */
  snprintf(device->driver, sizeof device->driver, "%.30s %.30s", facts12.driverName, facts12.driverInfo);
  memcpy(device->pci, (uint32_t[]){pci.pciDomain, pci.pciBus, pci.pciDevice, pci.pciFunction}, sizeof device->pci);
  device->family = vulkan_queue_family(device->physical, &family);
  device->timestamp_bits = family.timestampValidBits;
  device->queue_count = family.queueCount < VULKAN_MAX_QUEUES ? family.queueCount : VULKAN_MAX_QUEUES;
  device->has_budget = has[MEMORY_BUDGET];
  device->host_alignment = host.minImportedHostPointerAlignment;
}

/* Functions of extensions are not exported by the loader. */
static PFN_vkVoidFunction find_function(const vulkan_device_t *device, int is_supported, const char *name) {
  return is_supported ? vk.GetDeviceProcAddr(device->handle, name) : NULL;
}

/* Looks up the function by which the device imports memory of the host. */
static void find_host_import(vulkan_device_t *device, const int has[EXTENSIONS]) {
  const PFN_vkVoidFunction found = find_function(device, has[HOST_MEMORY], "vkGetMemoryHostPointerPropertiesEXT");
  memcpy(&device->host_pointer, &found, sizeof found);
}

/* Reads HAL_VULKAN_SHARE, and returns the number of segments that other processes can open. Drivers for CPUs keep a
 * file open for each, so they get a quarter of the files that the process may open. */
static hal_status_t read_sharing(const vulkan_device_t *device, uint32_t *out_most) {
  const char *const wanted = hal_setting("HAL_VULKAN_SHARE");
  struct rlimit files;
  *out_most = UINT32_MAX / 2;
  if (device->facts.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU && !getrlimit(RLIMIT_NOFILE, &files) &&
      files.rlim_cur / 4 < *out_most)
    *out_most = (uint32_t)(files.rlim_cur / 4);
  if (!wanted || !*wanted || strcmp(wanted, "1") == 0) return HAL_OK;
  *out_most = 0;
  if (strcmp(wanted, "0") == 0) return HAL_OK;
  return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: HAL_VULKAN_SHARE is '%.100s'; set it to 0 or 1, or unset it",
                      wanted);
}

/* Looks up the function by which memory of buffers becomes a file, if they can be exported and imported. */
static void find_sharing(vulkan_device_t *device, const int has[EXTENSIONS]) {
  const VkPhysicalDeviceExternalBufferInfo info = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO,
                                                   .usage = VULKAN_BUFFER_USAGE,
                                                   .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  const VkFlags both = VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT | VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT;
  VkExternalBufferProperties facts = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
  vk.GetPhysicalDeviceExternalBufferProperties(device->physical, &info, &facts);
  const VkFlags can = facts.externalMemoryProperties.externalMemoryFeatures;
  const PFN_vkVoidFunction found =
      find_function(device, has[MEMORY_FILE] && (can & both) == both && device->most_shareable, "vkGetMemoryFdKHR");
  memcpy(&device->memory_file, &found, sizeof found);
  device->shares_dedicated = (can & VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT) != 0;
}

/* Selects the variant of the portable kernels: HAL_VULKAN_FORM, else the one for many threads: drivers for CPUs run the
 * threads of a block as the elements of vectors. */
static hal_status_t read_form(vulkan_device_t *device) {
  const char *const wanted = hal_setting("HAL_VULKAN_FORM");
  device->few_wide = wanted && strcmp(wanted, "cpu") == 0;
  if (!wanted || !*wanted || device->few_wide || strcmp(wanted, "simt") == 0) return HAL_OK;
  return vulkan_error(HAL_INVALID_ARGUMENT, 0,
                      "vulkan: HAL_VULKAN_FORM is '%.100s'; set it to cpu or simt, or unset it", wanted);
}

/* Checks numbers that later launches and allocations depend on. */
static hal_status_t check_limits(const vulkan_device_t *device) {
  const VkPhysicalDeviceLimits *const limits = &device->facts.limits;
  const char *what = NULL;
  unsigned long long value = 0;
  if (!limits->maxComputeWorkGroupInvocations || limits->maxComputeWorkGroupInvocations > INT32_MAX)
    what = "threads of a group", value = limits->maxComputeWorkGroupInvocations;
  else if (!device->largest_allocation)
    what = "bytes of an allocation";
  else if (!limits->minStorageBufferOffsetAlignment || limits->minStorageBufferOffsetAlignment > VULKAN_ALIGNMENT)
    what = "bytes of alignment of a storage buffer", value = limits->minStorageBufferOffsetAlignment;
  else if (!(limits->timestampPeriod >= 0))
    what = "as an invalid number of nanoseconds of a tick";
  if (!what) return HAL_OK;
  return vulkan_error(HAL_UNAVAILABLE, 0,
                      "vulkan: the driver of '%s' reports %llu %s, which is invalid; install another driver, or choose "
                      "another device with HAL_VULKAN_DEVICE",
                      device->facts.deviceName, value, what);
}

/* ---- memory types ----------------------------------------------------------------------------------------------- */

/* Returns the first type of `allowed` with all the properties; UINT32_MAX = none. */
static uint32_t type_with(const vulkan_device_t *device, uint32_t allowed, VkFlags properties) {
  for (uint32_t i = 0; i < device->memory.memoryTypeCount && i < VK_MAX_MEMORY_TYPES; i++)
    if (allowed >> i & 1 && (device->memory.memoryTypes[i].propertyFlags & properties) == properties) return i;
  return UINT32_MAX;
}

/* Reads HAL_VULKAN_MEMORY: "visible" device memory, which the host may access, is the default where the device has no
 * other, "device" memory elsewhere. */
static hal_status_t choose_visible(vulkan_device_t *device, int can) {
  const char *const wanted = hal_setting("HAL_VULKAN_MEMORY");
  const int visible = wanted && strcmp(wanted, "visible") == 0;
  const uint32_t type = device->facts.deviceType;
  device->visible = can && (type == VK_PHYSICAL_DEVICE_TYPE_CPU || type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU);
  if (!wanted || !*wanted) return HAL_OK;
  device->visible = visible;
  if ((visible && can) || strcmp(wanted, "device") == 0) return HAL_OK;
  if (visible)
    return vulkan_error(HAL_UNAVAILABLE, 0,
                        "vulkan: HAL_VULKAN_MEMORY is visible, but '%s' has no device memory that the host caches; set "
                        "it to device, or unset it",
                        device->facts.deviceName);
  return vulkan_error(HAL_INVALID_ARGUMENT, 0,
                      "vulkan: HAL_VULKAN_MEMORY is '%.100s'; set it to device or visible, or unset it", wanted);
}

/* Buffers of the plugin have one usage, so one probe shows the types that they accept; buffers that can be shared may
 * accept fewer. */
static VkResult allowed_types(const vulkan_device_t *device, int is_shareable, uint32_t *out_bits) {
  const VkExternalMemoryBufferCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                                     .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                   .pNext = is_shareable ? &external : NULL,
                                   .size = VULKAN_ALIGNMENT,
                                   .usage = VULKAN_BUFFER_USAGE};
  VkMemoryRequirements needs = {0};
  VkBuffer buffer;
  const VkResult code = vk.CreateBuffer(device->handle, &info, NULL, &buffer);
  if (code) return code;
  vk.GetBufferMemoryRequirements(device->handle, buffer, &needs);
  vk.DestroyBuffer(device->handle, buffer, NULL);
  *out_bits = needs.memoryTypeBits;
  return VK_SUCCESS;
}

static hal_status_t choose_types(vulkan_device_t *device) {
  const VkFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                cached = host | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  uint32_t allowed = 0, of_host = 0;
  VkResult code = allowed_types(device, device->memory_file != NULL, &allowed);
  if (!code) code = allowed_types(device, 0, &of_host);
  if (code) return vulkan_driver_error(code, "vulkan: cannot create a buffer of '%s'", device->facts.deviceName);
  const uint32_t shared = type_with(device, allowed, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | cached);
  const hal_status_t status = choose_visible(device, shared != UINT32_MAX);
  if (status) return status;
  device->device_type = device->visible ? shared : type_with(device, allowed, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
  device->host_type = type_with(device, of_host, cached);
  if (device->host_type == UINT32_MAX) device->host_type = type_with(device, of_host, host);
  if (device->device_type == UINT32_MAX || device->host_type == UINT32_MAX)
    return vulkan_error(HAL_UNAVAILABLE, 0,
                        "vulkan: '%s' has no %s memory for buffers; choose another device with HAL_VULKAN_DEVICE",
                        device->facts.deviceName, device->device_type == UINT32_MAX ? "device" : "host-visible");
  device->heap = device->memory.memoryTypes[device->device_type].heapIndex;
  device->heap_bytes = device->memory.memoryHeaps[device->heap].size;
  return HAL_OK;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

/* The portable kernels use narrow types, 64-bit integers and double precision where the device has them. */
static VkResult create_device(vulkan_device_t *device, const int has[EXTENSIONS]) {
  static const float priorities[VULKAN_MAX_QUEUES];
  const char *enabled[EXTENSIONS];
  uint32_t count = 0;
  for (int k = 0; k < EXTENSIONS; k++)
    if (has[k]) enabled[count++] = extension_names[k];
  VkPhysicalDeviceVulkan12Features can12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceVulkan11Features can11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                                            .pNext = &can12};
  VkPhysicalDeviceFeatures2 can = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &can11};
  vk.GetPhysicalDeviceFeatures2(device->physical, &can);
  VkPhysicalDeviceVulkan12Features want12 = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
      .storageBuffer8BitAccess = can12.storageBuffer8BitAccess,
      .uniformAndStorageBuffer8BitAccess = can12.uniformAndStorageBuffer8BitAccess,
      .storagePushConstant8 = can12.storagePushConstant8,
      .shaderFloat16 = can12.shaderFloat16,
      .shaderInt8 = can12.shaderInt8,
      .timelineSemaphore = VK_TRUE,
      .vulkanMemoryModel = can12.vulkanMemoryModel,
      .vulkanMemoryModelDeviceScope = can12.vulkanMemoryModelDeviceScope};
  VkPhysicalDeviceVulkan11Features want11 = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
      .pNext = &want12,
      .storageBuffer16BitAccess = can11.storageBuffer16BitAccess,
      .uniformAndStorageBuffer16BitAccess = can11.uniformAndStorageBuffer16BitAccess,
      .storagePushConstant16 = can11.storagePushConstant16,
      .variablePointersStorageBuffer = can11.variablePointersStorageBuffer,
      .variablePointers = can11.variablePointers};
  const VkPhysicalDeviceFeatures2 want = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &want11,
                                          .features = {.shaderFloat64 = can.features.shaderFloat64,
                                                       .shaderInt64 = can.features.shaderInt64,
                                                       .shaderInt16 = can.features.shaderInt16}};
  const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                         .queueFamilyIndex = device->family,
                                         .queueCount = device->queue_count,
                                         .pQueuePriorities = priorities};
  const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                   .pNext = &want,
                                   .queueCreateInfoCount = 1,
                                   .pQueueCreateInfos = &queue,
                                   .enabledExtensionCount = count,
                                   .ppEnabledExtensionNames = enabled};
  device->has_fp64 = (int32_t)can.features.shaderFloat64;
  device->capabilities = vulkan_capabilities(&want.features, &want11, &want12, device->subgroup_operations);
  return vk.CreateDevice(device->physical, &info, NULL, &device->handle);
}

hal_status_t vulkan_device_open(vulkan_device_t *device, VkPhysicalDevice physical, int32_t ordinal) {
  int has[EXTENSIONS] = {0};
  memset(device, 0, sizeof *device);
  device->physical = physical;
  device->ordinal = ordinal;
  pthread_mutex_init(&device->lock, NULL);
  pthread_mutex_init(&device->profile_lock, NULL);
  pthread_mutex_init(&device->profile.lock, NULL);
  VkResult code = find_extensions(physical, has);
  if (code) return vulkan_driver_error(code, "vulkan: cannot list the extensions of device %d", (int)ordinal);
  read_facts(device, has);
  hal_status_t status = check_limits(device);
  if (!status) status = read_form(device);
  if (!status) status = read_sharing(device, &device->most_shareable);
  if (status) return status;
  code = create_device(device, has);
  if (code) return vulkan_driver_error(code, "vulkan: cannot open device '%s'", device->facts.deviceName);
  find_host_import(device, has);
  find_sharing(device, has);
  for (uint32_t i = 0; i < device->queue_count; i++) {
    vk.GetDeviceQueue(device->handle, device->family, i, &device->queues[i].queue);
    pthread_mutex_init(&device->queues[i].lock, NULL);
  }
  status = choose_types(device);
  if (!status) vulkan_cache_open(device);
  return status;
}

void vulkan_device_close(vulkan_device_t *device) {
  if (device->handle) {
    vk.DestroyPipelineCache(device->handle, device->cache, NULL);
    vk.DestroyDevice(device->handle, NULL);
  }
  for (uint32_t i = 0; i < device->queue_count && device->handle; i++) pthread_mutex_destroy(&device->queues[i].lock);
  pthread_mutex_destroy(&device->profile.lock);
  pthread_mutex_destroy(&device->profile_lock);
  pthread_mutex_destroy(&device->lock);
  memset(device, 0, sizeof *device);
}

/* ---- description ------------------------------------------------------------------------------------------------ */

/* Portable kernels number blocks along two axes (clspv_compiler.py). */
uint32_t vulkan_largest_grid(const vulkan_device_t *device) {
  const uint32_t *const most = device->facts.limits.maxComputeWorkGroupCount;
  const uint64_t blocks = most[0] < VULKAN_FOLD ? most[0] : (uint64_t)VULKAN_FOLD * most[1];
  return blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
}

hal_status_t hal_plugin_device_info(int32_t ordinal, hal_device_info_t *out_info) {
  const hal_status_t status = vulkan_check_device(ordinal);
  if (status) return status;
  const vulkan_device_t *const device = &vulkan.devices[ordinal];
  const VkPhysicalDeviceLimits *const limits = &device->facts.limits;
  hal_device_info_t info = {.struct_size = out_info->struct_size,
                            .flags = HAL_DEVICE_ASYNC | (device->visible ? HAL_DEVICE_HOST_VISIBLE : 0) |
                                     (device->few_wide ? HAL_DEVICE_CPU : 0) | (device->has_fp64 ? HAL_DEVICE_FP64 : 0),
                            .total_memory = device->heap_bytes,
                            .subgroup_size = device->subgroup,
                            .max_block_threads = limits->maxComputeWorkGroupInvocations,
                            .max_shared_bytes = limits->maxComputeSharedMemorySize,
                            .base_alignment = VULKAN_ALIGNMENT,
                            .pci_domain = device->pci[0],
                            .pci_bus = device->pci[1],
                            .pci_device = device->pci[2],
                            .pci_function = device->pci[3],
                            .max_grid = {vulkan_largest_grid(device), limits->maxComputeWorkGroupCount[1],
                                         limits->maxComputeWorkGroupCount[2]},
                            .max_binding = limits->maxStorageBufferRange - limits->minStorageBufferOffsetAlignment};
  snprintf(info.name, sizeof info.name, "%.63s", device->facts.deviceName);
  snprintf(info.dialects, sizeof info.dialects, "spirv-vulkan");
  snprintf(info.driver_version, sizeof info.driver_version, "%s", device->driver);
  memcpy(info.uuid, device->uuid, sizeof info.uuid);
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}
