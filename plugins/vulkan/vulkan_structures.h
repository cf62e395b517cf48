/* vulkan_structures.h: the structures of Vulkan 1.2 that the plugin uses; vulkan_api.h includes this file. */
#ifndef VULKAN_STRUCTURES_H_
#define VULKAN_STRUCTURES_H_

typedef struct VkApplicationInfo {
  VkStructureType sType;
  const void *pNext;
  const char *pApplicationName;
  uint32_t applicationVersion;
  const char *pEngineName;
  uint32_t engineVersion, apiVersion;
} VkApplicationInfo;

typedef struct VkInstanceCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  const VkApplicationInfo *pApplicationInfo;
  uint32_t enabledLayerCount;
  const char *const *ppEnabledLayerNames;
  uint32_t enabledExtensionCount;
  const char *const *ppEnabledExtensionNames;
} VkInstanceCreateInfo;

typedef struct VkExtensionProperties {
  char extensionName[256];
  uint32_t specVersion;
} VkExtensionProperties;

typedef struct VkPhysicalDeviceLimits {
  uint32_t reserved_images[7];
  uint32_t maxStorageBufferRange, maxPushConstantsSize, maxMemoryAllocationCount, maxSamplerAllocationCount;
  VkDeviceSize reserved_sizes[2];
  uint32_t reserved_sets[3], maxPerStageDescriptorStorageBuffers, reserved_stages[34];
  uint32_t maxComputeSharedMemorySize, maxComputeWorkGroupCount[3], maxComputeWorkGroupInvocations,
      maxComputeWorkGroupSize[3];
  uint32_t reserved_pixels[14];
  size_t minMemoryMapAlignment;
  VkDeviceSize reserved_texels[2], minStorageBufferOffsetAlignment;
  uint32_t reserved_frames[22];
  float timestampPeriod;
  uint32_t reserved_clips[4];
  float reserved_lines[6];
  uint32_t reserved_last[2];
  VkDeviceSize reserved_copies[2], nonCoherentAtomSize;
} VkPhysicalDeviceLimits;

typedef struct VkPhysicalDeviceProperties {
  uint32_t apiVersion, driverVersion, vendorID, deviceID, deviceType;
  char deviceName[256];
  uint8_t pipelineCacheUUID[VK_UUID_SIZE];
  VkPhysicalDeviceLimits limits;
  VkBool32 reserved_sparse[5];
} VkPhysicalDeviceProperties;

typedef struct VkPhysicalDeviceProperties2 {
  VkStructureType sType;
  void *pNext;
  VkPhysicalDeviceProperties properties;
} VkPhysicalDeviceProperties2;

typedef struct VkPhysicalDeviceVulkan11Properties {
  VkStructureType sType;
  void *pNext;
  uint8_t deviceUUID[VK_UUID_SIZE], driverUUID[VK_UUID_SIZE], deviceLUID[8];
  uint32_t deviceNodeMask;
  VkBool32 deviceLUIDValid;
  uint32_t subgroupSize, subgroupSupportedStages, subgroupSupportedOperations, reserved_subgroup, reserved_views[4],
      maxPerSetDescriptors;
  VkDeviceSize maxMemoryAllocationSize;
} VkPhysicalDeviceVulkan11Properties;

typedef struct VkPhysicalDeviceVulkan12Properties {
  VkStructureType sType;
  void *pNext;
  uint32_t driverID;
  char driverName[256], driverInfo[256];
  uint32_t reserved[47];
  uint64_t maxTimelineSemaphoreValueDifference;
  VkFlags reserved_samples;
} VkPhysicalDeviceVulkan12Properties;

typedef struct VkPhysicalDevicePCIBusInfoPropertiesEXT {
  VkStructureType sType;
  void *pNext;
  uint32_t pciDomain, pciBus, pciDevice, pciFunction;
} VkPhysicalDevicePCIBusInfoPropertiesEXT;

typedef struct VkPhysicalDeviceFeatures {
  VkBool32 reserved_first[39], shaderFloat64, shaderInt64, shaderInt16, reserved_last[13];
} VkPhysicalDeviceFeatures;

typedef struct VkPhysicalDeviceFeatures2 {
  VkStructureType sType;
  void *pNext;
  VkPhysicalDeviceFeatures features;
} VkPhysicalDeviceFeatures2;

typedef struct VkPhysicalDeviceVulkan11Features {
  VkStructureType sType;
  void *pNext;
  VkBool32 storageBuffer16BitAccess, uniformAndStorageBuffer16BitAccess, storagePushConstant16, reserved_views[4],
      variablePointersStorageBuffer, variablePointers, reserved_last[3];
} VkPhysicalDeviceVulkan11Features;

typedef struct VkPhysicalDeviceVulkan12Features {
  VkStructureType sType;
  void *pNext;
  VkBool32 reserved_first[2], storageBuffer8BitAccess, uniformAndStorageBuffer8BitAccess, storagePushConstant8,
      reserved_atomics[2], shaderFloat16, shaderInt8, reserved_descriptors[28], timelineSemaphore, bufferDeviceAddress,
      reserved_addresses[2], vulkanMemoryModel, vulkanMemoryModelDeviceScope, reserved_last[4];
} VkPhysicalDeviceVulkan12Features;

typedef struct VkMemoryType {
  VkFlags propertyFlags;
  uint32_t heapIndex;
} VkMemoryType;

typedef struct VkMemoryHeap {
  VkDeviceSize size;
  VkFlags flags;
} VkMemoryHeap;

typedef struct VkPhysicalDeviceMemoryProperties {
  uint32_t memoryTypeCount;
  VkMemoryType memoryTypes[VK_MAX_MEMORY_TYPES];
  uint32_t memoryHeapCount;
  VkMemoryHeap memoryHeaps[VK_MAX_MEMORY_HEAPS];
} VkPhysicalDeviceMemoryProperties;

typedef struct VkPhysicalDeviceMemoryProperties2 {
  VkStructureType sType;
  void *pNext;
  VkPhysicalDeviceMemoryProperties memoryProperties;
} VkPhysicalDeviceMemoryProperties2;

typedef struct VkPhysicalDeviceMemoryBudgetPropertiesEXT {
  VkStructureType sType;
  void *pNext;
  VkDeviceSize heapBudget[VK_MAX_MEMORY_HEAPS], heapUsage[VK_MAX_MEMORY_HEAPS];
} VkPhysicalDeviceMemoryBudgetPropertiesEXT;

typedef struct VkPhysicalDeviceExternalMemoryHostPropertiesEXT {
  VkStructureType sType;
  void *pNext;
  VkDeviceSize minImportedHostPointerAlignment;
} VkPhysicalDeviceExternalMemoryHostPropertiesEXT;

typedef struct VkMemoryHostPointerPropertiesEXT {
  VkStructureType sType;
  void *pNext;
  uint32_t memoryTypeBits;
} VkMemoryHostPointerPropertiesEXT;

typedef struct VkImportMemoryHostPointerInfoEXT {
  VkStructureType sType;
  const void *pNext;
  uint32_t handleType;
  void *pHostPointer;
} VkImportMemoryHostPointerInfoEXT;

typedef struct VkExternalMemoryBufferCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags handleTypes;
} VkExternalMemoryBufferCreateInfo;

typedef struct VkPhysicalDeviceExternalBufferInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags, usage;
  uint32_t handleType;
} VkPhysicalDeviceExternalBufferInfo;

typedef struct VkExternalMemoryProperties {
  VkFlags externalMemoryFeatures, exportFromImportedHandleTypes, compatibleHandleTypes;
} VkExternalMemoryProperties;

typedef struct VkExternalBufferProperties {
  VkStructureType sType;
  void *pNext;
  VkExternalMemoryProperties externalMemoryProperties;
} VkExternalBufferProperties;

typedef struct VkExportMemoryAllocateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags handleTypes;
} VkExportMemoryAllocateInfo;

typedef struct VkImportMemoryFdInfoKHR {
  VkStructureType sType;
  const void *pNext;
  uint32_t handleType;
  int fd;
} VkImportMemoryFdInfoKHR;

typedef struct VkMemoryGetFdInfoKHR {
  VkStructureType sType;
  const void *pNext;
  VkDeviceMemory memory;
  uint32_t handleType;
} VkMemoryGetFdInfoKHR;

typedef struct VkMemoryDedicatedAllocateInfo {
  VkStructureType sType;
  const void *pNext;
  VkImage image;
  VkBuffer buffer;
} VkMemoryDedicatedAllocateInfo;

typedef struct VkQueueFamilyProperties {
  VkFlags queueFlags;
  uint32_t queueCount, timestampValidBits, minImageTransferGranularity[3];
} VkQueueFamilyProperties;

typedef struct VkDeviceQueueCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t queueFamilyIndex, queueCount;
  const float *pQueuePriorities;
} VkDeviceQueueCreateInfo;

typedef struct VkDeviceCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t queueCreateInfoCount;
  const VkDeviceQueueCreateInfo *pQueueCreateInfos;
  uint32_t enabledLayerCount;
  const char *const *ppEnabledLayerNames;
  uint32_t enabledExtensionCount;
  const char *const *ppEnabledExtensionNames;
  const VkPhysicalDeviceFeatures *pEnabledFeatures;
} VkDeviceCreateInfo;

typedef struct VkSubmitInfo {
  VkStructureType sType;
  const void *pNext;
  uint32_t waitSemaphoreCount;
  const VkSemaphore *pWaitSemaphores;
  const VkFlags *pWaitDstStageMask;
  uint32_t commandBufferCount;
  const VkCommandBuffer *pCommandBuffers;
  uint32_t signalSemaphoreCount;
  const VkSemaphore *pSignalSemaphores;
} VkSubmitInfo;

typedef struct VkTimelineSemaphoreSubmitInfo {
  VkStructureType sType;
  const void *pNext;
  uint32_t waitSemaphoreValueCount;
  const uint64_t *pWaitSemaphoreValues;
  uint32_t signalSemaphoreValueCount;
  const uint64_t *pSignalSemaphoreValues;
} VkTimelineSemaphoreSubmitInfo;

typedef struct VkSemaphoreTypeCreateInfo {
  VkStructureType sType;
  const void *pNext;
  uint32_t semaphoreType;
  uint64_t initialValue;
} VkSemaphoreTypeCreateInfo;

typedef struct VkSemaphoreCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
} VkSemaphoreCreateInfo;

typedef struct VkSemaphoreWaitInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t semaphoreCount;
  const VkSemaphore *pSemaphores;
  const uint64_t *pValues;
} VkSemaphoreWaitInfo;

typedef struct VkQueryPoolCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t queryType, queryCount;
  VkFlags pipelineStatistics;
} VkQueryPoolCreateInfo;

typedef struct VkBufferCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  VkDeviceSize size;
  VkFlags usage;
  uint32_t sharingMode, queueFamilyIndexCount;
  const uint32_t *pQueueFamilyIndices;
} VkBufferCreateInfo;

typedef struct VkMemoryRequirements {
  VkDeviceSize size, alignment;
  uint32_t memoryTypeBits;
} VkMemoryRequirements;

typedef struct VkMemoryAllocateInfo {
  VkStructureType sType;
  const void *pNext;
  VkDeviceSize allocationSize;
  uint32_t memoryTypeIndex;
} VkMemoryAllocateInfo;

typedef struct VkCommandPoolCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t queueFamilyIndex;
} VkCommandPoolCreateInfo;

typedef struct VkCommandBufferAllocateInfo {
  VkStructureType sType;
  const void *pNext;
  VkCommandPool commandPool;
  uint32_t level, commandBufferCount;
} VkCommandBufferAllocateInfo;

typedef struct VkCommandBufferBeginInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  const void *pInheritanceInfo;
} VkCommandBufferBeginInfo;

typedef struct VkMemoryBarrier {
  VkStructureType sType;
  const void *pNext;
  VkFlags srcAccessMask, dstAccessMask;
} VkMemoryBarrier;

typedef struct VkBufferCopy {
  VkDeviceSize srcOffset, dstOffset, size;
} VkBufferCopy;

typedef struct VkShaderModuleCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  size_t codeSize;
  const uint32_t *pCode;
} VkShaderModuleCreateInfo;

typedef struct VkSpecializationMapEntry {
  uint32_t constantID, offset;
  size_t size;
} VkSpecializationMapEntry;

typedef struct VkSpecializationInfo {
  uint32_t mapEntryCount;
  const VkSpecializationMapEntry *pMapEntries;
  size_t dataSize;
  const void *pData;
} VkSpecializationInfo;

typedef struct VkPipelineShaderStageCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t stage;
  VkShaderModule module;
  const char *pName;
  const VkSpecializationInfo *pSpecializationInfo;
} VkPipelineShaderStageCreateInfo;

typedef struct VkComputePipelineCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  VkPipelineShaderStageCreateInfo stage;
  VkPipelineLayout layout;
  VkPipeline basePipelineHandle;
  int32_t basePipelineIndex;
} VkComputePipelineCreateInfo;

typedef struct VkPipelineCacheCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  size_t initialDataSize;
  const void *pInitialData;
} VkPipelineCacheCreateInfo;

typedef struct VkPushConstantRange {
  VkFlags stageFlags;
  uint32_t offset, size;
} VkPushConstantRange;

typedef struct VkPipelineLayoutCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t setLayoutCount;
  const VkDescriptorSetLayout *pSetLayouts;
  uint32_t pushConstantRangeCount;
  const VkPushConstantRange *pPushConstantRanges;
} VkPipelineLayoutCreateInfo;

typedef struct VkDescriptorSetLayoutBinding {
  uint32_t binding, descriptorType, descriptorCount;
  VkFlags stageFlags;
  const void *pImmutableSamplers;
} VkDescriptorSetLayoutBinding;

typedef struct VkDescriptorSetLayoutCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t bindingCount;
  const VkDescriptorSetLayoutBinding *pBindings;
} VkDescriptorSetLayoutCreateInfo;

typedef struct VkDescriptorPoolSize {
  uint32_t type, descriptorCount;
} VkDescriptorPoolSize;

typedef struct VkDescriptorPoolCreateInfo {
  VkStructureType sType;
  const void *pNext;
  VkFlags flags;
  uint32_t maxSets, poolSizeCount;
  const VkDescriptorPoolSize *pPoolSizes;
} VkDescriptorPoolCreateInfo;

typedef struct VkDescriptorSetAllocateInfo {
  VkStructureType sType;
  const void *pNext;
  VkDescriptorPool descriptorPool;
  uint32_t descriptorSetCount;
  const VkDescriptorSetLayout *pSetLayouts;
} VkDescriptorSetAllocateInfo;

typedef struct VkDescriptorBufferInfo {
  VkBuffer buffer;
  VkDeviceSize offset, range;
} VkDescriptorBufferInfo;

typedef struct VkWriteDescriptorSet {
  VkStructureType sType;
  const void *pNext;
  VkDescriptorSet dstSet;
  uint32_t dstBinding, dstArrayElement, descriptorCount, descriptorType;
  const void *pImageInfo;
  const VkDescriptorBufferInfo *pBufferInfo;
  const void *pTexelBufferView;
} VkWriteDescriptorSet;

#endif /* VULKAN_STRUCTURES_H_ */
