/* map.c: the table of the plugin's segments, by address. Launches and copies search it for kinds of memory that require
 * it. It changes when a segment is allocated or freed. */
#define _POSIX_C_SOURCE 200809L /* pthread_rwlock_t */
#include <string.h>

#include "opencl.h"

static struct {
  pthread_rwlock_t lock;
  ocl_segment_t *segments; /* sorted by base */
  size_t count, room;
} map = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* Returns the number of segments that begin at or below `ptr`. The caller holds the lock. */
static size_t place_of(const char *ptr) {
  size_t low = 0, high = map.count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (map.segments[middle].base <= ptr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static int grow(void) {
  const size_t room = map.room ? 2 * map.room : 64;
  ocl_segment_t *segments = hal_host->mem_alloc(room * sizeof *segments, alignof(ocl_segment_t));
  if (!segments) return 0;
  if (map.count) memcpy(segments, map.segments, map.count * sizeof *segments);
  hal_host->mem_free(map.segments);
  map.segments = segments;
  map.room = room;
  return 1;
}

hal_status_t ocl_map_add(const ocl_segment_t *segment) {
  pthread_rwlock_wrlock(&map.lock);
  const int fits = map.count < map.room || grow();
  if (fits) {
    const size_t place = place_of(segment->base);
    memmove(map.segments + place + 1, map.segments + place, (map.count - place) * sizeof *segment);
    map.segments[place] = *segment;
    map.count++;
  }
  pthread_rwlock_unlock(&map.lock);
  return fits ? HAL_OK
              : ocl_error(HAL_RESOURCE_EXHAUSTED, 0,
                          "opencl: no host memory for the table of segments; free some memory");
}

int ocl_map_take(int32_t device, const void *base, ocl_segment_t *out_segment) {
  pthread_rwlock_wrlock(&map.lock);
  const size_t place = place_of(base);
  const int found = place && map.segments[place - 1].base == base && map.segments[place - 1].device == device;
  if (found) {
    *out_segment = map.segments[place - 1];
    memmove(map.segments + place - 1, map.segments + place, (map.count - place) * sizeof *out_segment);
    map.count--;
  }
  pthread_rwlock_unlock(&map.lock);
  return found;
}

int ocl_map_find(const void *ptr, ocl_segment_t *out_segment) {
  pthread_rwlock_rdlock(&map.lock);
  const size_t place = place_of(ptr);
  int found = 0;
  if (place) {
    *out_segment = map.segments[place - 1];
    found = (size_t)((const char *)ptr - out_segment->base) <= out_segment->size;
  }
  pthread_rwlock_unlock(&map.lock);
  return found;
}
