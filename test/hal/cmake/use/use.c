/* use.c: opens the plugin named by the argument and uses only the public headers. */
#include <hal/hal.h>
#include <stdio.h>

int main(int argument_count, char **arguments) {
  if (argument_count != 2) return 2;
  hal_status_t status = hal_registry_open(arguments[1]);
  if (!status) status = hal_device_synchronize(0);
  if (status) {
    fprintf(stderr, "%s\n", hal_error_message());
    return 1;
  }
  hal_registry_entry_t entry = {.struct_size = sizeof entry};
  status = hal_registry_plugin(0, &entry);
  printf("%s: %d device(s), %u of %u functions\n", entry.name, (int)entry.device_count, entry.provided_count,
         entry.slot_count);
  hal_registry_close();
  return status != HAL_OK;
}
