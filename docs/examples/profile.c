/* profile.c: what ran on a device, when and for how long, in plain C.
 *
 *   profile [<plugin name or path>]      default: fake
 *
 * Exit status: 0 the work has its records, 1 something failed or is missing, 2 the plugin collects none. */
#include <hal/hal.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 1 << 20, COLLECTED = 0, FAILED = 1, COLLECTS_NONE = 2 };

/* Gets each record in turn; all of it is borrowed for the call. */
static void print(void *user_data, const hal_profile_activity_t *activity) {
  int *const count = user_data;
  printf("device %d, stream %lld: %s %s, %lld ns, %llu bytes, step %llu\n", activity->device,
         (long long)activity->stream, activity->name, activity->op, (long long)(activity->end_ns - activity->start_ns),
         (unsigned long long)activity->bytes, (unsigned long long)activity->correlation);
  (*count)++;
}

static hal_status_t work(hal_block_t *block, const void *host) {
  HAL_RETURN_IF_ERROR(hal_profile_push(1)); /* the number that records of what follows carry */
  HAL_RETURN_IF_ERROR(hal_memory_copy(NULL, hal_memory_block_address(block), 0, host, HAL_HOST, BYTES));
  hal_profile_pop();
  return hal_memory_fill(NULL, 0, hal_memory_block_address(block), "", 1, BYTES);
}

int main(int argument_count, char **arguments) {
  hal_block_t *block = NULL;
  void *const host = calloc(1, BYTES);
  uint64_t lost = 0;
  int count = 0;
  hal_status_t status = host ? hal_registry_open(argument_count > 1 ? arguments[1] : "fake") : HAL_RESOURCE_EXHAUSTED;
  if (!status) status = hal_memory_allocate(0, NULL, BYTES, &block);
  if (!status) status = hal_profile_start();
  if (!status) status = work(block, host);
  if (!status) status = hal_profile_stop(); /* waits for the work */
  if (!status) status = hal_profile_read(print, &count, &lost);
  if (status) fprintf(stderr, "%s: %s\n", hal_status_name(status), hal_error_message());
  printf("%d records, %llu lost\n", count, (unsigned long long)lost);
  const int collects = !status && hal_profile_supported(0);
  hal_memory_release(block);
  hal_registry_close();
  free(host);
  if (status || (collects && count != 2)) return FAILED;
  return collects ? COLLECTED : COLLECTS_NONE;
}
