/* kernel_products.c: the kernels of bfloat16 products in each instruction set, and the AMX variant on the model of
 * its instructions, compared with double precision and with each other (hal/ops/gemm/gemm_half.h). */
#include "products.h"

static const char *const names[PK_ISA_COUNT] = {"base", "avx2", "avx512", "avx512_bf16", "amx", "amx_model"};

Test(kernel_products, bfloat16_is_right_in_all_sizes_and_layouts_in_each_instruction_set) {
  for (int isa = 0; isa < PK_ISA_COUNT; isa++) {
    const hal_host_kernel_fn_t fn = pk_host_kernel_fn("gemm_bf16_tiles", isa);
    cr_assert(fn || (isa != PK_ISA_BASE && isa != PK_ISA_AMX_MODEL), "there is no kernel for %s", names[isa]);
    if (fn) products_check(names[isa], fn, 1);
  }
}

/* Integers, whose sums are exact in any order, produce equal bits in all variants. */
Test(kernel_products, whole_numbers_are_equal_in_all_instruction_sets) {
  const hal_host_kernel_fn_t base = pk_host_kernel_fn("gemm_bf16_tiles", PK_ISA_BASE);
  for (int isa = 1; isa < PK_ISA_COUNT; isa++) {
    const hal_host_kernel_fn_t fn = pk_host_kernel_fn("gemm_bf16_tiles", isa);
    cr_assert(!fn || pk_amx_agrees(fn, base), "%s differs from the base", names[isa]);
  }
}

/* A launch split into parts, as threads run it, produces the bits of the whole launch. */
Test(kernel_products, bits_do_not_depend_on_tiles) {
  const product_t whole = {100, 120, 600, 1, PLAIN, 1, 0, 0, 0, 0};
  for (int isa = 0; isa < PK_ISA_COUNT; isa++) {
    const hal_host_kernel_fn_t fn = pk_host_kernel_fn("gemm_bf16_tiles", isa);
    if (!fn) continue;
    operand_t a, b, self, first = product_run(fn, &whole, &a, &b, &self);
    free(a.data), free(b.data), free(self.data);
    product_t tiles = whole;
    tiles.tile_m = 24, tiles.tile_n = 64;
    operand_t second = product_run(fn, &tiles, &a, &b, &self);
    for (int i = 0; i < whole.m; i++)
      cr_assert_arr_eq(first.data + i * first.row, second.data + i * second.row, (size_t)whole.n * 2, "%s, row %d",
                       names[isa], i);
    free(a.data), free(b.data), free(self.data), free(first.data), free(second.data);
  }
}

/* NaN and infinities propagate in any order of summation. */
Test(kernel_products, infinities_and_nan_reach_their_elements_and_no_others) {
  enum { N = 40, K = 70 };
  for (int isa = 0; isa < PK_ISA_COUNT; isa++) {
    const hal_host_kernel_fn_t fn = pk_host_kernel_fn("gemm_bf16_tiles", isa);
    if (!fn) continue;
    static pk_bf16 a[N * K], b[K * N], result[N * N];
    for (int i = 0; i < N * K; i++) a[i].bits = b[i].bits = narrowed(1.0f);
    a[3 * K + 69].bits = narrowed(INFINITY), a[5 * K + 2].bits = 0x7fc0;
    a[20 * K].bits = narrowed(INFINITY), a[20 * K + 31].bits = narrowed(-INFINITY);
    pk_amx_multiply(fn, N, N, K, a, b, result);
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++) {
        const float x = widened(result[i * N + j].bits);
        cr_assert(i == 3              ? x > 0 && isinf(x)
                  : i == 5 || i == 20 ? isnan(x)
                                      : x == K,
                  "%s: (%d, %d) is %g", names[isa], i, j, (double)x);
      }
  }
}
