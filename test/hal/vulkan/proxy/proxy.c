/* proxy.c: a library with the name of the Vulkan loader, whose functions call the real one (VULKAN_REAL_LOADER), except
 * for failures: VULKAN_PROXY_LOSE=n makes submission number n, and all later ones of its queue, return
 * VK_ERROR_DEVICE_LOST. VULKAN_PROXY_MEMORY=n makes allocation number n of memory fail.
 * VULKAN_PROXY_COMPILER=code: this is the result of the first pipeline, and the device is lost at the second.
 * VULKAN_PROXY_FUNCTIONS=0: there are no functions of extensions. VULKAN_PROXY_LACKS=shaderInt64 or timelineSemaphore:
 * devices lack that feature. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../../../../plugins/vulkan/vulkan_api.h"

#define EXPORT __attribute__((visibility("default")))

/* Names for the parameters of a list of types. */
#define COUNT_OF(a, b, c, d, e, f, g, h, i, j, n, ...) n
#define COUNT(...) COUNT_OF(__VA_ARGS__, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAMED(...) JOIN(NAMED_, COUNT(__VA_ARGS__))(__VA_ARGS__)
#define NAMED_1(a) (a p0)
#define NAMED_2(a, b) (a p0, b p1)
#define NAMED_3(a, b, c) (a p0, b p1, c p2)
#define NAMED_4(a, b, c, d) (a p0, b p1, c p2, d p3)
#define NAMED_5(a, b, c, d, e) (a p0, b p1, c p2, d p3, e p4)
#define NAMED_6(a, b, c, d, e, f) (a p0, b p1, c p2, d p3, e p4, f p5)
#define NAMED_7(a, b, c, d, e, f, g) (a p0, b p1, c p2, d p3, e p4, f p5, g p6)
#define NAMED_8(a, b, c, d, e, f, g, h) (a p0, b p1, c p2, d p3, e p4, f p5, g p6, h p7)
#define NAMED_10(a, b, c, d, e, f, g, h, i, j) (a p0, b p1, c p2, d p3, e p4, f p5, g p6, h p7, i p8, j p9)
#define PASSED(...) JOIN(PASSED_, COUNT(__VA_ARGS__))
#define PASSED_1 (p0)
#define PASSED_2 (p0, p1)
#define PASSED_3 (p0, p1, p2)
#define PASSED_4 (p0, p1, p2, p3)
#define PASSED_5 (p0, p1, p2, p3, p4)
#define PASSED_6 (p0, p1, p2, p3, p4, p5)
#define PASSED_7 (p0, p1, p2, p3, p4, p5, p6)
#define PASSED_8 (p0, p1, p2, p3, p4, p5, p6, p7)
#define PASSED_10 (p0, p1, p2, p3, p4, p5, p6, p7, p8, p9)

/* The second parameter; NULL if there is none. */
#define SECOND(...) JOIN(SECOND_, COUNT(__VA_ARGS__))
#define SECOND_1 NULL
#define SECOND_2 (void *)(uintptr_t)p1
#define SECOND_3 SECOND_2
#define SECOND_4 SECOND_2
#define SECOND_5 SECOND_2
#define SECOND_6 SECOND_2
#define SECOND_7 SECOND_2
#define SECOND_8 SECOND_2
#define SECOND_10 SECOND_2

static void *find(const char *name) {
  static void *_Atomic library;
  if (!library) library = dlopen(VULKAN_REAL_LOADER, RTLD_NOW | RTLD_LOCAL);
  return library ? dlsym(library, name) : NULL;
}

/* Returns whether the call with this number fails; a setting of 0 or none: no call. */
static int fails(const char *setting, atomic_int *count) {
  const char *const text = getenv(setting);
  const int wanted = text ? atoi(text) : 0;
  return wanted && atomic_fetch_add(count, 1) + 1 == wanted;
}

static atomic_int submissions, allocations, pipelines;
static _Atomic(void *) lost_queue;

/* What a function returns in place of the real one: VK_SUCCESS = it is called. `first` is its first argument. */
static VkResult failure_of(const char *name, const void *first) {
  if (strcmp(name, "QueueSubmit") == 0 && fails("VULKAN_PROXY_LOSE", &submissions))
    lost_queue = (void *)(uintptr_t)first;
  if (strcmp(name, "QueueSubmit") == 0 && first == lost_queue) return VK_ERROR_DEVICE_LOST;
  if (strcmp(name, "AllocateMemory") == 0 && fails("VULKAN_PROXY_MEMORY", &allocations))
    return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  if (strcmp(name, "CreateComputePipelines") == 0 && getenv("VULKAN_PROXY_COMPILER"))
    return atomic_fetch_add(&pipelines, 1) ? VK_ERROR_DEVICE_LOST : (VkResult)atoi(getenv("VULKAN_PROXY_COMPILER"));
  return VK_SUCCESS;
}

/* Changes what a function without a result has written to `second`, its second argument. */
static void change(const char *name, void *second) {
  const char *const lacks = getenv("VULKAN_PROXY_LACKS");
  VkPhysicalDeviceFeatures2 *const features = second;
  if (!lacks || strcmp(name, "GetPhysicalDeviceFeatures2") != 0) return;
  if (strcmp(lacks, "shaderInt64") == 0) features->features.shaderInt64 = VK_FALSE;
  for (VkPhysicalDeviceVulkan12Features *each = features->pNext; each; each = each->pNext)
    if (each->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES && strcmp(lacks, "timelineSemaphore") == 0)
      each->timelineSemaphore = VK_FALSE;
}

#define CALL(type, name, parameters)             \
  typedef type(*name##_fn) parameters;           \
  static inline name##_fn real_##name(void) {    \
    void *const symbol = find("vk" #name);       \
    name##_fn function;                          \
    memcpy(&function, &symbol, sizeof function); \
    return function;                             \
  }
VULKAN_FUNCTIONS(CALL)

/* Functions without a result are called, the others may fail instead. */
#define FORWARD(type, name, parameters) FORWARD_##type(name, parameters)
#define FORWARD_void(name, parameters)   \
  EXPORT void vk##name NAMED parameters; \
  void vk##name NAMED parameters {       \
    real_##name() PASSED parameters;     \
    change(#name, SECOND parameters);    \
  }
#define FORWARD_PFN_vkVoidFunction(name, parameters)                                  \
  EXPORT PFN_vkVoidFunction vk##name NAMED parameters;                                \
  PFN_vkVoidFunction vk##name NAMED parameters {                                      \
    return getenv("VULKAN_PROXY_FUNCTIONS") ? NULL : real_##name() PASSED parameters; \
  }
#define FORWARD_VkResult(name, parameters)                \
  EXPORT VkResult vk##name NAMED parameters;              \
  VkResult vk##name NAMED parameters {                    \
    const VkResult code = failure_of(#name, p0);          \
    return code ? code : real_##name() PASSED parameters; \
  }
VULKAN_FUNCTIONS(FORWARD)
