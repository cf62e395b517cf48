/* pickle.c: see pickle.h. */
#include "comm/pickle.h"

#include <string.h>

#include "base/host_malloc.h"

static void append(hal_pickle_t *to, const void *bytes, size_t size) {
  if (to->failed) return;
  if (size > to->capacity - to->size) {
    size_t capacity = to->capacity ? to->capacity : 4096;
    while (capacity - to->size < size && capacity < SIZE_MAX / 2) capacity *= 2;
    char *const data = hal_malloc(capacity);
    if (!data) {
      to->failed = 1;
      return;
    }
    if (to->size) memcpy(data, to->data, to->size);
    hal_free(to->data);
    to->data = data;
    to->capacity = capacity;
  }
  memcpy(to->data + to->size, bytes, size);
  to->size += size;
}

static void opcode(hal_pickle_t *to, char code) { append(to, &code, 1); }

/* Writes little-endian bytes on every host. */
static void number(hal_pickle_t *to, uint64_t value, unsigned bytes) {
  unsigned char text[8];
  for (unsigned i = 0; i < bytes; i++) text[i] = (unsigned char)(value >> (8 * i));
  append(to, text, bytes);
}

void hal_pickle_begin(hal_pickle_t *to) { append(to, "\x80\x02", 2); }
void hal_pickle_end(hal_pickle_t *to) { opcode(to, '.'); }

void hal_pickle_text(hal_pickle_t *to, const char *text, size_t size) {
  opcode(to, 'X');
  number(to, size < UINT32_MAX ? size : UINT32_MAX, 4);
  append(to, text, size < UINT32_MAX ? size : UINT32_MAX);
}

void hal_pickle_string(hal_pickle_t *to, const char *text) { hal_pickle_text(to, text, strlen(text)); }

void hal_pickle_integer(hal_pickle_t *to, int64_t value) {
  append(to, "\x8a\x08", 2);
  number(to, (uint64_t)value, 8);
}

void hal_pickle_real(hal_pickle_t *to, double value) {
  uint64_t bits;
  unsigned char text[8];
  memcpy(&bits, &value, sizeof bits);
  for (unsigned i = 0; i < 8; i++) text[i] = (unsigned char)(bits >> (56 - 8 * i)); /* big-endian */
  opcode(to, 'G');
  append(to, text, sizeof text);
}

void hal_pickle_bool(hal_pickle_t *to, int value) { append(to, value ? "\x88" : "\x89", 1); }
void hal_pickle_none(hal_pickle_t *to) { opcode(to, 'N'); }
void hal_pickle_open_dict(hal_pickle_t *to) { append(to, "}(", 2); }
void hal_pickle_close_dict(hal_pickle_t *to) { opcode(to, 'u'); }
void hal_pickle_open_list(hal_pickle_t *to) { append(to, "](", 2); }
void hal_pickle_close_list(hal_pickle_t *to) { opcode(to, 'e'); }
void hal_pickle_pair(hal_pickle_t *to) { opcode(to, '\x86'); }
