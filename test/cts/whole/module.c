/* module.c: modules as bytes. A module of host functions is its table, which is valid in this process only, after a
   checksum. */
#include <pthread.h>

#include "whole.h"

typedef struct head_s {
  uint64_t sum, size;
} head_t;

typedef struct known_s { /* a module that can be exported */
  struct known_s *next;
  hal_plugin_module_t *module;
  size_t size;
  uint8_t table[];
} known_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static known_t *all;

/* FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv */
static uint64_t sum_of(const uint8_t *bytes, size_t size) {
  uint64_t sum = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < size; i++) sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
  return sum;
}

static hal_status_t remember(hal_plugin_module_t *module, const void *table, size_t size) {
  known_t *const known = malloc(sizeof *known + size);
  if (!known) return whole_refuse(HAL_RESOURCE_EXHAUSTED, "whole: no memory for a module");
  known->module = module, known->size = size;
  memcpy(known->table, table, size);
  pthread_mutex_lock(&lock);
  known->next = all, all = known;
  pthread_mutex_unlock(&lock);
  return HAL_OK;
}

hal_status_t whole_module_load(int32_t device, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  hal_module_desc_t host = *desc;
  hal_plugin_module_t *module = NULL;
  head_t head;
  if (strcmp(desc->dialect, "binary") == 0) {
    if (desc->size >= sizeof head) memcpy(&head, desc->data, sizeof head);
    host.dialect = "host", host.data = (const uint8_t *)desc->data + sizeof head, host.size = desc->size - sizeof head;
    if (desc->size < sizeof head || head.size != host.size || head.sum != sum_of(host.data, host.size))
      return whole_refuse(HAL_INVALID_ARGUMENT, "whole: module_load of a binary that module_export did not return");
  }
  hal_status_t status = whole_good.module_load(device, &host, &module);
  if (status || strcmp(host.dialect, "host")) return status ? status : (*out_module = module, HAL_OK);
  status = remember(module, host.data, host.size);
  if (status) return whole_good.module_unload(module), status;
  *out_module = module;
  return HAL_OK;
}

/* The link to the module's properties; under the lock. */
static known_t **find(const hal_plugin_module_t *module) {
  known_t **at = &all;
  while (*at && (*at)->module != module) at = &(*at)->next;
  return at;
}

hal_status_t whole_module_unload(hal_plugin_module_t *module) {
  pthread_mutex_lock(&lock);
  known_t **const at = find(module), *const known = *at;
  if (known) *at = known->next;
  pthread_mutex_unlock(&lock);
  free(known);
  return whole_good.module_unload(module);
}

hal_status_t whole_module_export(hal_plugin_module_t *module, void *data, size_t room, size_t *out_size) {
  hal_status_t status = HAL_OK;
  pthread_mutex_lock(&lock);
  const known_t *const known = *find(module);
  if (!known) {
    status = whole_refuse(HAL_UNIMPLEMENTED, "whole: only modules of host functions can be exported");
  } else {
    const head_t head = {sum_of(known->table, known->size), known->size};
    *out_size = sizeof head + known->size;
    if (room >= *out_size)
      memcpy(data, &head, sizeof head), memcpy((uint8_t *)data + sizeof head, known->table, known->size);
  }
  pthread_mutex_unlock(&lock);
  return status;
}
