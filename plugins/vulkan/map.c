/* map.c: the table of the plugin's segments, by address. Launches and copies search it. It changes when a segment is
 * allocated or freed. */
#define _POSIX_C_SOURCE 200809L /* pthread_rwlock_t */
#include <string.h>

#include "vulkan_plugin.h"

enum { FIRST_ROOM = 64 };

static struct {
  pthread_rwlock_t lock;
  vulkan_segment_t **segments; /* sorted by base; ranges do not overlap */
  size_t count, room;
} map = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* Returns the number of segments that begin at or below `ptr`. The caller holds the lock. */
static size_t place_of(const char *ptr) {
  size_t low = 0, high = map.count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if ((uintptr_t)map.segments[middle]->base <= (uintptr_t)ptr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static int grow(void) {
  const size_t room = map.room ? 2 * map.room : FIRST_ROOM;
  vulkan_segment_t **const segments = hal_host->mem_alloc(room * sizeof *segments, alignof(vulkan_segment_t *));
  if (!segments) return 0;
  if (map.count) memcpy(segments, map.segments, map.count * sizeof *segments);
  hal_host->mem_free(map.segments);
  map.segments = segments;
  map.room = room;
  return 1;
}

/* Whether a segment shares addresses with its neighbors at `place`. The caller holds the lock. */
static int overlaps(const vulkan_segment_t *segment, size_t place) {
  const vulkan_segment_t *const before = place ? map.segments[place - 1] : NULL;
  const vulkan_segment_t *const after = place < map.count ? map.segments[place] : NULL;
  return (before && (uintptr_t)segment->base - (uintptr_t)before->base < before->size) ||
         (after && (uintptr_t)after->base - (uintptr_t)segment->base < segment->size);
}

hal_status_t vulkan_map_add(vulkan_segment_t *segment) {
  pthread_rwlock_wrlock(&map.lock);
  const int fits = map.count < map.room || grow();
  const size_t place = place_of(segment->base);
  const int taken = overlaps(segment, place);
  if (fits && !taken) {
    memmove(map.segments + place + 1, map.segments + place, (map.count - place) * sizeof *map.segments);
    map.segments[place] = segment;
    map.count++;
  }
  pthread_rwlock_unlock(&map.lock);
  if (taken)
    return vulkan_error(HAL_INVALID_ARGUMENT, 0,
                        "vulkan: %zu bytes at %p are, or have a part, in memory that is page-locked already",
                        segment->size, (void *)segment->base);
  return fits ? HAL_OK
              : vulkan_error(HAL_RESOURCE_EXHAUSTED, 0,
                             "vulkan: no host memory for the table of segments; free some memory");
}

vulkan_segment_t *vulkan_map_take(int32_t device, int32_t kind, const void *base) {
  vulkan_segment_t *segment = NULL;
  pthread_rwlock_wrlock(&map.lock);
  const size_t place = place_of(base);
  if (place) segment = map.segments[place - 1];
  if (segment && (segment->base != base || segment->device != device || segment->kind != kind)) segment = NULL;
  if (segment) {
    memmove(map.segments + place - 1, map.segments + place, (map.count - place) * sizeof *map.segments);
    map.count--;
  }
  pthread_rwlock_unlock(&map.lock);
  return segment;
}

vulkan_segment_t *vulkan_map_find(const void *ptr) {
  vulkan_segment_t *segment = NULL;
  pthread_rwlock_rdlock(&map.lock);
  const size_t place = place_of(ptr);
  if (place) segment = map.segments[place - 1];
  if (segment && (uintptr_t)ptr - (uintptr_t)segment->base >= segment->size) segment = NULL;
  pthread_rwlock_unlock(&map.lock);
  return segment;
}
