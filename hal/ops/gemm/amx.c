/* amx.c: whether this process may multiply with AMX (pk_amx.h).
 *
 * Linux lets a process use the registers only after a request (arch_prctl, ARCH_REQ_XCOMP_PERM). The permission is
 * per process: existing threads have it, and so have children of fork; exec ends it. The kernel refuses it if a
 * thread has a signal stack (sigaltstack) that is too small for the larger signal frame. After it has granted it,
 * sigaltstack refuses such small stacks: they must have getauxval(AT_MINSIGSTKSZ) bytes plus the needs of their
 * handlers. So the permission is requested before the first product of bfloat16, and other programs are not changed.
 * At a thread's first use the kernel allocates about 10 KiB for it.
 *
 * What cannot be queried is tested: a small product, compared with the model. A form with another result is never
 * used. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define PK_CAT_(a, b) a##b
#define PK_CAT(a, b) PK_CAT_(a, b)
#include "ops/gemm/gemm_args.h"
#include "pk.h"
#include "pk_amx.h"
#include "pk_half.h"

extern const pk_host_entry_t gemm_bf16_tiles_entry;

/* ---- a small product --------------------------------------------------------------------------------------------- */
enum {
  M = 41,
  N = 53,
  K = 300
}; /* more than one square in each direction and more than one block of k, none of them complete */

/* Returns an integer from -2 to 2, usually 0, so that no sum of K of them needs more than bfloat16's 8 bits. */
static pk_bf16 small_number(pk_u32 *state) {
  *state = *state * 1664525u + 1013904223u;
  const pk_u32 random = *state >> 24;
  return pk_put_bf16(random < 32 ? (float)(random % 5) - 2.0f : 0.0f);
}

void pk_amx_multiply(hal_host_kernel_fn_t product, int m, int n, int k, const pk_bf16 *a, const pk_bf16 *b,
                     pk_bf16 *result) {
  pk_gemm_t s = {.m = m,
                 .n = n,
                 .k = k,
                 .a_row = k,
                 .a_col = 1,
                 .b_row = n,
                 .b_col = 1,
                 .result_row = n,
                 .result_col = 1,
                 .tiles = {.tile_m = m, .tile_n = n, .tiles_m = 1, .tiles_n = 1}};
  const hal_host_range_t range = {.begin = 0, .end = 1};
  float alpha = 1, beta = 0;
  pk_u64 units = 1, per_group = 1;
  void *const args[] = {&result, &a, &b, &result, &s, &alpha, &beta, &units, &per_group};
  product(&range, args);
}

int pk_amx_agrees(hal_host_kernel_fn_t product, hal_host_kernel_fn_t other) {
  static pk_bf16 a[M * K], b[K * N]; /* the same numbers for all callers */
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pk_bf16 result[2][M * N] = {{{0}}};
  pk_u32 state = 1;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < M * K; i++) a[i] = small_number(&state);
  for (int i = 0; i < K * N; i++) b[i] = small_number(&state);
  pk_amx_multiply(product, M, N, K, a, b, result[0]);
  pk_amx_multiply(other, M, N, K, a, b, result[1]);
  pthread_mutex_unlock(&lock);
  int differs = 0;
  for (int i = 0; i < M * N; i++) differs |= result[0][i].bits != result[1][i].bits;
  return !differs;
}

/* ---- this machine ------------------------------------------------------------------------------------------------ */
#if defined(PK_HAS_CLONES) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>

enum { OSXSAVE = 1u << 27, AMX_BF16 = 1u << 22, AMX_TILE = 1u << 24, TILE_STATES = 3u << 17, TILE_DATA = 18 };
enum { REQ_XCOMP_PERM = 0x1023, GET_XCOMP_PERM = 0x1022 };

static pk_u32 enabled_states(void) {
  pk_u32 low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static int has(void) {
  pk_u32 a, b, c, d;
  if (pk_host_isa() < PK_ISA_AVX512_BF16) return 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE) || (enabled_states() & TILE_STATES) != TILE_STATES) return 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_TILE) || !(d & AMX_BF16)) return 0;
  /* Palette 1: bytes of all registers and of one, bytes of a row and registers, rows. */
  if (!__get_cpuid_count(0x1d, 1, &a, &b, &c, &d)) return 0;
  return a >> 16 >= 1024 && (b & 0xffff) >= PK_AMX_BYTES && b >> 16 >= PK_AMX_TILES && (c & 0xffff) >= PK_AMX_ROWS;
}

static int permit(void) {
  unsigned long long allowed = 0;
  if (syscall(SYS_arch_prctl, REQ_XCOMP_PERM, TILE_DATA)) return errno ? errno : EINVAL;
  if (syscall(SYS_arch_prctl, GET_XCOMP_PERM, &allowed)) return errno ? errno : EINVAL;
  return allowed >> TILE_DATA & 1 ? 0 : EPERM;
}
#else
static int has(void) { return 0; }
static int permit(void) { return ENOSYS; }
#endif

static void product_hard(const hal_host_range_t *range, void *const *args) {
  gemm_bf16_tiles_entry.fn[PK_ISA_AMX](range, args);
}
static void product_model(const hal_host_range_t *range, void *const *args) {
  gemm_bf16_tiles_entry.fn[PK_ISA_AMX_MODEL](range, args);
}
const pk_amx_machine_t pk_amx_this_machine = {has, permit, product_hard, product_model};

/* ---- the choice -------------------------------------------------------------------------------------------------- */
int pk_amx_choose(const pk_amx_machine_t *machine, int widest, char *line, size_t size, int *warns) {
  *line = 0, *warns = 0;
  if (widest == PK_ISA_AMX_MODEL) return PK_ISA_AMX_MODEL;
  if (widest < PK_ISA_AMX || !machine->has()) return 0;
  const int refused = machine->permit();
  if (!refused && pk_amx_agrees(machine->product, machine->model)) return PK_ISA_AMX;
  *warns = 1;
  if (refused)
    snprintf(line, size, "the system refuses this process AMX (arch_prctl: error %d%s)", refused,
             refused == ENOSPC || refused == EOPNOTSUPP
                 ? "; the signal stack of a thread may be too small, see sigaltstack"
                 : "");
  else
    snprintf(line, size, "a small product with AMX is wrong, so it is not used on this machine");
  return 0;
}
