/* module.c: modules in the dialect "spirv-vulkan": SPIR-V for Vulkan as clspv compiles it from OpenCL C. The portable
 * kernels are in a pack next to the plugin. The words are checked by their reflection and by the driver. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_WORDS = 5, MAGIC = 0x07230203 };

/* Reads the factor of clspv_compiler.py: kernels whose block number is x + factor * y. */
static uint32_t read_fold(const hal_plugin_module_t *module) {
  static const char mark[] = "torch_backend.fold=";
  const char *const text = hal_spirv_string(module->words, module->word_count, 0);
  if (!text || strncmp(text, mark, sizeof mark - 1) != 0) return 0;
  const unsigned long fold = strtoul(text + sizeof mark - 1, NULL, 10);
  return fold == VULKAN_FOLD ? VULKAN_FOLD : 0;
}

static hal_status_t create(const hal_module_desc_t *desc, hal_plugin_module_t *module) {
  const char *const dialect = desc->dialect ? desc->dialect : "";
  if (strcmp(dialect, "spirv-vulkan") != 0)
    return vulkan_error(HAL_UNIMPLEMENTED, 0,
                        "vulkan: unsupported dialect '%s' of a module; expected 'spirv-vulkan', which clspv compiles",
                        dialect);
  if (!desc->data || desc->size < HEADER_WORDS * 4 || desc->size % 4)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0,
                        "vulkan: a module in 'spirv-vulkan' has %zu bytes at %p; pass its words of four bytes",
                        desc->size, desc->data);
  module->words = hal_host->mem_alloc(desc->size, alignof(uint32_t));
  if (!module->words)
    return vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no host memory for a module of %zu bytes; free some memory",
                        desc->size);
  memcpy(module->words, desc->data, desc->size);
  module->word_count = desc->size / 4;
  if (module->words[0] != MAGIC)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: a module in 'spirv-vulkan' begins with 0x%x instead of 0x%x",
                        (unsigned)module->words[0], MAGIC);
  const hal_status_t status = vulkan_check_capabilities(module->device, module->words, module->word_count);
  if (status) return status;
  module->fold = read_fold(module);
  const VkShaderModuleCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = desc->size, .pCode = module->words};
  const VkResult code = vk.CreateShaderModule(module->device->handle, &info, NULL, &module->shader);
  vulkan_noticed(module->device, code);
  return code ? vulkan_driver_error(code, "vulkan: '%s' refuses a module of %zu bytes",
                                    module->device->facts.deviceName, desc->size)
              : HAL_OK;
}

hal_status_t hal_plugin_module_load(int32_t ordinal, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  hal_status_t status = vulkan_check_alive(ordinal);
  if (status) return status;
  hal_plugin_module_t *const module = hal_host->mem_alloc(sizeof *module, alignof(hal_plugin_module_t));
  if (!module) return vulkan_error(HAL_RESOURCE_EXHAUSTED, 0, "vulkan: no host memory for a module; free some memory");
  *module = (hal_plugin_module_t){.device = &vulkan.devices[ordinal]};
  status = create(desc, module);
  if (status) {
    hal_host->mem_free(module->words);
    hal_host->mem_free(module);
    return status;
  }
  pthread_mutex_init(&module->lock, NULL);
  *out_module = module;
  return HAL_OK;
}

hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) {
  if (!module) return HAL_OK;
  const hal_status_t status = vulkan_check_device(module->device->ordinal);
  if (status) return status;
  for (hal_plugin_kernel_t *kernel; (kernel = module->kernels);) {
    module->kernels = kernel->next;
    vulkan_kernel_destroy(kernel);
  }
  vk.DestroyShaderModule(module->device->handle, module->shader, NULL);
  hal_host->mem_free(module->words);
  pthread_mutex_destroy(&module->lock);
  hal_host->mem_free(module);
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  hal_status_t status = vulkan_check_alive(module->device->ordinal);
  if (status) return status;
  pthread_mutex_lock(&module->lock);
  hal_plugin_kernel_t *kernel = module->kernels;
  while (kernel && strcmp(kernel->name->text, name) != 0) kernel = kernel->next;
  if (!kernel) {
    status = vulkan_kernel_create(module, name, &kernel);
    if (!status) {
      kernel->next = module->kernels;
      module->kernels = kernel;
    }
  }
  pthread_mutex_unlock(&module->lock);
  if (!status) *out_kernel = kernel;
  return status;
}
