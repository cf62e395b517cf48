/* kernel.c: kernels and their launches. Pointers are storage buffers, numbers are push constants or lie in one more
 * buffer. A portable kernel takes an offset after each pointer, because a storage buffer cannot begin at any address.
 */
#include <string.h>

#include "module.h"

/* ---- creation and destruction ----------------------------------------------------------------------------------- */

static VkResult create_layouts(hal_plugin_kernel_t *kernel) {
  const VkDevice device = kernel->module->device->handle;
  const hal_clspv_kernel_t *const signature = &kernel->signature;
  VkDescriptorSetLayoutBinding bindings[HAL_SPIRV_ARGS];
  for (uint32_t i = 0; i < signature->bindings; i++)
    bindings[i] = (VkDescriptorSetLayoutBinding){.binding = i,
                                                 .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                                 .descriptorCount = 1,
                                                 .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
  const VkDescriptorSetLayoutCreateInfo set = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                               .bindingCount = signature->bindings,
                                               .pBindings = bindings};
  const VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, (signature->push_size + 3) & ~3u};
  const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                             .setLayoutCount = 1,
                                             .pSetLayouts = &kernel->set_layout,
                                             .pushConstantRangeCount = signature->push_size ? 1 : 0,
                                             .pPushConstantRanges = &range};
  const VkResult code = vk.CreateDescriptorSetLayout(device, &set, NULL, &kernel->set_layout);
  return code ? code : vk.CreatePipelineLayout(device, &layout, NULL, &kernel->layout);
}

static hal_status_t read_kernel(hal_plugin_kernel_t *kernel) {
  const hal_plugin_module_t *const module = kernel->module;
  const VkPhysicalDeviceLimits *const limits = &module->device->facts.limits;
  const hal_clspv_kernel_t *const signature = &kernel->signature;
  const hal_status_t status =
      hal_clspv_kernel(module->words, module->word_count, kernel->name->text, &kernel->signature);
  if (status == HAL_NOT_FOUND)
    return vulkan_error(status, 0, "vulkan: there is no kernel '%s' in the module", kernel->name->text);
  if (status || signature->push_size > limits->maxPushConstantsSize || signature->push_size > VULKAN_PUSH_BYTES ||
      signature->pod_size > VULKAN_POD_BYTES || signature->bindings > limits->maxPerStageDescriptorStorageBuffers)
    return vulkan_error(HAL_UNIMPLEMENTED, 0,
                        "vulkan: the kernel '%s' takes its arguments in a way that is unsupported on '%s': %u buffers, "
                        "%u bytes of push constants, %u bytes of numbers, or local memory, images or constant data",
                        kernel->name->text, module->device->facts.deviceName, (unsigned)signature->bindings,
                        (unsigned)signature->push_size, (unsigned)signature->pod_size);
  const VkResult code = create_layouts(kernel);
  return code ? vulkan_driver_error(code, "vulkan: cannot create the kernel '%s'", kernel->name->text) : HAL_OK;
}

static void destroy_layouts(hal_plugin_kernel_t *kernel) {
  const VkDevice device = kernel->module->device->handle;
  vk.DestroyPipelineLayout(device, kernel->layout, NULL);
  vk.DestroyDescriptorSetLayout(device, kernel->set_layout, NULL);
}

hal_status_t vulkan_kernel_create(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  hal_plugin_kernel_t *const kernel = hal_host->mem_alloc(sizeof *kernel, alignof(hal_plugin_kernel_t));
  hal_name_t *const own_name = hal_name_make(name);
  hal_status_t status = HAL_RESOURCE_EXHAUSTED;
  if (!kernel || !own_name) {
    vulkan_error(status, 0, "vulkan: no host memory for the kernel '%s'", name);
    goto cleanup;
  }
  *kernel = (hal_plugin_kernel_t){.module = module, .name = own_name};
  status = read_kernel(kernel);
  if (status) {
    destroy_layouts(kernel);
    goto cleanup;
  }
  pthread_mutex_init(&kernel->lock, NULL);
  *out_kernel = kernel;
  return HAL_OK;
cleanup:
  if (own_name) hal_name_drop(own_name, 0);
  hal_host->mem_free(kernel);
  return status;
}

void vulkan_kernel_destroy(hal_plugin_kernel_t *kernel) {
  for (uint32_t i = 0; i < kernel->pipeline_count; i++)
    vk.DestroyPipeline(kernel->module->device->handle, kernel->pipelines[i].pipeline, NULL);
  destroy_layouts(kernel);
  pthread_mutex_destroy(&kernel->lock);
  hal_name_drop(kernel->name, atomic_load(&vulkan.keep_names));
  hal_host->mem_free(kernel);
}

/* ---- pipelines -------------------------------------------------------------------------------------------------- */

static VkResult create_pipeline(const hal_plugin_kernel_t *kernel, const uint32_t block[3], VkPipeline *out_pipeline) {
  const hal_plugin_module_t *const module = kernel->module;
  const uint32_t *const ids = kernel->signature.block_ids;
  const VkSpecializationMapEntry entries[3] = {{ids[0], 0, 4}, {ids[1], 4, 4}, {ids[2], 8, 4}};
  const VkSpecializationInfo constants = {
      .mapEntryCount = 3, .pMapEntries = entries, .dataSize = 3 * sizeof *block, .pData = block};
  const VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                            .flags = VK_PIPELINE_CREATE_DISPATCH_BASE_BIT,
                                            .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                      .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                      .module = module->shader,
                                                      .pName = kernel->name->text,
                                                      .pSpecializationInfo = &constants},
                                            .layout = kernel->layout};
  return vk.CreateComputePipelines(module->device->handle, module->device->cache, 1, &info, NULL, out_pipeline);
}

/* A kernel that the driver cannot compile runs elsewhere: its operator is computed by the CPU fallback. */
static hal_status_t report_pipeline(const hal_plugin_kernel_t *kernel, const uint32_t block[3], VkResult code) {
  const hal_status_t status = vulkan_status(code);
  const int is_unusable = status == HAL_RESOURCE_EXHAUSTED || status == HAL_UNAVAILABLE;
  return vulkan_error(is_unusable ? status : HAL_UNIMPLEMENTED, (int64_t)code,
                      "vulkan: cannot compile '%s' for blocks of %u x %u x %u threads: the driver returned %s (%d)",
                      kernel->name->text, (unsigned)block[0], (unsigned)block[1], (unsigned)block[2],
                      vulkan_result_name(code), (int)code);
}

/* Creates the pipeline number `i` of a kernel. The caller holds the kernel's lock. */
static VkResult add_pipeline(hal_plugin_kernel_t *kernel, const uint32_t block[3], uint32_t i) {
  if (i == VULKAN_PIPELINES) return VK_ERROR_TOO_MANY_OBJECTS;
  if (kernel->refusal) return kernel->refusal;
  const VkResult code = create_pipeline(kernel, block, &kernel->pipelines[i].pipeline);
  const hal_status_t status = vulkan_status(code);
  if (status && status != HAL_RESOURCE_EXHAUSTED && status != HAL_UNAVAILABLE) kernel->refusal = code;
  if (code) return code;
  memcpy(kernel->pipelines[i].block, block, sizeof kernel->pipelines[i].block);
  kernel->pipeline_count++;
  return VK_SUCCESS;
}

/* Returns the pipeline for a size of blocks, which is compiled at its first launch. */
static hal_status_t pipeline_for(hal_plugin_kernel_t *kernel, const uint32_t block[3], VkPipeline *out_pipeline) {
  uint32_t i = 0;
  VkResult code = VK_SUCCESS;
  pthread_mutex_lock(&kernel->lock);
  const uint32_t count = kernel->pipeline_count;
  while (i < count && memcmp(kernel->pipelines[i].block, block, sizeof kernel->pipelines[i].block)) i++;
  if (i == count) code = add_pipeline(kernel, block, i);
  if (!code) *out_pipeline = kernel->pipelines[i].pipeline;
  pthread_mutex_unlock(&kernel->lock);
  if (!code && i == count) vulkan_cache_grew(kernel->module->device);
  vulkan_noticed(kernel->module->device, code);
  return code ? report_pipeline(kernel, block, code) : HAL_OK;
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

typedef struct launch_s {
  hal_plugin_kernel_t *kernel;
  VkPipeline pipeline;
  uint32_t grid[3];
  alignas(8) unsigned char push[VULKAN_PUSH_BYTES];
  VkDescriptorBufferInfo buffers[HAL_SPIRV_ARGS];
  alignas(8) unsigned char pod[VULKAN_POD_BYTES];
} launch_t;

/* Returns the bytes of a launch that are queued: most kernels have few buffers and no `pod`. */
static size_t launch_size(const hal_clspv_kernel_t *signature) {
  return signature->pod_size ? offsetof(launch_t, pod) + signature->pod_size
                             : offsetof(launch_t, buffers) + signature->bindings * sizeof(VkDescriptorBufferInfo);
}

/* Kernels of a folded grid: full rows of `fold` blocks, then the rest of the last row. */
static void dispatch(VkCommandBuffer commands, const launch_t *launch) {
  const uint32_t fold = launch->kernel->module->fold, *const grid = launch->grid;
  const uint32_t rows = fold ? grid[0] / fold : 0, rest = fold ? grid[0] % fold : 0;
  if (!rows || grid[1] != 1) {
    vk.CmdDispatchBase(commands, 0, 0, 0, grid[0], grid[1], grid[2]);
    return;
  }
  vk.CmdDispatchBase(commands, 0, 0, 0, fold, rows, grid[2]);
  if (rest) vk.CmdDispatchBase(commands, 0, rows, 0, rest, 1, grid[2]);
}

static int is_missing_buffers(const launch_t *launch) {
  const hal_clspv_kernel_t *const signature = &launch->kernel->signature;
  for (uint32_t i = 0; i < signature->bindings; i++)
    if (!launch->buffers[i].buffer) return 1;
  return 0;
}

/* Writes the buffers of a launch. Numbers that are not push constants lie in staging memory of the lane, which also
 * stands for missing buffers. The launch is unchanged, because each instance of a graph records it. */
static hal_status_t find_buffers(vulkan_lane_t *lane, const launch_t *launch, VkDescriptorBufferInfo *buffers) {
  const hal_clspv_kernel_t *const signature = &launch->kernel->signature;
  vulkan_segment_t *chunk;
  size_t offset;
  memcpy(buffers, launch->buffers, signature->bindings * sizeof *buffers);
  if (!signature->pod_size && !is_missing_buffers(launch)) return HAL_OK;
  const hal_status_t status = vulkan_lane_share(lane, VULKAN_POD_BYTES, &chunk, &offset);
  if (status) return status;
  for (uint32_t i = 0; i < signature->bindings; i++)
    if (!buffers[i].buffer)
      buffers[i] = (VkDescriptorBufferInfo){chunk->buffer, chunk->shift + offset, VULKAN_POD_BYTES};
  if (signature->pod_size) memcpy(chunk->mapped + offset, launch->pod, signature->pod_size);
  return HAL_OK;
}

static hal_status_t run_launch(vulkan_lane_t *lane, void *arguments) {
  const launch_t *const launch = arguments;
  const hal_plugin_kernel_t *const kernel = launch->kernel;
  VkDescriptorBufferInfo buffers[HAL_SPIRV_ARGS];
  VkCommandBuffer commands;
  hal_status_t status = vulkan_lane_begin(lane, &commands);
  if (!status) status = find_buffers(lane, launch, buffers);
  if (status) return status;
  status = vulkan_lane_bind(lane, kernel, buffers);
  if (status) return status;
  vk.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, launch->pipeline);
  if (kernel->signature.push_size)
    vk.CmdPushConstants(commands, kernel->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                        (kernel->signature.push_size + 3) & ~3u, launch->push);
  dispatch(commands, launch);
  return HAL_OK;
}

/* Kernels of other compilers number blocks along the first axis only. */
static hal_status_t check_fold(const hal_plugin_kernel_t *kernel, const hal_launch_t *launch) {
  const uint32_t most = kernel->module->device->facts.limits.maxComputeWorkGroupCount[0];
  const int is_folded = kernel->module->fold && launch->grid[1] == 1;
  if (VULKAN_LIKELY(launch->grid[0] <= most || is_folded)) return HAL_OK;
  return vulkan_error(HAL_UNIMPLEMENTED, 0,
                      "vulkan: launch of '%s' with %u blocks; '%s' takes %u of kernels that clspv_compiler.py has not "
                      "compiled; launch it several times",
                      kernel->name->text, (unsigned)launch->grid[0], kernel->module->device->facts.deviceName,
                      (unsigned)most);
}

static hal_status_t check_geometry(const hal_plugin_kernel_t *kernel, const hal_launch_t *launch) {
  const vulkan_device_t *const device = kernel->module->device;
  const VkPhysicalDeviceLimits *const limits = &device->facts.limits;
  const uint32_t most[3] = {vulkan_largest_grid(device), limits->maxComputeWorkGroupCount[1],
                            limits->maxComputeWorkGroupCount[2]};
  uint64_t threads = 1;
  int fits = 1;
  for (int i = 0; i < 3; i++) {
    threads *= launch->block[i];
    fits &= launch->grid[i] && launch->grid[i] <= most[i];
    fits &= launch->block[i] && launch->block[i] <= limits->maxComputeWorkGroupSize[i];
    fits &= !kernel->signature.block[i] || kernel->signature.block[i] == launch->block[i];
  }
  if (VULKAN_LIKELY(fits && threads <= limits->maxComputeWorkGroupInvocations)) return check_fold(kernel, launch);
  return vulkan_error(
      HAL_INVALID_ARGUMENT, 0,
      "vulkan: launch of '%s' with %u x %u x %u blocks of %u x %u x %u threads; '%s' takes 1 to %u x %u x %u blocks of "
      "at most %u threads",
      kernel->name->text, (unsigned)launch->grid[0], (unsigned)launch->grid[1], (unsigned)launch->grid[2],
      (unsigned)launch->block[0], (unsigned)launch->block[1], (unsigned)launch->block[2], device->facts.deviceName,
      (unsigned)most[0], (unsigned)most[1], (unsigned)most[2], (unsigned)limits->maxComputeWorkGroupInvocations);
}

static hal_status_t refuse(const hal_plugin_kernel_t *kernel, uint32_t index, const char *why) {
  return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: argument %u of '%s' %s", (unsigned)index, kernel->name->text,
                      why);
}

/* Writes a number where the kernel reads it. */
static hal_status_t set_number(launch_t *launch, uint32_t index, uint32_t at, const void *value, uint32_t size) {
  const hal_clspv_argument_t *const argument = &launch->kernel->signature.arguments[at];
  if (argument->place == HAL_CLSPV_UNUSED) return HAL_OK;
  if (argument->place == HAL_CLSPV_BUFFER || size != argument->size)
    return refuse(launch->kernel, index, "is a number of another size, or stands for an address");
  memcpy((argument->place == HAL_CLSPV_POD_PUSH ? launch->push : launch->pod) + argument->offset, value, size);
  return HAL_OK;
}

/* Finds the buffer of an address. `*out_rest` is the part of the offset that the kernel adds. Without `offsets` it is
 * 0, and the address must be one at which a storage buffer may begin. */
static hal_status_t set_pointer(launch_t *launch, uint32_t index, uint32_t at, const char *address, int offsets,
                                uint64_t *out_rest) {
  const hal_plugin_kernel_t *const kernel = launch->kernel;
  const vulkan_device_t *const device = kernel->module->device;
  const VkPhysicalDeviceLimits *const limits = &device->facts.limits;
  const hal_clspv_argument_t *const argument = &kernel->signature.arguments[at];
  *out_rest = 0;
  if (argument->place == HAL_CLSPV_UNUSED || !address) return HAL_OK;
  if (argument->place != HAL_CLSPV_BUFFER) return refuse(kernel, index, "is an address in place of a number");
  const vulkan_segment_t *const segment = vulkan_map_find(address);
  if (!segment || segment->device != device->ordinal) return refuse(kernel, index, "is not an address of the device");
  const VkDeviceSize alignment = limits->minStorageBufferOffsetAlignment;
  const VkDeviceSize offset = segment->shift + (VkDeviceSize)(address - segment->base),
                     first = offset & ~(alignment - 1);
  const VkDeviceSize left = segment->shift + segment->size - first, most = limits->maxStorageBufferRange;
  if (offset != first && !offsets)
    return vulkan_error(
        HAL_UNIMPLEMENTED, 0,
        "vulkan: argument %u of '%s' begins %llu bytes after the start of a buffer; a kernel that takes "
        "no offsets needs a multiple of %llu",
        (unsigned)index, kernel->name->text, (unsigned long long)offset, (unsigned long long)alignment);
  /* The host launches no kernel that accesses more than max_binding bytes. */
  launch->buffers[argument->binding] = (VkDescriptorBufferInfo){segment->buffer, first, left < most ? left : most};
  *out_rest = offset - first;
  return HAL_OK;
}

static hal_status_t set_arguments(launch_t *launch, const hal_launch_t *wanted) {
  const hal_plugin_kernel_t *const kernel = launch->kernel;
  uint32_t pointers = 0, at = 0;
  for (uint32_t i = 0; i < wanted->arg_count; i++) pointers += wanted->args[i].kind == HAL_ARG_POINTER;
  const int offsets = pointers && kernel->signature.count == wanted->arg_count + pointers;
  if (VULKAN_UNLIKELY(kernel->signature.count != wanted->arg_count && !offsets))
    return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: launch of '%s' with %u arguments; it takes %u",
                        kernel->name->text, (unsigned)wanted->arg_count, (unsigned)kernel->signature.count);
  for (uint32_t i = 0; i < wanted->arg_count; i++) {
    const hal_arg_t *const arg = &wanted->args[i];
    hal_status_t status;
    uint64_t rest = 0;
    if (arg->kind == HAL_ARG_VALUE && arg->value) {
      status = set_number(launch, i, at++, arg->value, arg->size);
    } else if (arg->kind == HAL_ARG_POINTER && arg->value && arg->size == sizeof(void *)) {
      status = set_pointer(launch, i, at++, *(char *const *)arg->value, offsets, &rest);
      if (!status && offsets) status = set_number(launch, i, at++, &rest, sizeof rest);
    } else if (arg->kind == HAL_ARG_LOCAL) {
      status = vulkan_error(HAL_UNIMPLEMENTED, 0,
                            "vulkan: argument %u of '%s' is local memory, which kernels of Vulkan declare themselves",
                            (unsigned)i, kernel->name->text);
    } else {
      status = refuse(kernel, i, "has an unknown kind, no value, or another size than an address");
    }
    if (VULKAN_UNLIKELY(status)) return status;
  }
  return HAL_OK;
}

static hal_status_t check_launch(const hal_plugin_kernel_t *kernel, const hal_plugin_stream_t *stream,
                                 const hal_launch_t *launch) {
  const vulkan_device_t *const device = kernel->module->device;
  hal_status_t status = vulkan_check_alive(device->ordinal);
  if (VULKAN_UNLIKELY(status)) return status;
  if (VULKAN_UNLIKELY(stream && stream->device != device))
    return vulkan_error(HAL_INVALID_ARGUMENT, 0, "vulkan: launch of '%s' of device %d on a stream of device %d",
                        kernel->name->text, (int)device->ordinal, (int)stream->device->ordinal);
  if (VULKAN_UNLIKELY(launch->shared_bytes))
    return vulkan_error(HAL_INVALID_ARGUMENT, 0,
                        "vulkan: launch of '%s' with %u shared bytes; kernels of Vulkan declare their local memory",
                        kernel->name->text, (unsigned)launch->shared_bytes);
  for (uint32_t i = 0; i < launch->attribute_count; i++)
    if (launch->attributes[i].required)
      return vulkan_error(HAL_UNIMPLEMENTED, 0, "vulkan: launch of '%s' with a required attribute; Vulkan has none",
                          kernel->name->text);
  return check_geometry(kernel, launch);
}

hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *kernel, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  const vulkan_label_t label = {.op = "kernel_launch",
                                .kernel = kernel->name->text,
                                .buffers = kernel->signature.bindings,
                                .is_recordable = 1,
                                .is_short = 1,
                                .measured = 1,
                                .kind = HAL_PROFILE_KERNEL};
  launch_t work;
  hal_status_t status = check_launch(kernel, stream, launch);
  if (VULKAN_UNLIKELY(status)) return status;
  work.kernel = kernel;
  memcpy(work.grid, launch->grid, sizeof work.grid);
  memset(work.buffers, 0, kernel->signature.bindings * sizeof *work.buffers);
  status = set_arguments(&work, launch);
  if (!status) status = pipeline_for(kernel, launch->block, &work.pipeline);
  if (VULKAN_UNLIKELY(status)) return status;
  return vulkan_submit(stream, kernel->module->device, label, run_launch, &work, launch_size(&kernel->signature));
}

hal_status_t hal_plugin_kernel_info(hal_plugin_kernel_t *kernel, uint32_t block_threads, uint32_t shared_bytes,
                                    hal_kernel_info_t *out_info) {
  const vulkan_device_t *const device = kernel->module->device;
  const hal_status_t status = vulkan_check_device(device->ordinal);
  if (status) return status;
  const uint32_t most = device->facts.limits.maxComputeWorkGroupInvocations;
  const hal_kernel_info_t info = {.struct_size = out_info->struct_size,
                                  .max_block_threads = most,
                                  .subgroup_size = device->subgroup,
                                  .blocks_per_unit = block_threads && block_threads <= most && !shared_bytes ? 1 : 0};
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return HAL_OK;
}
