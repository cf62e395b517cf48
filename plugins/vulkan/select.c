/* select.c: selects devices: all that can compute, GPUs if there is one, else CPUs; or those that HAL_VULKAN_DEVICE
 * names. */
#define _GNU_SOURCE /* strcasestr */
#include <hal/plugin_count.h>
#include <hal/plugin_setting.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vulkan_plugin.h"

enum { MOST_PHYSICAL = 64, MOST_FAMILIES = 16, MOST_REPEATS = 8 };

static VkResult start(VkInstance *out_instance) {
  const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                         .pApplicationName = "torch_backend",
                                         .apiVersion = VK_API_VERSION_1_3};
  const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
  return vk.CreateInstance(&info, NULL, out_instance);
}

uint32_t vulkan_queue_family(VkPhysicalDevice physical, VkQueueFamilyProperties *out_family) {
  VkQueueFamilyProperties families[MOST_FAMILIES];
  uint32_t count = MOST_FAMILIES;
  vk.GetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
  for (uint32_t i = 0; i < count; i++)
    if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT && families[i].queueCount) {
      *out_family = families[i];
      return i;
    }
  return UINT32_MAX;
}

/* Returns what a device lacks, NULL = nothing. */
static const char *missing(VkPhysicalDevice physical, uint32_t version) {
  VkPhysicalDeviceVulkan12Features features12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &features12};
  VkQueueFamilyProperties family;
  if (version < VK_API_VERSION_1_2) return "Vulkan 1.2";
  vk.GetPhysicalDeviceFeatures2(physical, &features);
  if (!features12.timelineSemaphore) return "timeline semaphores";
  if (vulkan_queue_family(physical, &family) == UINT32_MAX) return "a queue that computes";
  return NULL;
}

static int is_meant(const VkPhysicalDeviceProperties *facts, const char *wish) {
  if (!*wish) return 1;
  if (strcmp(wish, "cpu") == 0) return facts->deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  if (strcmp(wish, "gpu") == 0) return facts->deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU;
  return strcasestr(facts->deviceName, wish) != NULL;
}

/* Reads HAL_VULKAN_REPEAT: how often each device is opened, for tests of several devices. Returns 0 if it is invalid.
 */
static int32_t repeats(const char **out_text) {
  const char *const text = hal_setting("HAL_VULKAN_REPEAT");
  char *end = NULL;
  *out_text = text;
  if (!text || !*text) return 1;
  const long value = strtol(text, &end, 10);
  return !*end && value >= 1 && value <= MOST_REPEATS ? (int32_t)value : 0;
}

/* The devices that were found, by the order in which they are used. */
typedef struct found_s {
  VkPhysicalDevice devices[MOST_PHYSICAL];
  int32_t count, total;
  char lacking[512]; /* "'name' has no ...", of the first device that cannot be used */
} found_t;

static void look_at(VkPhysicalDevice physical, const char *wish, int gpu, found_t *found) {
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  vk.GetPhysicalDeviceProperties2(physical, &properties);
  const VkPhysicalDeviceProperties *const facts = &properties.properties;
  if ((facts->deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU) != gpu) return;
  found->total++;
  if (!is_meant(facts, wish)) return;
  const char *const lack = missing(physical, facts->apiVersion);
  if (!lack)
    found->devices[found->count++] = physical;
  else if (!found->lacking[0])
    snprintf(found->lacking, sizeof found->lacking, "'%.200s' does not support %s", facts->deviceName, lack);
}

static void say_none(const found_t *found, const char *wish, char *why) {
  if (found->lacking[0])
    snprintf(why, HAL_COUNT_WHY, "vulkan: %s, which the plugin requires; install a newer driver", found->lacking);
  else if (*wish && found->total)
    snprintf(why, HAL_COUNT_WHY,
             "vulkan: HAL_VULKAN_DEVICE=%.200s matches none of the %d devices here; set it to gpu or cpu or to a part "
             "of a device's name, or unset it",
             wish, (int)found->total);
  else
    snprintf(why, HAL_COUNT_WHY,
             "vulkan: the drivers here have no device; check 'vulkaninfo --summary', and that this user may open the "
             "device");
}

static VkResult find(VkInstance instance, const char *wish, found_t *found) {
  VkPhysicalDevice all[MOST_PHYSICAL];
  uint32_t count = MOST_PHYSICAL;
  const VkResult code = vk.EnumeratePhysicalDevices(instance, &count, all);
  if (code && code != VK_INCOMPLETE) return code;
  for (int gpu = 1; gpu >= 0; gpu--)
    for (uint32_t i = 0; i < count && (gpu || *wish || !found->count); i++) look_at(all[i], wish, gpu, found);
  return VK_SUCCESS;
}

hal_status_t vulkan_select(vulkan_selection_t *out_selection, char *why) {
  const char *const text = hal_setting("HAL_VULKAN_DEVICE"), *const wish = text ? text : "", *repeat_text;
  const int32_t repeat = repeats(&repeat_text);
  found_t found = {.count = 0};
  *out_selection = (vulkan_selection_t){.count = 0};
  if (!repeat) {
    snprintf(why, HAL_COUNT_WHY, "vulkan: HAL_VULKAN_REPEAT is '%.100s'; set it to a number from 1 to %d, or unset it",
             repeat_text, MOST_REPEATS);
    return HAL_UNAVAILABLE;
  }
  VkResult code = start(&out_selection->instance);
  if (!code) code = find(out_selection->instance, wish, &found);
  if (code) {
    snprintf(why, HAL_COUNT_WHY,
             "vulkan: no Vulkan driver starts (%s, %d); install the driver of a device (Debian: mesa-vulkan-drivers), "
             "or name its file in VK_ICD_FILENAMES",
             vulkan_result_name(code), (int)code);
    return HAL_UNAVAILABLE;
  }
  if (!found.count) {
    say_none(&found, wish, why);
    return HAL_UNAVAILABLE;
  }
  for (int32_t i = 0; i < found.count; i++)
    for (int32_t k = 0; k < repeat && out_selection->count < VULKAN_MAX_DEVICES; k++)
      out_selection->devices[out_selection->count++] = found.devices[i];
  return HAL_OK;
}
