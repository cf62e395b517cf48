/* widen.c: see pk_widen.h. */
#include "kernels/pk_widen.h"

#include "kernels/pk.h"
#include "kernels/pk_half.h"
#include "kernels/pk_rows.h"

/* ---- conversions ------------------------------------------------------------------------------------------------- */
#define DEFINE_RUNS(attribute, token, suffix)                                            \
  attribute static void widen_##token##suffix(float *out, const pk_u16 *in, pk_u64 n) {  \
    PK_VECTOR_LOOP(j, n) { out[j] = pk_get_##token((pk_##token){in[j]}); }               \
  }                                                                                      \
  attribute static void narrow_##token##suffix(pk_u16 *out, const float *in, pk_u64 n) { \
    PK_VECTOR_LOOP(j, n) { out[j] = pk_put_##token(in[j]).bits; }                        \
  }
DEFINE_RUNS(, f16, _base)
DEFINE_RUNS(, bf16, _base)
static const pk_half_runs_t runs_base[PK_RUNS_COUNT] = {{widen_f16_base, narrow_f16_base},
                                                        {widen_bf16_base, narrow_bf16_base}};

#if defined(PK_HAS_CLONES)
#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>

DEFINE_RUNS(PK_TARGET_AVX2, bf16, _avx2)

#define F16C_LANES 8
#define F16C __attribute__((target("avx2,fma,f16c")))

/* The last lanes are converted the same way, so that the bits of a NaN do not depend on its position. */
F16C static void widen_f16_f16c(float *out, const pk_u16 *in, pk_u64 n) {
  const pk_u64 whole = n - n % F16C_LANES;
#pragma GCC unroll 4
  for (pk_u64 j = 0; j < whole; j += F16C_LANES)
    _mm256_storeu_ps(out + j, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + j))));
  if (whole == n) return;
  pk_u16 from[F16C_LANES] = {0};
  float to[F16C_LANES];
  memcpy(from, in + whole, (n - whole) * sizeof *from);
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)));
  memcpy(out + whole, to, (n - whole) * sizeof *to);
}

F16C static void narrow_f16_f16c(pk_u16 *out, const float *in, pk_u64 n) {
  enum { NEAREST = _MM_FROUND_TO_NEAREST_INT };
  const pk_u64 whole = n - n % F16C_LANES;
#pragma GCC unroll 4
  for (pk_u64 j = 0; j < whole; j += F16C_LANES)
    _mm_storeu_si128((__m128i *)(out + j), _mm256_cvtps_ph(_mm256_loadu_ps(in + j), NEAREST));
  if (whole == n) return;
  float from[F16C_LANES] = {0};
  pk_u16 to[F16C_LANES];
  memcpy(from, in + whole, (n - whole) * sizeof *from);
  _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(_mm256_loadu_ps(from), NEAREST));
  memcpy(out + whole, to, (n - whole) * sizeof *to);
}

static const pk_half_runs_t runs_avx2[PK_RUNS_COUNT] = {{widen_f16_f16c, narrow_f16_f16c},
                                                        {widen_bf16_avx2, narrow_bf16_avx2}};

/* The compilers' query for F16C is newer than the supported versions; cpuid takes a microsecond on a virtual
 * machine. */
static pthread_once_t isa_once = PTHREAD_ONCE_INIT;
static int has_avx2, has_f16c;
static void find_isa(void) {
  unsigned eax, ebx, ecx, edx;
  has_avx2 = pk_host_isa() >= PK_ISA_AVX2;
  has_f16c = has_avx2 && __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

const pk_half_runs_t *pk_half_runs(int dtype, int best) {
  pthread_once(&isa_once, find_isa);
  const int fast = best && (dtype == PK_RUNS_F16 ? has_f16c : has_avx2);
  return fast ? &runs_avx2[dtype] : &runs_base[dtype];
}
#else
const pk_half_runs_t *pk_half_runs(int dtype, int best) {
  (void)best;
  return &runs_base[dtype];
}
#endif

/* ---- element-wise kernels ---------------------------------------------------------------------------------------- */
#define RUN 512 /* elements: four runs of floats are 8 KiB, a quarter of a first cache */
/* Elements after each run: processors treat addresses that differ by 4 KiB as equal in a search for a pending write. */
#define PAD 16

/* Calls a copy of `count` elements. */
static void copy_run(hal_host_kernel_fn_t fn, void *out, const void *in, pk_u64 count) {
  const hal_host_range_t items = {.begin = 0, .end = count};
  fn(&items, (void *[]){&out, &in, &count});
}

void pk_half_to_bytes(const pk_host_entry_t *float32, int dtype, void *out, const void *in, pk_u64 n) {
  const hal_host_kernel_fn_t fn = pk_host_entry_fn(float32);
  float value[RUN];
  for (pk_u64 i = 0, count; i < n; i += count) {
    count = n - i < RUN ? n - i : RUN;
    pk_half_runs(dtype, 1)->widen(value, (const pk_u16 *)in + i, count);
    copy_run(fn, (pk_u8 *)out + i, value, count);
  }
}

void pk_bytes_to_half(const pk_host_entry_t *float32, int dtype, void *out, const void *in, pk_u64 n) {
  const hal_host_kernel_fn_t fn = pk_host_entry_fn(float32);
  float value[RUN];
  for (pk_u64 i = 0, count; i < n; i += count) {
    count = n - i < RUN ? n - i : RUN;
    copy_run(fn, value, (const pk_u8 *)in + i, count);
    pk_half_runs(dtype, 1)->narrow((pk_u16 *)out + i, value, count);
  }
}

/* A launch, and a run of its elements: its begin and its values. */
typedef struct run_s {
  const pk_half_runs_t *runs;
  const pk_rows_t *rows;
  char *operand[PK_ROW_OPERANDS];
  int operands;
  int whole; /* the run is in one row */
  pk_u64 count;
  pk_cursor_t at;
  float value[PK_ROW_OPERANDS][RUN + PAD];
  pk_u16 half[RUN];
} run_t;

static void gather(pk_u16 *run, const pk_u16 *operand, pk_i64 stride, pk_u64 n) {
  for (pk_u64 j = 0; j < n; j++) run[j] = operand[(pk_i64)j * stride];
}

#define DEFINE_SCATTER(type)                                                            \
  static void scatter_##type(type *operand, const type *run, pk_i64 stride, pk_u64 n) { \
    for (pk_u64 j = 0; j < n; j++) operand[(pk_i64)j * stride] = run[j];                \
  }
DEFINE_SCATTER(pk_u16)
DEFINE_SCATTER(pk_u8)

/* Executes `step` for each part of a run that is in one row: from position `first` of the run on, `span` elements, at
 * the cursor `at`. */
#define EACH_SPAN(run, step)                                            \
  do {                                                                  \
    pk_cursor_t at = (run)->at;                                         \
    for (pk_u64 first = 0, span; first < (run)->count; first += span) { \
      if (first) pk_cursor_next_row((run)->rows, (run)->operands, &at); \
      span = pk_cursor_span((run)->rows, &at, (run)->count - first);    \
      step;                                                             \
    }                                                                   \
  } while (0)

static void read_halves(run_t *run, int k) {
  const pk_u16 *const operand = (const pk_u16 *)(const void *)run->operand[k];
  const pk_i64 stride = run->rows->stride[k][0];
  if (run->whole && stride == 1) {
    run->runs->widen(run->value[k], operand + run->at.offset[k], run->count);
    return;
  }
  EACH_SPAN(run, gather(run->half + first, operand + at.offset[k], stride, span));
  run->runs->widen(run->value[k], run->half, run->count);
}

static void write_halves(run_t *run) {
  pk_u16 *const result = (pk_u16 *)(void *)run->operand[0];
  const pk_i64 stride = run->rows->stride[0][0];
  if (run->whole && stride == 1) {
    run->runs->narrow(result + run->at.offset[0], run->value[0], run->count);
    return;
  }
  run->runs->narrow(run->half, run->value[0], run->count);
  EACH_SPAN(run, scatter_pk_u16(result + at.offset[0], run->half + first, stride, span));
}

static void write_bytes(run_t *run) {
  pk_u8 *const result = (pk_u8 *)run->operand[0];
  const pk_u8 *const value = (const pk_u8 *)run->value[0];
  const pk_i64 stride = run->rows->stride[0][0];
  EACH_SPAN(run, scatter_pk_u8(result + at.offset[0], value + first, stride, span));
}

/* Calls the float32 kernel on the values of a run. */
static void compute(run_t *run, const pk_widened_t *kernel, hal_host_kernel_fn_t fn, void *const *numbers) {
  const hal_host_range_t items = {.begin = 0, .end = run->count};
  void *value[PK_ROW_OPERANDS], *args[PK_ROW_OPERANDS + 3];
  pk_u32 count = 0;
  for (pk_u32 k = 0; k < kernel->operands; k++) {
    value[k] = run->value[k];
    args[count++] = &value[k];
  }
  for (pk_u32 i = 0; i < kernel->numbers; i++) args[count++] = numbers[i];
  args[count] = &run->count;
  fn(&items, args);
}

/* Returns whether the result's elements are not contiguous. If they are contiguous, a run ends with its row, so that
 * the next row reads what this one wrote, as in the other row kernels. */
static int lies_apart(const pk_rows_t *rows) {
  pk_i64 reach = 0; /* of the dimensions so far: the largest offset */
  for (int d = 0; d < rows->ndim; d++) {
    const pk_i64 stride = rows->stride[0][d] < 0 ? -rows->stride[0][d] : rows->stride[0][d];
    if (stride <= reach && rows->size[d] > 1) return 0;
    reach += stride * (rows->size[d] - 1);
  }
  return 1;
}

void pk_widened_rows(const pk_widened_t *kernel, const hal_host_range_t *range, void *const *args) {
  void *const *const behind = args + kernel->operands + kernel->numbers;
  const pk_u64 n = *(const pk_u64 *)behind[0], block = *(const pk_u64 *)behind[1];
  const hal_host_kernel_fn_t fn = pk_host_entry_fn(kernel->kernel);
  run_t run;
  run.runs = pk_half_runs(kernel->dtype, 1);
  run.rows = behind[2];
  run.operands = (int)kernel->operands;
  for (int k = 0; k < run.operands; k++) run.operand[k] = *(char *const *)args[k];
  const int apart = lies_apart(run.rows);
  const pk_u64 end = range->end * block < n ? range->end * block : n;
  for (pk_u64 i = range->begin * block; i < end; i += run.count) {
    run.count = end - i < RUN ? end - i : RUN;
    pk_cursor_seek(run.rows, run.operands, i, &run.at);
    const pk_u64 span = pk_cursor_span(run.rows, &run.at, run.count);
    if (!apart) run.count = span;
    run.whole = span == run.count;
    for (int k = 1; k < run.operands; k++) read_halves(&run, k);
    compute(&run, kernel, fn, args + kernel->operands);
    if (kernel->result_size == 1)
      write_bytes(&run);
    else
      write_halves(&run);
  }
}
