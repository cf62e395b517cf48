/* layer_live.c: the live objects of a plugin: a hash table of records, and the device's ranges ordered by address. */
#include "plugin/layer_live.h"

#include <string.h>

static const struct {
  const char *text, *end;
} kinds[HAL_LIVE_KIND_COUNT] = {
#define HAL_LIVE_WORDS(name, text, end) {text, end},
    HAL_LIVE_KINDS(HAL_LIVE_WORDS)
#undef HAL_LIVE_WORDS
};

const char *hal_live_text(hal_live_kind_t kind) { return kinds[kind].text; }
const char *hal_live_end_op(hal_live_kind_t kind) { return kinds[kind].end; }
int hal_live_is_device_memory(hal_live_kind_t kind) { return kind <= HAL_LIVE_MAPPED; }

static hal_live_t **bucket_of(hal_lives_t *lives, hal_live_kind_t kind, uintptr_t address) {
  /* Fibonacci hashing; handles may be small numbers, and those of two kinds may be equal. */
  const uint64_t hash = ((uint64_t)address + ((uint64_t)kind << 56)) * UINT64_C(0x9E3779B97F4A7C15);
  return &lives->buckets[hash >> 54]; /* 10 bits: HAL_LIVE_BUCKETS */
}
_Static_assert(HAL_LIVE_BUCKETS == 1 << 10, "the hash's upper bits number the buckets");

/* Returns the index of the first range that begins after the address. */
static size_t behind(const hal_lives_t *lives, uintptr_t address) {
  size_t low = 0, high = lives->range_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (lives->ranges[middle]->address <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

int hal_live_reserve(hal_lives_t *lives) {
  /* Each running call has reserved one entry; more than 64 threads in one op are not expected. */
  if (lives->range_count + 64 <= lives->range_room) return 1;
  const size_t room = lives->range_room ? 2 * lives->range_room : 256;
  hal_live_t **const ranges = hal_malloc(room * sizeof *ranges);
  if (!ranges) return 0;
  if (lives->range_count) memcpy(ranges, lives->ranges, lives->range_count * sizeof *ranges);
  hal_free(lives->ranges);
  lives->ranges = ranges;
  lives->range_room = room;
  return 1;
}

void hal_live_add(hal_lives_t *lives, hal_live_t *live) {
  hal_live_t **const bucket = bucket_of(lives, live->kind, live->address);
  live->next = *bucket;
  *bucket = live;
  lives->counts[live->kind]++;
  if (!live->number) live->number = ++lives->made;
  if (!hal_live_is_device_memory(live->kind) || lives->range_count == lives->range_room) return;
  const size_t place = behind(lives, live->address);
  memmove(lives->ranges + place + 1, lives->ranges + place, (lives->range_count - place) * sizeof *lives->ranges);
  lives->ranges[place] = live;
  lives->range_count++;
}

hal_live_t *hal_live_find(hal_lives_t *lives, hal_live_kind_t kind, uintptr_t address) {
  hal_live_t *live = *bucket_of(lives, kind, address);
  while (live && (live->kind != kind || live->address != address)) live = live->next;
  return live;
}

hal_live_t *hal_live_find_on(hal_lives_t *lives, hal_live_kind_t kind, uintptr_t address, int32_t device) {
  hal_live_t *live = *bucket_of(lives, kind, address);
  while (live && (live->kind != kind || live->address != address || live->device != device)) live = live->next;
  return live;
}

hal_live_t *hal_live_find_range(hal_lives_t *lives, uintptr_t address) {
  const size_t place = behind(lives, address);
  hal_live_t *const live = place ? lives->ranges[place - 1] : NULL;
  return live && address - live->address < live->size ? live : NULL;
}

hal_live_t *hal_live_find_overlap(hal_lives_t *lives, uintptr_t address, size_t size) {
  hal_live_t *const inside = hal_live_find_range(lives, address);
  if (inside) return inside;
  const size_t place = behind(lives, address);
  hal_live_t *const next = place < lives->range_count ? lives->ranges[place] : NULL;
  return next && next->address - address < size ? next : NULL;
}

void hal_live_remove(hal_lives_t *lives, hal_live_t *live) {
  hal_live_t **link = bucket_of(lives, live->kind, live->address);
  while (*link != live) link = &(*link)->next;
  *link = live->next;
  live->next = NULL;
  lives->counts[live->kind]--;
  const uint32_t slot = lives->dead_count++ % HAL_LIVE_DEAD;
  lives->dead[slot].kind = live->kind;
  lives->dead[slot].address = live->address;
  lives->dead[slot].size = live->size;
  if (!hal_live_is_device_memory(live->kind)) return;
  for (size_t place = behind(lives, live->address); place-- > 0;) {
    if (lives->ranges[place] != live) continue; /* ranges that overlap by a plugin's mistake may share the address */
    lives->range_count--;
    memmove(lives->ranges + place, lives->ranges + place + 1, (lives->range_count - place) * sizeof *lives->ranges);
    return;
  }
}

void hal_live_each(hal_lives_t *lives, void (*visit)(hal_lives_t *lives, hal_live_t *live, void *data), void *data) {
  for (size_t i = 0; i < HAL_LIVE_BUCKETS; i++)
    for (hal_live_t *live = lives->buckets[i], *next; live; live = next) {
      next = live->next;
      visit(lives, live, data);
    }
}

int hal_live_is_dead(const hal_lives_t *lives, hal_live_kind_t kind, uintptr_t address) {
  for (uint32_t i = 0; i < HAL_LIVE_DEAD && i < lives->dead_count; i++)
    if (lives->dead[i].kind == kind && lives->dead[i].address == address) return 1;
  return 0;
}

uintptr_t hal_live_dead_range(const hal_lives_t *lives, uintptr_t address) {
  for (uint32_t i = 0; i < HAL_LIVE_DEAD && i < lives->dead_count; i++)
    if (hal_live_is_device_memory(lives->dead[i].kind) && address - lives->dead[i].address < lives->dead[i].size)
      return lives->dead[i].address;
  return 0;
}

static void free_record(hal_lives_t *lives, hal_live_t *live, void *data) {
  (void)lives, (void)data;
  hal_free(live);
}

void hal_live_clear(hal_lives_t *lives) {
  hal_live_each(lives, free_record, NULL);
  memset(lives->buckets, 0, sizeof lives->buckets);
  memset(lives->counts, 0, sizeof lives->counts);
  hal_free(lives->ranges);
  lives->ranges = NULL;
  lives->range_count = lives->range_room = 0;
}
