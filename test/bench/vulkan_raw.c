/* vulkan_raw.c: launches through the HAL and the Vulkan plugin compared with the same kernel recorded directly, in the
 * same run and on the same device.
 *
 *   HAL_PLUGIN_PATH=<directory of libhal_vulkan.so> bench_vulkan_raw build/release/test/hal/add_number.spv [--check]
 *
 * A row is the time of one launch: the best of several rounds, in which the sides run alternately. "launch + wait" is
 * one launch and a wait, "burst" is 200 launches and a wait, divided by 200. Directly: one command buffer for a burst,
 * with a barrier, new descriptors and push constants for each launch, and a barrier for the host, submitted once. The
 * column "fixed" has the same descriptors for all launches, as only a program with fixed buffers can. With --check the
 * exit code is 1 if a launch through the HAL takes more than 3 us beyond the direct one.
 *
 *   bench_vulkan_raw --bound build/release/test/vulkan_add.spv build/release/test/vulkan_sum.spv
 *
 * prints the microseconds in which the driver runs two kernels of 16 Mi elements of float32 directly, and those of the
 * process's threads: what portable kernels can reach at best (vulkan.py). */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../plugins/vulkan/vulkan_api.h"
#include "hal/hal.h"

enum { ROUNDS = 100, BURST = 200, BLOCK = 64, NUMBERS = 64, BYTES = 1 << 16, BINDINGS = 3 };
enum { BOUND_ROUNDS = 5, BOUND_NUMBERS = 1 << 24, BOUND_ITEMS = 1 << 16, RUN = 4 };
#define TARGET_US 3.0

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* ---- direct calls ------------------------------------------------------------------------------------------------ */

#define MEMBER(result, name, params) result(*name) params;
static struct { VULKAN_FUNCTIONS(MEMBER) } vk;

static struct {
  VkPhysicalDevice adapter;
  VkDevice device;
  VkQueue queue;
  VkCommandPool pool;
  VkCommandBuffer commands;
  VkDescriptorSetLayout set_layout;
  VkDescriptorPool set_pool;
  VkDescriptorSet sets[BURST];
  VkPipelineLayout layout;
  VkPipeline pipeline;
  VkBuffer buffers[BINDINGS];
  VkDeviceSize bytes; /* of each buffer */
  VkSemaphore semaphore;
  uint64_t value;
} raw;

static void must_vk(VkResult code, const char *what) {
  if (!code) return;
  fprintf(stderr, "vulkan_raw: %s: %d\n", what, (int)code);
  exit(2);
}

static void not_measured(const char *why) {
  printf("not measured: %s; install a Vulkan driver (Debian: mesa-vulkan-drivers)\n", why);
  exit(0);
}

static void load(void) {
  void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) not_measured(dlerror());
#define LOAD(result, name, params)                                  \
  {                                                                 \
    void *symbol = dlsym(library, "vk" #name);                      \
    if (!symbol) not_measured("the loader lacks vk" #name);         \
    memcpy((void *)&vk.name, (const void *)&symbol, sizeof symbol); \
  }
  VULKAN_FUNCTIONS(LOAD)
}

static void open_device(void) {
  const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2};
  const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
  VkPhysicalDeviceVulkan12Features features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &features};
  VkInstance instance;
  uint32_t count = 1;
  must_vk(vk.CreateInstance(&info, NULL, &instance), "instance");
  const VkResult code = vk.EnumeratePhysicalDevices(instance, &count, &raw.adapter);
  if ((code && code != VK_INCOMPLETE) || !count) not_measured("no device");
  vk.GetPhysicalDeviceFeatures2(raw.adapter, &all);
  const float priority = 1;
  const VkDeviceQueueCreateInfo queue = {
      .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
  const VkDeviceCreateInfo device = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &all,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue};
  must_vk(vk.CreateDevice(raw.adapter, &device, NULL, &raw.device), "device");
  vk.GetDeviceQueue(raw.device, 0, 0, &raw.queue);
}

static void make_buffer(VkBuffer *out_buffer) {
  const VkBufferCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = raw.bytes, .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
  VkMemoryRequirements needs;
  VkDeviceMemory memory;
  must_vk(vk.CreateBuffer(raw.device, &info, NULL, out_buffer), "buffer");
  vk.GetBufferMemoryRequirements(raw.device, *out_buffer, &needs);
  const VkMemoryAllocateInfo allocation = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                           .allocationSize = needs.size,
                                           .memoryTypeIndex = (uint32_t)__builtin_ctz(needs.memoryTypeBits)};
  must_vk(vk.AllocateMemory(raw.device, &allocation, NULL, &memory), "memory");
  must_vk(vk.BindBufferMemory(raw.device, *out_buffer, memory, 0), "memory of the buffer");
}

static void make_pipeline(const uint32_t *words, size_t size, const char *name) {
  VkDescriptorSetLayoutBinding bindings[BINDINGS];
  for (uint32_t i = 0; i < BINDINGS; i++)
    bindings[i] =
        (VkDescriptorSetLayoutBinding){i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, 0};
  const VkDescriptorSetLayoutCreateInfo set = {
      .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, .bindingCount = BINDINGS, .pBindings = bindings};
  must_vk(vk.CreateDescriptorSetLayout(raw.device, &set, NULL, &raw.set_layout), "layout of the set");
  const VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 24};
  const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                             .setLayoutCount = 1,
                                             .pSetLayouts = &raw.set_layout,
                                             .pushConstantRangeCount = 1,
                                             .pPushConstantRanges = &range};
  must_vk(vk.CreatePipelineLayout(raw.device, &layout, NULL, &raw.layout), "layout");
  const VkShaderModuleCreateInfo code = {
      .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = size, .pCode = words};
  VkShaderModule module;
  must_vk(vk.CreateShaderModule(raw.device, &code, NULL, &module), "module");
  static const uint32_t block[3] = {BLOCK, 1, 1};
  static const VkSpecializationMapEntry entries[3] = {{0, 0, 4}, {1, 4, 4}, {2, 8, 4}};
  const VkSpecializationInfo sizes = {3, entries, sizeof block, block};
  const VkComputePipelineCreateInfo pipeline = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                                .flags = VK_PIPELINE_CREATE_DISPATCH_BASE_BIT,
                                                .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                          .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                          .module = module,
                                                          .pName = name,
                                                          .pSpecializationInfo = &sizes},
                                                .layout = raw.layout};
  must_vk(vk.CreateComputePipelines(raw.device, NULL, 1, &pipeline, NULL, &raw.pipeline), "pipeline");
}

static void make_queue_objects(void) {
  const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT};
  must_vk(vk.CreateCommandPool(raw.device, &pool, NULL, &raw.pool), "pool");
  const VkCommandBufferAllocateInfo commands = {
      .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = raw.pool, .commandBufferCount = 1};
  must_vk(vk.AllocateCommandBuffers(raw.device, &commands, &raw.commands), "commands");
  const VkDescriptorPoolSize room = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, BINDINGS * BURST};
  const VkDescriptorPoolCreateInfo sets = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                           .maxSets = BURST,
                                           .poolSizeCount = 1,
                                           .pPoolSizes = &room};
  must_vk(vk.CreateDescriptorPool(raw.device, &sets, NULL, &raw.set_pool), "pool of sets");
  for (int i = 0; i < BURST; i++) {
    const VkDescriptorSetAllocateInfo set = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                             .descriptorPool = raw.set_pool,
                                             .descriptorSetCount = 1,
                                             .pSetLayouts = &raw.set_layout};
    must_vk(vk.AllocateDescriptorSets(raw.device, &set, &raw.sets[i]), "set");
  }
  const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                          .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  const VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
  must_vk(vk.CreateSemaphore(raw.device, &semaphore, NULL, &raw.semaphore), "semaphore");
}

static void describe(VkDescriptorSet set) {
  VkDescriptorBufferInfo ranges[BINDINGS];
  VkWriteDescriptorSet writes[BINDINGS];
  for (uint32_t i = 0; i < BINDINGS; i++) {
    ranges[i] = (VkDescriptorBufferInfo){raw.buffers[i], 0, raw.bytes};
    writes[i] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                       .dstSet = set,
                                       .dstBinding = i,
                                       .descriptorCount = 1,
                                       .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                       .pBufferInfo = &ranges[i]};
  }
  vk.UpdateDescriptorSets(raw.device, BINDINGS, writes, 0, NULL);
}

typedef struct pushed_s {
  uint64_t out_offset, a_offset;
  int32_t s;
  uint32_t n;
} pushed_t;

static void record(int number, int is_fixed) {
  static const pushed_t pushed = {0, 0, 7, NUMBERS};
  static const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                          .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
                                          .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
  const VkDescriptorSet set = raw.sets[is_fixed ? 0 : number];
  if (!is_fixed) describe(set);
  vk.CmdPipelineBarrier(raw.commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 1,
                        &barrier, 0, NULL, 0, NULL);
  if (!is_fixed || !number) {
    vk.CmdBindPipeline(raw.commands, VK_PIPELINE_BIND_POINT_COMPUTE, raw.pipeline);
    vk.CmdBindDescriptorSets(raw.commands, VK_PIPELINE_BIND_POINT_COMPUTE, raw.layout, 0, 1, &set, 0, NULL);
  }
  vk.CmdPushConstants(raw.commands, raw.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof pushed, &pushed);
  vk.CmdDispatchBase(raw.commands, 0, 0, 0, NUMBERS / BLOCK, 1, 1);
}

static void begin_commands(void) {
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                          .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  must_vk(vk.BeginCommandBuffer(raw.commands, &begin), "begin");
}

/* Submits the commands and waits for them. */
static void end_commands(void) {
  static const VkMemoryBarrier to_host = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                          .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
                                          .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
  vk.CmdPipelineBarrier(raw.commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host, 0,
                        NULL, 0, NULL);
  must_vk(vk.EndCommandBuffer(raw.commands), "end");
  raw.value++;
  const VkTimelineSemaphoreSubmitInfo timeline = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                  .signalSemaphoreValueCount = 1,
                                                  .pSignalSemaphoreValues = &raw.value};
  const VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .pNext = &timeline,
                               .commandBufferCount = 1,
                               .pCommandBuffers = &raw.commands,
                               .signalSemaphoreCount = 1,
                               .pSignalSemaphores = &raw.semaphore};
  const VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                    .semaphoreCount = 1,
                                    .pSemaphores = &raw.semaphore,
                                    .pValues = &raw.value};
  must_vk(vk.QueueSubmit(raw.queue, 1, &submit, NULL), "submit");
  must_vk(vk.WaitSemaphores(raw.device, &wait, UINT64_MAX), "wait");
}

static void run_raw(int launches, int is_fixed) {
  begin_commands();
  for (int i = 0; i < launches; i++) record(i, is_fixed);
  end_commands();
}

static void open_raw(VkDeviceSize bytes) {
  raw.bytes = bytes;
  load();
  open_device();
  for (int i = 0; i < BINDINGS; i++) make_buffer(&raw.buffers[i]);
}

static void open_launches(const uint32_t *words, size_t size) {
  open_raw(BYTES);
  make_pipeline(words, size, "add_number");
  make_queue_objects();
  describe(raw.sets[0]);
}

/* ---- what the driver can reach ----------------------------------------------------------------------------------- */

static double process_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void run_large(uint32_t items) {
  static const pushed_t pushed = {.n = BOUND_NUMBERS};
  begin_commands();
  vk.CmdBindPipeline(raw.commands, VK_PIPELINE_BIND_POINT_COMPUTE, raw.pipeline);
  vk.CmdBindDescriptorSets(raw.commands, VK_PIPELINE_BIND_POINT_COMPUTE, raw.layout, 0, 1, raw.sets, 0, NULL);
  vk.CmdPushConstants(raw.commands, raw.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof pushed, &pushed);
  vk.CmdDispatchBase(raw.commands, 0, 0, 0, items / BLOCK, 1, 1);
  end_commands();
}

static void print_bound(const char *name, uint32_t items) {
  double best[2] = {1e30, 1e30};
  for (int round = 0; round <= BOUND_ROUNDS; round++) { /* the first one maps the memory */
    const double begin = now_us(), process = process_us();
    run_large(items);
    const double us[2] = {now_us() - begin, process_us() - process};
    for (int i = 0; i < 2 && round; i++)
      if (us[i] < best[i]) best[i] = us[i];
  }
  printf("%s %.1f %.1f\n", name, best[0], best[1]);
}

static size_t read_words(const char *path, uint32_t *words, size_t room) {
  FILE *const file = path ? fopen(path, "rb") : NULL;
  if (!file) {
    fprintf(stderr,
            "usage: vulkan_raw FILE.spv [--check], or --bound ADD.spv SUM.spv; the build assembles "
            "test/hal/add_number.spv, test/vulkan_add.spv and test/vulkan_sum.spv\n");
    exit(2);
  }
  const size_t size = fread(words, 1, room, file);
  fclose(file);
  return size;
}

static int print_bounds(char **paths) {
  static uint32_t words[1 << 14];
  size_t size = read_words(paths[0], words, sizeof words);
  open_raw(BOUND_NUMBERS * sizeof(float));
  make_pipeline(words, size, "main");
  make_queue_objects();
  describe(raw.sets[0]);
  print_bound("add", BOUND_NUMBERS / RUN);
  size = read_words(paths[1], words, sizeof words);
  make_pipeline(words, size, "main");
  print_bound("sum", BOUND_ITEMS);
  return 0;
}

/* ---- through the HAL --------------------------------------------------------------------------------------------- */

static hal_stream_t *stream;
static hal_kernel_t *kernel;
static hal_block_t *blocks[2];
static char *memory[2];

static void must(hal_status_t status) {
  if (!status) return;
  fprintf(stderr, "vulkan_raw: %s\n", hal_error_message());
  exit(2);
}

static void open_ours(const uint32_t *words, size_t size) {
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "spirv-vulkan", .options = "", .data = words, .size = size};
  hal_module_t *module;
  must(hal_registry_open("vulkan"));
  must(hal_stream_acquire(0, 0, &stream));
  must(hal_module_load(0, &desc, &module));
  must(hal_kernel_get(module, "add_number", &kernel));
  for (int i = 0; i < 2; i++) {
    must(hal_memory_allocate(0, stream, BYTES, &blocks[i]));
    memory[i] = hal_memory_block_address(blocks[i]);
  }
  must(hal_memory_fill(stream, 0, memory[1], "", 1, BYTES));
}

static void close_ours(void) {
  int32_t sums[NUMBERS];
  must(hal_memory_copy(stream, sums, HAL_HOST, memory[0], 0, sizeof sums));
  must(hal_stream_synchronize(stream));
  for (int i = 0; i < NUMBERS; i++) {
    if (sums[i] == 7) continue;
    fprintf(stderr, "vulkan_raw: element %d is %d, not 7\n", i, (int)sums[i]);
    exit(2);
  }
  for (int i = 0; i < 2; i++) hal_memory_release(blocks[i]);
  hal_registry_close();
}

static void run_ours(int launches) {
  const int32_t s = 7;
  const uint32_t n = NUMBERS;
  const hal_arg_t args[] = {{&memory[0], sizeof memory[0], HAL_ARG_POINTER},
                            {&memory[1], sizeof memory[1], HAL_ARG_POINTER},
                            {&s, sizeof s, HAL_ARG_VALUE},
                            {&n, sizeof n, HAL_ARG_VALUE}};
  const hal_launch_t desc = {.struct_size = sizeof desc,
                             .grid = {NUMBERS / BLOCK, 1, 1},
                             .block = {BLOCK, 1, 1},
                             .arg_count = 4,
                             .args = args};
  for (int i = 0; i < launches; i++) must(hal_kernel_launch(kernel, stream, &desc));
  must(hal_stream_synchronize(stream));
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* side: 0 = the HAL, 1 = directly, 2 = directly with fixed descriptors */
static double time_us(int side, int launches) {
  const double start = now_us();
  if (side == 0)
    run_ours(launches);
  else
    run_raw(launches, side == 2);
  return (now_us() - start) / launches;
}

/* Returns whether the row misses the target. */
static int print_row(const char *name, int launches) {
  double best[3] = {1e30, 1e30, 1e30};
  for (int round = 0; round < ROUNDS * (launches == 1 ? 20 : 1); round++)
    for (int side = 0; side < 3; side++) {
      const double us = time_us(side, launches);
      if (us < best[side]) best[side] = us;
    }
  const int missed = best[0] - best[1] > TARGET_US;
  printf("%-14s %9.2f %9.2f %9.2f %9.2f %9.1f  %s\n", name, best[0], best[1], best[2], best[0] - best[1], TARGET_US,
         missed ? "MISSED" : "met");
  return missed;
}

int main(int argc, char **argv) {
  static uint32_t words[1 << 14];
  if (argc == 4 && !strcmp(argv[1], "--bound")) return print_bounds(argv + 2);
  const size_t size = read_words(argc > 1 ? argv[1] : NULL, words, sizeof words);
  open_launches(words, size);
  open_ours(words, size);
  printf("%-14s %9s %9s %9s %9s %9s\n", "us a launch", "HAL", "direct", "fixed", "added", "target");
  int missed = print_row("launch + wait", 1);
  missed += print_row("burst", BURST);
  close_ours();
  return argc > 2 && !strcmp(argv[2], "--check") && missed;
}
