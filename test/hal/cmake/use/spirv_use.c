/* spirv_use.c: links the archive for plugins whose driver accepts SPIR-V, and its dependencies in the SDK. */
#include <hal/plugin_clang.h>
#include <hal/plugin_spirv.h>
#include <stdio.h>

int main(void) {
  const uint32_t no_module[] = {0, 0, 0, 0, 0};
  const char *const clang = hal_clang_path();
  printf("%s\n", clang ? clang : "no clang");
  return hal_spirv_kernel_name(no_module, 5, 0) != NULL;
}
