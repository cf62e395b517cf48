/* vulkan_api.h: the declarations of Vulkan 1.2 that the plugin uses. They are repeated here, so that the build needs no
 * header of Vulkan. The names and the lists are those of Khronos' registry. test/hal/vulkan/api_compare.c compares them
 * with vulkan_core.h where that is installed. Fields that the plugin does not use are arrays of reserved numbers. */
#ifndef VULKAN_API_H_
#define VULKAN_API_H_

#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(void *) == 8, "handles of Vulkan are pointers on 64-bit machines only");

/* X(name, number) */
#define VULKAN_RESULTS(X)                          \
  X(VK_SUCCESS, 0)                                 \
  X(VK_NOT_READY, 1)                               \
  X(VK_TIMEOUT, 2)                                 \
  X(VK_INCOMPLETE, 5)                              \
  X(VK_ERROR_OUT_OF_HOST_MEMORY, -1)               \
  X(VK_ERROR_OUT_OF_DEVICE_MEMORY, -2)             \
  X(VK_ERROR_INITIALIZATION_FAILED, -3)            \
  X(VK_ERROR_DEVICE_LOST, -4)                      \
  X(VK_ERROR_MEMORY_MAP_FAILED, -5)                \
  X(VK_ERROR_LAYER_NOT_PRESENT, -6)                \
  X(VK_ERROR_EXTENSION_NOT_PRESENT, -7)            \
  X(VK_ERROR_FEATURE_NOT_PRESENT, -8)              \
  X(VK_ERROR_INCOMPATIBLE_DRIVER, -9)              \
  X(VK_ERROR_TOO_MANY_OBJECTS, -10)                \
  X(VK_ERROR_FRAGMENTED_POOL, -12)                 \
  X(VK_ERROR_UNKNOWN, -13)                         \
  X(VK_ERROR_OUT_OF_POOL_MEMORY, -1000069000)      \
  X(VK_ERROR_INVALID_EXTERNAL_HANDLE, -1000072003) \
  X(VK_ERROR_FRAGMENTATION, -1000161000)           \
  X(VK_ERROR_INVALID_SHADER_NV, -1000012000)

/* X(name, number): types of structures, flags and limits. */
#define VULKAN_NUMBERS(X)                                                              \
  X(VK_STRUCTURE_TYPE_APPLICATION_INFO, 0)                                             \
  X(VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, 1)                                         \
  X(VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, 2)                                     \
  X(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, 3)                                           \
  X(VK_STRUCTURE_TYPE_SUBMIT_INFO, 4)                                                  \
  X(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, 5)                                         \
  X(VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, 9)                                        \
  X(VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO, 11)                                      \
  X(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, 12)                                          \
  X(VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, 16)                                   \
  X(VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, 17)                                  \
  X(VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, 18)                           \
  X(VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO, 29)                                \
  X(VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, 30)                                 \
  X(VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, 32)                           \
  X(VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, 33)                                 \
  X(VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO, 34)                                \
  X(VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET, 35)                                        \
  X(VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, 39)                                    \
  X(VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, 40)                                \
  X(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, 42)                                   \
  X(VK_STRUCTURE_TYPE_MEMORY_BARRIER, 46)                                              \
  X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, 49)                         \
  X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, 50)                       \
  X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, 51)                         \
  X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, 52)                       \
  X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, 1000059000)                          \
  X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, 1000059001)                        \
  X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, 1000059006)                 \
  X(VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, 1000207002)                          \
  X(VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, 1000207003)                      \
  X(VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, 1000207004)                                 \
  X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT, 1000212000)         \
  X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT, 1000237000)        \
  X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO, 1000071002)                \
  X(VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES, 1000071003)                          \
  X(VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, 1000072000)                  \
  X(VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, 1000072002)                         \
  X(VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR, 1000074000)                           \
  X(VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR, 1000074002)                              \
  X(VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO, 1000127001)                      \
  X(VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT, 1000178000)                 \
  X(VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT, 1000178001)                  \
  X(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT, 1000178002) \
  X(VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT, 1)                                   \
  X(VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, 0x80)                      \
  X(VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT, 1)                                  \
  X(VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT, 2)                                      \
  X(VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT, 4)                                      \
  X(VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU, 1)                                         \
  X(VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, 2)                                           \
  X(VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU, 3)                                            \
  X(VK_PHYSICAL_DEVICE_TYPE_CPU, 4)                                                    \
  X(VK_QUEUE_COMPUTE_BIT, 2)                                                           \
  X(VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 1)                                            \
  X(VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT, 2)                                            \
  X(VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, 4)                                           \
  X(VK_MEMORY_PROPERTY_HOST_CACHED_BIT, 8)                                             \
  X(VK_MEMORY_HEAP_DEVICE_LOCAL_BIT, 1)                                                \
  X(VK_BUFFER_USAGE_TRANSFER_SRC_BIT, 1)                                               \
  X(VK_BUFFER_USAGE_TRANSFER_DST_BIT, 2)                                               \
  X(VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, 0x20)                                          \
  X(VK_COMMAND_POOL_CREATE_TRANSIENT_BIT, 1)                                           \
  X(VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, 2)                                \
  X(VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, 1)                                    \
  X(VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT, 4)                                   \
  X(VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, 0x2000)                                      \
  X(VK_PIPELINE_STAGE_HOST_BIT, 0x4000)                                                \
  X(VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0x10000)                                       \
  X(VK_ACCESS_HOST_READ_BIT, 0x2000)                                                   \
  X(VK_ACCESS_HOST_WRITE_BIT, 0x4000)                                                  \
  X(VK_ACCESS_MEMORY_READ_BIT, 0x8000)                                                 \
  X(VK_ACCESS_MEMORY_WRITE_BIT, 0x10000)                                               \
  X(VK_QUERY_TYPE_TIMESTAMP, 2)                                                        \
  X(VK_QUERY_RESULT_64_BIT, 1)                                                         \
  X(VK_SEMAPHORE_TYPE_TIMELINE, 1)                                                     \
  X(VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 7)                                              \
  X(VK_SHADER_STAGE_COMPUTE_BIT, 0x20)                                                 \
  X(VK_PIPELINE_BIND_POINT_COMPUTE, 1)                                                 \
  X(VK_PIPELINE_CREATE_DISPATCH_BASE_BIT, 0x10)                                        \
  X(VK_MAX_MEMORY_TYPES, 32)                                                           \
  X(VK_MAX_MEMORY_HEAPS, 16)                                                           \
  X(VK_UUID_SIZE, 16)

#ifndef VULKAN_CORE_H_ /* api_compare.c includes vulkan_core.h before, and needs only the lists then */
#define VK_API_VERSION_1_2 ((1u << 22) | (2u << 12))
#define VK_API_VERSION_1_3 ((1u << 22) | (3u << 12))
#define VK_WHOLE_SIZE (~UINT64_C(0))
enum { VK_FALSE = 0, VK_TRUE = 1 };

typedef int32_t VkResult;
typedef uint32_t VkBool32, VkFlags, VkStructureType;
typedef uint64_t VkDeviceSize;
typedef void (*PFN_vkVoidFunction)(void);

#define VULKAN_NUMBER(name, number) name = number,
enum { VULKAN_RESULTS(VULKAN_NUMBER) };
enum { VULKAN_NUMBERS(VULKAN_NUMBER) };

/* ---- handles ---------------------------------------------------------------------------------------------------- */

#define VULKAN_HANDLE(name) typedef struct name##_T *name;
VULKAN_HANDLE(VkInstance)
VULKAN_HANDLE(VkPhysicalDevice)
VULKAN_HANDLE(VkDevice)
VULKAN_HANDLE(VkQueue)
VULKAN_HANDLE(VkCommandBuffer)
VULKAN_HANDLE(VkCommandPool)
VULKAN_HANDLE(VkSemaphore)
VULKAN_HANDLE(VkFence)
VULKAN_HANDLE(VkQueryPool)
VULKAN_HANDLE(VkBuffer)
VULKAN_HANDLE(VkImage)
VULKAN_HANDLE(VkDeviceMemory)
VULKAN_HANDLE(VkShaderModule)
VULKAN_HANDLE(VkPipeline)
VULKAN_HANDLE(VkPipelineCache)
VULKAN_HANDLE(VkPipelineLayout)
VULKAN_HANDLE(VkDescriptorSetLayout)
VULKAN_HANDLE(VkDescriptorPool)
VULKAN_HANDLE(VkDescriptorSet)

#include "vulkan_structures.h"
#endif /* VULKAN_CORE_H_ */

/* Y(name, field): fields of structures that the plugin uses, for the comparison. */
#define VULKAN_FIELDS(Y)                                                              \
  Y(VkApplicationInfo, apiVersion)                                                    \
  Y(VkInstanceCreateInfo, ppEnabledExtensionNames)                                    \
  Y(VkExtensionProperties, specVersion)                                               \
  Y(VkPhysicalDeviceLimits, maxStorageBufferRange)                                    \
  Y(VkPhysicalDeviceLimits, maxPushConstantsSize)                                     \
  Y(VkPhysicalDeviceLimits, maxMemoryAllocationCount)                                 \
  Y(VkPhysicalDeviceLimits, maxPerStageDescriptorStorageBuffers)                      \
  Y(VkPhysicalDeviceLimits, maxComputeSharedMemorySize)                               \
  Y(VkPhysicalDeviceLimits, maxComputeWorkGroupCount)                                 \
  Y(VkPhysicalDeviceLimits, maxComputeWorkGroupInvocations)                           \
  Y(VkPhysicalDeviceLimits, maxComputeWorkGroupSize)                                  \
  Y(VkPhysicalDeviceLimits, minMemoryMapAlignment)                                    \
  Y(VkPhysicalDeviceLimits, minStorageBufferOffsetAlignment)                          \
  Y(VkPhysicalDeviceLimits, timestampPeriod)                                          \
  Y(VkPhysicalDeviceLimits, nonCoherentAtomSize)                                      \
  Y(VkPhysicalDeviceProperties, deviceName)                                           \
  Y(VkPhysicalDeviceProperties, pipelineCacheUUID)                                    \
  Y(VkPhysicalDeviceProperties, limits)                                               \
  Y(VkPhysicalDeviceProperties2, properties)                                          \
  Y(VkPhysicalDeviceVulkan11Properties, deviceUUID)                                   \
  Y(VkPhysicalDeviceVulkan11Properties, subgroupSize)                                 \
  Y(VkPhysicalDeviceVulkan11Properties, subgroupSupportedOperations)                  \
  Y(VkPhysicalDeviceVulkan11Properties, maxPerSetDescriptors)                         \
  Y(VkPhysicalDeviceVulkan11Properties, maxMemoryAllocationSize)                      \
  Y(VkPhysicalDeviceVulkan12Properties, driverName)                                   \
  Y(VkPhysicalDeviceVulkan12Properties, driverInfo)                                   \
  Y(VkPhysicalDeviceVulkan12Properties, maxTimelineSemaphoreValueDifference)          \
  Y(VkPhysicalDevicePCIBusInfoPropertiesEXT, pciFunction)                             \
  Y(VkPhysicalDeviceFeatures, shaderFloat64)                                          \
  Y(VkPhysicalDeviceFeatures, shaderInt64)                                            \
  Y(VkPhysicalDeviceFeatures, shaderInt16)                                            \
  Y(VkPhysicalDeviceFeatures2, features)                                              \
  Y(VkPhysicalDeviceVulkan11Features, storageBuffer16BitAccess)                       \
  Y(VkPhysicalDeviceVulkan11Features, storagePushConstant16)                          \
  Y(VkPhysicalDeviceVulkan11Features, variablePointers)                               \
  Y(VkPhysicalDeviceVulkan12Features, storageBuffer8BitAccess)                        \
  Y(VkPhysicalDeviceVulkan12Features, storagePushConstant8)                           \
  Y(VkPhysicalDeviceVulkan12Features, shaderFloat16)                                  \
  Y(VkPhysicalDeviceVulkan12Features, shaderInt8)                                     \
  Y(VkPhysicalDeviceVulkan12Features, timelineSemaphore)                              \
  Y(VkPhysicalDeviceVulkan12Features, bufferDeviceAddress)                            \
  Y(VkPhysicalDeviceVulkan12Features, vulkanMemoryModel)                              \
  Y(VkPhysicalDeviceVulkan12Features, vulkanMemoryModelDeviceScope)                   \
  Y(VkPhysicalDeviceMemoryProperties, memoryTypes)                                    \
  Y(VkPhysicalDeviceMemoryProperties, memoryHeaps)                                    \
  Y(VkPhysicalDeviceMemoryProperties2, memoryProperties)                              \
  Y(VkPhysicalDeviceMemoryBudgetPropertiesEXT, heapUsage)                             \
  Y(VkPhysicalDeviceExternalMemoryHostPropertiesEXT, minImportedHostPointerAlignment) \
  Y(VkMemoryHostPointerPropertiesEXT, memoryTypeBits)                                 \
  Y(VkImportMemoryHostPointerInfoEXT, pHostPointer)                                   \
  Y(VkExternalMemoryBufferCreateInfo, handleTypes)                                    \
  Y(VkPhysicalDeviceVulkan11Properties, driverUUID)                                   \
  Y(VkPhysicalDeviceExternalBufferInfo, handleType)                                   \
  Y(VkExternalMemoryProperties, compatibleHandleTypes)                                \
  Y(VkExternalBufferProperties, externalMemoryProperties)                             \
  Y(VkExportMemoryAllocateInfo, handleTypes)                                          \
  Y(VkImportMemoryFdInfoKHR, fd)                                                      \
  Y(VkMemoryGetFdInfoKHR, handleType)                                                 \
  Y(VkMemoryDedicatedAllocateInfo, buffer)                                            \
  Y(VkMemoryHeap, flags)                                                              \
  Y(VkQueueFamilyProperties, timestampValidBits)                                      \
  Y(VkDeviceQueueCreateInfo, pQueuePriorities)                                        \
  Y(VkDeviceCreateInfo, pEnabledFeatures)                                             \
  Y(VkSubmitInfo, pSignalSemaphores)                                                  \
  Y(VkTimelineSemaphoreSubmitInfo, pSignalSemaphoreValues)                            \
  Y(VkSemaphoreTypeCreateInfo, initialValue)                                          \
  Y(VkSemaphoreCreateInfo, flags)                                                     \
  Y(VkSemaphoreWaitInfo, pValues)                                                     \
  Y(VkQueryPoolCreateInfo, queryCount)                                                \
  Y(VkBufferCreateInfo, usage)                                                        \
  Y(VkBufferCreateInfo, pQueueFamilyIndices)                                          \
  Y(VkMemoryRequirements, memoryTypeBits)                                             \
  Y(VkMemoryAllocateInfo, memoryTypeIndex)                                            \
  Y(VkCommandPoolCreateInfo, queueFamilyIndex)                                        \
  Y(VkCommandBufferAllocateInfo, commandBufferCount)                                  \
  Y(VkCommandBufferBeginInfo, flags)                                                  \
  Y(VkMemoryBarrier, dstAccessMask)                                                   \
  Y(VkBufferCopy, size)                                                               \
  Y(VkShaderModuleCreateInfo, pCode)                                                  \
  Y(VkSpecializationMapEntry, size)                                                   \
  Y(VkSpecializationInfo, pData)                                                      \
  Y(VkPipelineShaderStageCreateInfo, pSpecializationInfo)                             \
  Y(VkComputePipelineCreateInfo, stage)                                               \
  Y(VkComputePipelineCreateInfo, basePipelineIndex)                                   \
  Y(VkPipelineCacheCreateInfo, pInitialData)                                          \
  Y(VkPushConstantRange, size)                                                        \
  Y(VkPipelineLayoutCreateInfo, pPushConstantRanges)                                  \
  Y(VkDescriptorSetLayoutBinding, stageFlags)                                         \
  Y(VkDescriptorSetLayoutCreateInfo, pBindings)                                       \
  Y(VkDescriptorPoolSize, descriptorCount)                                            \
  Y(VkDescriptorPoolCreateInfo, pPoolSizes)                                           \
  Y(VkDescriptorSetAllocateInfo, pSetLayouts)                                         \
  Y(VkDescriptorBufferInfo, range)                                                    \
  Y(VkWriteDescriptorSet, pBufferInfo)

/* ---- functions -------------------------------------------------------------------------------------------------- */

/* F(name, parameters): functions of Vulkan 1.2, which every loader of that version exports. */
#define VULKAN_FUNCTIONS(F)                                                                                            \
  F(VkResult, CreateInstance, (const VkInstanceCreateInfo *, const void *, VkInstance *))                              \
  F(void, DestroyInstance, (VkInstance, const void *))                                                                 \
  F(VkResult, EnumerateInstanceVersion, (uint32_t *))                                                                  \
  F(VkResult, EnumeratePhysicalDevices, (VkInstance, uint32_t *, VkPhysicalDevice *))                                  \
  F(VkResult, EnumerateDeviceExtensionProperties,                                                                      \
    (VkPhysicalDevice, const char *, uint32_t *, VkExtensionProperties *))                                             \
  F(void, GetPhysicalDeviceProperties2, (VkPhysicalDevice, VkPhysicalDeviceProperties2 *))                             \
  F(void, GetPhysicalDeviceFeatures2, (VkPhysicalDevice, VkPhysicalDeviceFeatures2 *))                                 \
  F(void, GetPhysicalDeviceMemoryProperties2, (VkPhysicalDevice, VkPhysicalDeviceMemoryProperties2 *))                 \
  F(void, GetPhysicalDeviceExternalBufferProperties,                                                                   \
    (VkPhysicalDevice, const VkPhysicalDeviceExternalBufferInfo *, VkExternalBufferProperties *))                      \
  F(void, GetPhysicalDeviceQueueFamilyProperties, (VkPhysicalDevice, uint32_t *, VkQueueFamilyProperties *))           \
  F(VkResult, CreateDevice, (VkPhysicalDevice, const VkDeviceCreateInfo *, const void *, VkDevice *))                  \
  F(void, DestroyDevice, (VkDevice, const void *))                                                                     \
  F(void, GetDeviceQueue, (VkDevice, uint32_t, uint32_t, VkQueue *))                                                   \
  F(PFN_vkVoidFunction, GetDeviceProcAddr, (VkDevice, const char *))                                                   \
  F(VkResult, QueueSubmit, (VkQueue, uint32_t, const VkSubmitInfo *, VkFence))                                         \
  F(VkResult, CreateSemaphore, (VkDevice, const VkSemaphoreCreateInfo *, const void *, VkSemaphore *))                 \
  F(void, DestroySemaphore, (VkDevice, VkSemaphore, const void *))                                                     \
  F(VkResult, GetSemaphoreCounterValue, (VkDevice, VkSemaphore, uint64_t *))                                           \
  F(VkResult, WaitSemaphores, (VkDevice, const VkSemaphoreWaitInfo *, uint64_t))                                       \
  F(VkResult, CreateQueryPool, (VkDevice, const VkQueryPoolCreateInfo *, const void *, VkQueryPool *))                 \
  F(void, DestroyQueryPool, (VkDevice, VkQueryPool, const void *))                                                     \
  F(VkResult, GetQueryPoolResults, (VkDevice, VkQueryPool, uint32_t, uint32_t, size_t, void *, VkDeviceSize, VkFlags)) \
  F(VkResult, CreateBuffer, (VkDevice, const VkBufferCreateInfo *, const void *, VkBuffer *))                          \
  F(void, DestroyBuffer, (VkDevice, VkBuffer, const void *))                                                           \
  F(void, GetBufferMemoryRequirements, (VkDevice, VkBuffer, VkMemoryRequirements *))                                   \
  F(VkResult, AllocateMemory, (VkDevice, const VkMemoryAllocateInfo *, const void *, VkDeviceMemory *))                \
  F(void, FreeMemory, (VkDevice, VkDeviceMemory, const void *))                                                        \
  F(VkResult, BindBufferMemory, (VkDevice, VkBuffer, VkDeviceMemory, VkDeviceSize))                                    \
  F(VkResult, MapMemory, (VkDevice, VkDeviceMemory, VkDeviceSize, VkDeviceSize, VkFlags, void **))                     \
  F(VkResult, CreateCommandPool, (VkDevice, const VkCommandPoolCreateInfo *, const void *, VkCommandPool *))           \
  F(void, DestroyCommandPool, (VkDevice, VkCommandPool, const void *))                                                 \
  F(VkResult, AllocateCommandBuffers, (VkDevice, const VkCommandBufferAllocateInfo *, VkCommandBuffer *))              \
  F(VkResult, BeginCommandBuffer, (VkCommandBuffer, const VkCommandBufferBeginInfo *))                                 \
  F(VkResult, EndCommandBuffer, (VkCommandBuffer))                                                                     \
  F(void, CmdPipelineBarrier,                                                                                          \
    (VkCommandBuffer, VkFlags, VkFlags, VkFlags, uint32_t, const VkMemoryBarrier *, uint32_t, const void *, uint32_t,  \
     const void *))                                                                                                    \
  F(void, CmdCopyBuffer, (VkCommandBuffer, VkBuffer, VkBuffer, uint32_t, const VkBufferCopy *))                        \
  F(void, CmdFillBuffer, (VkCommandBuffer, VkBuffer, VkDeviceSize, VkDeviceSize, uint32_t))                            \
  F(void, CmdResetQueryPool, (VkCommandBuffer, VkQueryPool, uint32_t, uint32_t))                                       \
  F(void, CmdWriteTimestamp, (VkCommandBuffer, VkFlags, VkQueryPool, uint32_t))                                        \
  F(void, CmdBindPipeline, (VkCommandBuffer, uint32_t, VkPipeline))                                                    \
  F(void, CmdBindDescriptorSets,                                                                                       \
    (VkCommandBuffer, uint32_t, VkPipelineLayout, uint32_t, uint32_t, const VkDescriptorSet *, uint32_t,               \
     const uint32_t *))                                                                                                \
  F(void, CmdPushConstants, (VkCommandBuffer, VkPipelineLayout, VkFlags, uint32_t, uint32_t, const void *))            \
  F(void, CmdDispatchBase, (VkCommandBuffer, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t))              \
  F(VkResult, CreateShaderModule, (VkDevice, const VkShaderModuleCreateInfo *, const void *, VkShaderModule *))        \
  F(void, DestroyShaderModule, (VkDevice, VkShaderModule, const void *))                                               \
  F(VkResult, CreateDescriptorSetLayout,                                                                               \
    (VkDevice, const VkDescriptorSetLayoutCreateInfo *, const void *, VkDescriptorSetLayout *))                        \
  F(void, DestroyDescriptorSetLayout, (VkDevice, VkDescriptorSetLayout, const void *))                                 \
  F(VkResult, CreatePipelineLayout, (VkDevice, const VkPipelineLayoutCreateInfo *, const void *, VkPipelineLayout *))  \
  F(void, DestroyPipelineLayout, (VkDevice, VkPipelineLayout, const void *))                                           \
  F(VkResult, CreatePipelineCache, (VkDevice, const VkPipelineCacheCreateInfo *, const void *, VkPipelineCache *))     \
  F(void, DestroyPipelineCache, (VkDevice, VkPipelineCache, const void *))                                             \
  F(VkResult, GetPipelineCacheData, (VkDevice, VkPipelineCache, size_t *, void *))                                     \
  F(VkResult, CreateComputePipelines,                                                                                  \
    (VkDevice, VkPipelineCache, uint32_t, const VkComputePipelineCreateInfo *, const void *, VkPipeline *))            \
  F(void, DestroyPipeline, (VkDevice, VkPipeline, const void *))                                                       \
  F(VkResult, CreateDescriptorPool, (VkDevice, const VkDescriptorPoolCreateInfo *, const void *, VkDescriptorPool *))  \
  F(void, DestroyDescriptorPool, (VkDevice, VkDescriptorPool, const void *))                                           \
  F(VkResult, ResetDescriptorPool, (VkDevice, VkDescriptorPool, VkFlags))                                              \
  F(VkResult, AllocateDescriptorSets, (VkDevice, const VkDescriptorSetAllocateInfo *, VkDescriptorSet *))              \
  F(void, UpdateDescriptorSets, (VkDevice, uint32_t, const VkWriteDescriptorSet *, uint32_t, const void *))

#endif /* VULKAN_API_H_ */
