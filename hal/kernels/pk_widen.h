/* pk_widen.h: half precision on the host. The CPU's instructions convert runs of numbers, and an element-wise kernel of
 * half precision is the float32 kernel between two such conversions, in memory that stays in the first-level cache. It
 * is as fast as float32 in each instruction set, and three dtypes share one machine code. Results are those of
 * pk_half.h before and after each element, as in the devices' kernels. */
#ifndef PK_WIDEN_H_
#define PK_WIDEN_H_

#include "pk_host.h"
#include "pk_types.h"

/* The conversions of one dtype: n numbers, each side contiguous. */
typedef struct pk_half_runs_s {
  void (*widen)(float *out, const pk_u16 *in, pk_u64 n);
  void (*narrow)(pk_u16 *out, const float *in, pk_u64 n);
} pk_half_runs_t;

enum { PK_RUNS_F16 = 0, PK_RUNS_BF16 = 1, PK_RUNS_COUNT = 2 };

/* Returns the fastest conversions of this CPU, or those of every CPU if `best` is 0, for tests. They are static. */
const pk_half_runs_t *pk_half_runs(int dtype, int best);

/* Convert n contiguous elements of half precision (PK_RUNS_*) to a type of one byte, and back, by float32's kernel of
 * that copy. */
void pk_half_to_bytes(const pk_host_entry_t *float32, int dtype, void *out, const void *in, pk_u64 n);
void pk_bytes_to_half(const pk_host_entry_t *float32, int dtype, void *out, const void *in, pk_u64 n);

/* The longest row that kernels of whole rows compute as float32, in their own memory: 64 KiB each. */
#define PK_ROW_ROOM 16384

/* One whole row: the call of the float32 kernel. */
#define PK_WIDENED_GROUP(entry, ...)                                             \
  do {                                                                           \
    extern const pk_host_entry_t PK_CAT(entry, _entry);                          \
    const hal_host_range_t pk_one = {.begin = 0, .end = 1};                      \
    pk_host_entry_fn (&PK_CAT(entry, _entry))(&pk_one, (void *[]){__VA_ARGS__}); \
  } while (0)

/* A kernel in row form of half precision. */
typedef struct pk_widened_s {
  const pk_host_entry_t *kernel; /* of float32: its contiguous form */
  pk_u32 operands, numbers;      /* number of each; the result counts as an operand */
  pk_u32 result_size;            /* bytes of an element of the result: 2 = half precision, 1 = bool */
  int dtype;                     /* PK_RUNS_* */
} pk_widened_t;

/* Computes a range of blocks; args: operands, numbers, n, block, rows. */
void pk_widened_rows(const pk_widened_t *kernel, const hal_host_range_t *range, void *const *args);

/* The kernel `name` with `args`, of `operand_count` operands, built from the float32 kernel. */
#define PK_WIDENED_KERNEL(name, float32, args, operand_count)                                                  \
  extern const pk_host_entry_t PK_CAT(float32, _entry);                                                        \
  static void PK_CAT(name, _base)(const hal_host_range_t *pk_range, void *const *pk_args) {                    \
    enum { behind = 3 /* n, block, rows */, numbers = PK_COUNT(args) - operand_count - behind };               \
    static const pk_widened_t kernel = {&PK_CAT(float32, _entry), operand_count, numbers, sizeof(R), PK_RUNS}; \
    pk_widened_rows(&kernel, pk_range, pk_args);                                                               \
  }                                                                                                            \
  extern const pk_host_entry_t PK_CAT(name, _entry);                                                           \
  const pk_host_entry_t PK_CAT(name, _entry) = {PK_STRING(name), PK_COUNT(args), {PK_CAT(name, _base), 0, 0, 0}};

#endif /* PK_WIDEN_H_ */
