/* reduce.c: reductions: numbers of all types are accumulated in double, or in 64 bits, in the order of the ranks,
   and rounded once. */
#include <string.h>

#include "nccl_mock.h"

size_t bytes_of(ncclDataType_t type) {
  static const unsigned char sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return (unsigned)type < sizeof sizes ? sizes[type] : 0;
}

static int is_float(ncclDataType_t type) { return type >= ncclFloat16; }

static double load_float(ncclDataType_t type, const void *at) {
  uint16_t bits = 0;
  float single = 0;
  double value = 0;
  _Float16 half = 0;
  if (type == ncclFloat64) {
    memcpy(&value, at, sizeof value);
    return value;
  }
  if (type == ncclFloat16) {
    memcpy(&half, at, sizeof half);
    return (double)half;
  }
  if (type == ncclFloat32) {
    memcpy(&single, at, sizeof single);
    return (double)single;
  }
  memcpy(&bits, at, sizeof bits);
  const uint32_t wide = (uint32_t)bits << 16;
  memcpy(&single, &wide, sizeof single);
  return (double)single;
}

static void store_float(ncclDataType_t type, void *at, double value) {
  const float single = (float)value;
  const _Float16 half = (_Float16)single;
  uint32_t bits = 0;
  memcpy(&bits, &single, sizeof bits);
  const uint16_t brain = value != value ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  if (type == ncclFloat64) memcpy(at, &value, sizeof value);
  if (type == ncclFloat32) memcpy(at, &single, sizeof single);
  if (type == ncclFloat16) memcpy(at, &half, sizeof half);
  if (type == ncclBfloat16) memcpy(at, &brain, sizeof brain);
}

/* Like the hardware: NaN loses against a number. */
static double join_floats(ncclRedOp_t reduce, double left, double right) {
  switch (reduce) {
    case ncclProd:
      return left * right;
    case ncclMax:
      return left != left || right > left ? right : left;
    case ncclMin:
      return left != left || right < left ? right : left;
    default:
      return left + right;
  }
}

static void reduce_floats(const work_t *work, int size, size_t index) {
  const size_t step = bytes_of(work->type), block = step * work->count;
  const void *const factor = work->scale.on_device ? work->scale.device : work->scale.host;
  const double scale = (int)work->reduce >= FIRST_SCALE ? load_float(work->type, factor) : 1;
  double sum = load_float(work->type, work->scratch + index * step) * scale;
  for (int i = 1; i < size; i++)
    sum = join_floats(work->reduce, sum,
                      load_float(work->type, work->scratch + (size_t)i * block + index * step) * scale);
  if (work->reduce == ncclAvg) sum /= size;
  store_float(work->type, work->recv + index * step, sum);
}

static int64_t load_integer(ncclDataType_t type, const unsigned char *at) {
  int64_t value = 0;
  memcpy(&value, at, bytes_of(type)); /* little-endian */
  if (type == ncclInt8) return (int8_t)value;
  return type == ncclInt32 ? (int32_t)value : value;
}

static int64_t join_integers(ncclDataType_t type, ncclRedOp_t reduce, int64_t left, int64_t right) {
  const int less = type == ncclUint64 ? (uint64_t)left < (uint64_t)right : left < right;
  switch (reduce) {
    case ncclProd:
      return (int64_t)((uint64_t)left * (uint64_t)right);
    case ncclMax:
      return less ? right : left;
    case ncclMin:
      return less ? left : right;
    default:
      return (int64_t)((uint64_t)left + (uint64_t)right);
  }
}

static void reduce_integers(const work_t *work, int size, size_t index) {
  const size_t step = bytes_of(work->type), block = step * work->count;
  int64_t sum = load_integer(work->type, work->scratch + index * step);
  for (int i = 1; i < size; i++)
    sum = join_integers(work->type, work->reduce, sum,
                        load_integer(work->type, work->scratch + (size_t)i * block + index * step));
  memcpy(work->recv + index * step, &sum, step);
}

void reduce_blocks(const work_t *work, int size) {
  for (size_t i = 0; i < work->count; i++) (is_float(work->type) ? reduce_floats : reduce_integers)(work, size, i);
}
