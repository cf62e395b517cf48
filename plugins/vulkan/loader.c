/* loader.c: the Vulkan loader, opened at its first use, so that the plugin loads on machines without it. */
#include <hal/plugin_library.h>

#include "vulkan_plugin.h"

vulkan_table_t vk;

#define ROW(type, name, parameters) {"vk" #name, offsetof(vulkan_table_t, name), 0},
static const hal_library_symbol_t symbols[] = {VULKAN_FUNCTIONS(ROW)};

static hal_library_t library = {
    "vulkan",
    {"libvulkan.so.1", "libvulkan.so"},
    "install a Vulkan loader of version 1.2 or later (Debian: libvulkan1) and the driver of a device (Debian: "
    "mesa-vulkan-drivers)",
    symbols,
    sizeof symbols / sizeof *symbols,
    &vk,
    HAL_LIBRARY_CLOSED};

hal_status_t vulkan_loader_open(void) { return hal_library_open(&library); }
