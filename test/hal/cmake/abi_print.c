/* abi_print.c: prints the plugin ABI, one line per slot: offset, minor version that added it, name, parameters. */
#include <hal/plugin.h>
#include <stdio.h>

int main(void) {
#define HAL_OP(since, kind, group, need, name, params, args) \
  printf("%zu %d.%d %s %s\n", offsetof(hal_plugin_api_t, name), HAL_ABI_MAJOR, since, #name, #params);
#include <hal/plugin_ops.def>
#undef HAL_OP
  return 0;
}
