/* module.h: modules and kernels; implemented in module.c, capability.c, kernel.c and pipeline_cache.c. */
#ifndef MODULE_H_
#define MODULE_H_

#include <hal/plugin_records.h>
#include <hal/plugin_spirv.h>

#include "vulkan_plugin.h"

enum { VULKAN_PIPELINES = 8, VULKAN_POD_BYTES = 4096, VULKAN_PUSH_BYTES = 256 };

/* A kernel compiled for blocks of one size, which are specialization constants. */
typedef struct vulkan_pipeline_s {
  uint32_t block[3];
  VkPipeline pipeline;
} vulkan_pipeline_t;

struct hal_plugin_kernel_s {
  hal_plugin_module_t *module;
  hal_plugin_kernel_t *next;
  hal_name_t *name;
  hal_clspv_kernel_t signature;
  VkDescriptorSetLayout set_layout;
  VkPipelineLayout layout;
  pthread_mutex_t lock; /* guards the members below */
  vulkan_pipeline_t pipelines[VULKAN_PIPELINES];
  uint32_t pipeline_count;
  VkResult refusal; /* why the driver cannot compile the kernel; VK_SUCCESS: unknown */
};

struct hal_plugin_module_s {
  vulkan_device_t *device;
  VkShaderModule shader;
  uint32_t *words; /* its SPIR-V, which describes the arguments of kernels */
  size_t word_count;
  uint32_t fold;        /* the number of a block is x + fold * y; 0: it is x */
  pthread_mutex_t lock; /* guards the list */
  hal_plugin_kernel_t *kernels;
};

/* Returns HAL_UNIMPLEMENTED, with the name of the feature, if a module requires what the device lacks. */
hal_status_t vulkan_check_capabilities(const vulkan_device_t *device, const uint32_t *words, size_t count);

/* Creates a kernel of a module. Errors: HAL_NOT_FOUND. */
hal_status_t vulkan_kernel_create(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel);
void vulkan_kernel_destroy(hal_plugin_kernel_t *kernel);

/* Sets the descriptors of a command that was begun on a lane, all storage buffers (submit.c). */
hal_status_t vulkan_lane_bind(vulkan_lane_t *lane, const hal_plugin_kernel_t *kernel,
                              const VkDescriptorBufferInfo *buffers);

#endif /* MODULE_H_ */
