/* stress/lifetime.c: objects created before a fork, or before hal_registry_close, are released afterwards. No call
 * hangs, crashes or runs twice, and other uses are refused with the cause. */
#define _POSIX_C_SOURCE 200809L
#include <hal/hal.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "repeated.h"

enum { HELD = 64, CHILDREN = 6 };

static const char fake[] = PLUGIN_DIR "/libhal_fake.so";

/* ---- a forked child of a busy process ---- */

static hal_block_t *inherited[HELD];
static hal_event_t *event;
static hal_generator_t *generator;
static hal_stream_t *side;
static void *pinned;
static atomic_int stop;

static void ignore(int32_t level, const char *message, void *user_data) { (void)level, (void)message, (void)user_data; }

/* Threads of the parent, which hold one lock or another at each fork. */
static void *use_memory(void *data) {
  hal_block_t *block;
  while (!atomic_load(&stop)) {
    for (int i = 0; i < 8; i++) {
      if (hal_memory_allocate(0, NULL, 1000 + (size_t)i * 5000, &block)) return data;
      hal_memory_record_stream(block, side);
      hal_memory_release(block);
    }
    hal_memory_empty_cache(0);
  }
  return NULL;
}

static void *use_log(void *data) {
  while (!atomic_load(&stop)) hal_log(HAL_LOG_ERROR, "busy");
  return data;
}

static void *use_generator(void *data) {
  uint64_t seed, offset;
  while (!atomic_load(&stop)) hal_generator_reserve(generator, 1, &seed, &offset);
  return data;
}

static void *use_registry(void *data) {
  while (!atomic_load(&stop)) hal_registry_open(NULL);
  return data;
}

static int child_of_a_busy_parent(void) {
  uint64_t seed, offset;
  for (int i = 0; i < HELD; i++) hal_memory_release(inherited[i]);
  MUST(hal_memory_record_stream(inherited[0], side) == HAL_FAILED_PRECONDITION);
  MUST(hal_host_free(pinned) == HAL_OK);
  MUST(hal_stream_synchronize(side) == HAL_FAILED_PRECONDITION);
  MUST(strstr(hal_error_message(), "forked subprocess"));
  MUST(hal_stream_query(side) == HAL_FAILED_PRECONDITION);
  MUST(hal_event_query(event) == HAL_FAILED_PRECONDITION);
  hal_event_destroy(event);
  hal_log(HAL_LOG_ERROR, "child");
  hal_log_set_sink(NULL, NULL);
  hal_generator_set_seed(generator, 7);
  hal_generator_reserve(generator, 3, &seed, &offset);
  MUST(seed == 7 && offset == 0);
  hal_generator_destroy(generator);
  MUST(hal_generator_default(0, &generator) == HAL_OK);
  hal_generator_set_seed(generator, 9);
  MUST(hal_registry_open(NULL) == HAL_OK);
  MUST(hal_registry_plugin_count() == 1);
  hal_registry_close();
  return 0;
}

static int play_fork(void) {
  static void *(*const work[])(void *) = {use_memory, use_log, use_generator, use_registry};
  enum { THREADS = sizeof work / sizeof work[0] };
  pthread_t threads[THREADS];
  hal_log_set_sink(ignore, NULL);
  MUST(hal_registry_open(fake) == HAL_OK);
  MUST(hal_stream_acquire(0, 0, &side) == HAL_OK);
  MUST(hal_event_create(0, 0, &event) == HAL_OK);
  MUST(hal_generator_create(1, &generator) == HAL_OK);
  MUST(hal_host_allocate(0, 5000, &pinned) == HAL_OK);
  for (int i = 0; i < HELD; i++) MUST(hal_memory_allocate(0, NULL, (size_t)i * i * i * 20, &inherited[i]) == HAL_OK);
  for (int i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, work[i], NULL) == 0);
  int bad = 0;
  for (int i = 0; i < CHILDREN; i++) bad += in_child(child_of_a_busy_parent) != 0;
  atomic_store(&stop, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  MUST(bad == 0);
  for (int i = 0; i < HELD; i++) hal_memory_release(inherited[i]);
  MUST(hal_device_synchronize(0) == HAL_OK); /* the parent is not affected */
  return 0;
}

/* ---- after hal_registry_close ---- */

static int freed;
static void count_free(void *data) { freed += data == &freed; }

static int play_close(void) {
  static char memory[4096];
  hal_block_t *blocks[HELD], *adopted, *dead;
  const hal_module_desc_t desc = {
      .struct_size = sizeof desc, .dialect = "native", .options = "", .data = "binary", .size = 6};
  hal_module_t *module;
  hal_kernel_t *kernel;
  hal_log_set_sink(ignore, NULL);
  MUST(hal_registry_open(fake) == HAL_OK);
  MUST(hal_stream_acquire(0, -1, &side) == HAL_OK);
  MUST(hal_event_create(0, 0, &event) == HAL_OK);
  MUST(hal_event_record(event, side) == HAL_OK);
  MUST(hal_generator_default(0, &generator) == HAL_OK);
  MUST(hal_module_load(0, &desc, &module) == HAL_OK);
  MUST(hal_kernel_get(module, "add_f32_contig", &kernel) == HAL_OK);
  MUST(hal_host_allocate(0, 5000, &pinned) == HAL_OK);
  for (int i = 0; i < HELD; i++) MUST(hal_memory_allocate(0, side, (size_t)i * i * i * 20, &blocks[i]) == HAL_OK);
  MUST(hal_memory_adopt(0, side, memory, sizeof memory, count_free, &freed, &adopted) == HAL_OK);
  hal_registry_close();

  MUST(freed == 0);
  hal_memory_release(adopted);
  MUST(freed == 1);
  hal_memory_release(adopted); /* still invalid, and still without effect */
  MUST(freed == 1);
  MUST(hal_memory_block_size(blocks[1]) == 20 && hal_memory_block_device(blocks[1]) == 0);
  MUST(hal_memory_record_stream(blocks[2], side) == HAL_FAILED_PRECONDITION);
  for (int i = 0; i < HELD; i++) hal_memory_release(blocks[i]);
  MUST(hal_host_free(pinned) == HAL_OK);
  MUST(hal_memory_allocate(0, NULL, 4, &dead) == HAL_FAILED_PRECONDITION);
  MUST(hal_stream_id(side) > 0 && hal_stream_device(side) == 0);
  MUST(hal_stream_synchronize(side) == HAL_FAILED_PRECONDITION && strstr(hal_error_message(), "shut down"));
  MUST(hal_stream_wait_event(side, event) == HAL_FAILED_PRECONDITION);
  MUST(hal_event_synchronize(event) == HAL_FAILED_PRECONDITION);
  hal_event_destroy(event);
  MUST(hal_kernel_get(module, "sub_f32_contig", &kernel) == HAL_FAILED_PRECONDITION);
  hal_module_unload(module);
  hal_generator_set_seed(generator, 5);
  MUST(hal_generator_seed(generator) == 5);
  hal_registry_close();
  return 0;
}

/* ---- one release too many ---- */

static int complaints;
static void count_complaint(int32_t level, const char *message, void *user_data) {
  (void)level, (void)user_data;
  complaints += strstr(message, "was released before") != NULL;
}

static int play_second_release(void) {
  enum { AROUND = 6, LATER = 400 };
  static hal_block_t *blocks[LATER];
  hal_block_t *parts[AROUND];
  hal_log_set_sink(count_complaint, NULL);
  MUST(hal_registry_open(fake) == HAL_OK);
  for (int i = 0; i < AROUND; i++) MUST(hal_memory_allocate(0, NULL, 512, &parts[i]) == HAL_OK);
  for (int i = 0; i < AROUND; i++)
    hal_memory_release(parts[i]); /* adjacent blocks are merged, and their records are
                                                                    recycled */
  for (int i = 0; i < AROUND; i++) hal_memory_release(parts[i]);
  MUST(complaints == AROUND);
  for (int i = 0; i < LATER; i++) MUST(hal_memory_allocate(0, NULL, 512, &blocks[i]) == HAL_OK);
  for (int i = 0; i < LATER; i++)
    for (int k = 0; k < i; k++)
      MUST(blocks[i] != blocks[k] && hal_memory_block_address(blocks[i]) != hal_memory_block_address(blocks[k]));
  for (int i = 0; i < LATER; i++) hal_memory_release(blocks[i]);
  hal_memory_stats_t stats = {.struct_size = sizeof stats};
  MUST(hal_memory_stats(0, &stats) == HAL_OK && stats.allocated_bytes[HAL_POOL_ALL].current == 0);
  return 0;
}

int main(void) {
  static const scene_t scenes[] = {{"a forked child releases what it inherited of a busy parent", play_fork},
                                   {"what outlives hal_registry_close is released quietly", play_close},
                                   {"a second release of a joined block is noticed", play_second_release}};
  if (!KERNEL_PLUGIN_EXISTS) return 77;
  return repeat(scenes, sizeof scenes / sizeof scenes[0]);
}
