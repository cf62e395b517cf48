/* khronos.c: the structures and numbers that the plugin uses, from Khronos' header. */
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "../../../../plugins/vulkan/vulkan_api.h"
#include "compared.h"

const compared_field_t khronos_fields[] = {VULKAN_FIELDS(COMPARED_FIELD){NULL, NULL, 0, 0}};
const compared_number_t khronos_numbers[] = {VULKAN_RESULTS(COMPARED_NUMBER) VULKAN_NUMBERS(COMPARED_NUMBER){NULL, 0}};
