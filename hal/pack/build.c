/* build.c: all modules of a pack, several at a time. */
#define _POSIX_C_SOURCE 200809L /* strdup */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/host_malloc.h"
#include "hal/status.h"
#include "op/provider.h"
#include "op/source.h"
#include "packing.h"

enum { MOST_JOBS = 64, SPIRV_HEAD = 5, SPIRV_CAPABILITY = 17, SPIRV_FLOAT64 = 10 };

typedef struct build_s {
  const packing_t *packing;
  packed_t *modules;
  size_t count;
  atomic_size_t next, failed;
} build_t;

/* Whether a module in SPIR-V asks for double precision. */
static int has_double(const void *data, size_t size) {
  const uint32_t *const words = data;
  const size_t count = size / sizeof *words;
  for (size_t at = SPIRV_HEAD; at + 1 < count && (words[at] & 0xffff) == SPIRV_CAPABILITY; at += words[at] >> 16) {
    if (words[at + 1] == SPIRV_FLOAT64) return 1;
    if (words[at] >> 16 == 0) break;
  }
  return 0;
}

static void compile(const packing_t *packing, packed_t *module, const char *text, size_t size, char *log) {
  const char *const options = hal_provider_options(packing->source, module->form, text);
  if (packing->plugin)
    module->data = packing_by_device(module->kernel, &module->size, log);
  else if (packing->compiler)
    module->data =
        packing_by_command(packing->compiler, module->kernel, text, size, options, module->fp64, &module->size, log);
  else
    module->data = packing_by_clang(text, size, options, module->fp64, &module->size, log);
  module->key = hal_pack_key(packing->source, options, module->fp64, text, size);
  module->key_without = hal_pack_key(packing->source, options, 0, text, size);
  /* Code without a number of double precision serves both kinds of devices; the other's own compilation would give no better. */
  module->same_without = module->data && module->fp64 && packing->without_fp64 &&
                         !hal_provider_needs_fp64(module->kernel) && strcmp(packing->dialect, "spirv") == 0 &&
                         !has_double(module->data, module->size);
}

static void build_one(build_t *build, packed_t *module) {
  char log[PACKING_LOG] = "", *text = NULL;
  size_t size = 0;
  if (hal_op_source(module->kernel, &text, &size))
    snprintf(log, sizeof log, "%s", hal_error_message());
  else
    compile(build->packing, module, text, size, log);
  hal_free(text);
  if (module->data) return;
  atomic_fetch_add(&build->failed, 1);
  module->why = strdup(log);
}

static void *work(void *data) {
  build_t *const build = data;
  for (size_t i; (i = atomic_fetch_add(&build->next, 1)) < build->count;) {
    build_one(build, &build->modules[i]);
    if (!build->packing->quiet && i % 100 == 99) fprintf(stderr, "hal-pack: %zu of %zu modules\n", i + 1, build->count);
  }
  return NULL;
}

size_t packing_compile(const packing_t *packing, packed_t *modules, size_t count) {
  pthread_t threads[MOST_JOBS];
  build_t build = {.packing = packing, .modules = modules, .count = count};
  long started = 0;
  const long wanted = packing->plugin ? 0 : packing->jobs < MOST_JOBS ? packing->jobs : MOST_JOBS;
  while (started + 1 < wanted && !pthread_create(&threads[started], NULL, work, &build)) started++;
  work(&build);
  for (long i = 0; i < started; i++) pthread_join(threads[i], NULL);
  return atomic_load(&build.failed);
}
