/* kernel_amx.c: compares the model of AMX's instructions with their definition (hal/kernels/pk_amx_model.h), and
 * tests how a process decides whether to use the instructions (hal/ops/gemm/amx.c), on mock machines. */
#include <errno.h>

#include "products.h"

static pk_amx_model_t model;

/* ---- configuration ---- */
static const char *configured(pk_amx_config_t config) {
  model.fault = NULL;
  pk_amx_model_configure(&model, &config);
  return model.fault;
}

static void expect(const char *want) {
  cr_assert(model.fault && strncmp(model.fault, want, strlen(want)) == 0, "%s, not %s",
            model.fault ? model.fault : "no fault", want);
  model.fault = NULL;
}

Test(kernel_amx, a_configuration_that_the_processor_refuses_is_a_fault) {
  const pk_amx_config_t whole = PK_AMX_WHOLE;
  cr_assert_null(configured(whole));
  pk_amx_config_t bad = whole;
  bad.palette = 2, configured(bad), expect("#GP: LDTILECFG: palette");
  bad = whole, bad.reserved[13] = 1, configured(bad), expect("#GP: LDTILECFG: reserved");
  bad = whole, bad.rows[3] = 17, configured(bad), expect("#GP: LDTILECFG: rows");
  bad = whole, bad.colsb[7] = 65, configured(bad), expect("#GP: LDTILECFG: colsb");
  bad = whole, bad.rows[0] = 0, configured(bad), expect("#GP: LDTILECFG: rows without");
  bad = whole, bad.colsb[0] = 0, configured(bad), expect("#GP: LDTILECFG: rows without");
  bad = whole, bad.rows[8] = 1, bad.colsb[8] = 4, configured(bad), expect("#GP: LDTILECFG: register");
  cr_assert_eq(model.config.palette, 1, "a refused configuration leaves the last one in place");
}

Test(kernel_amx, registers_without_configuration_are_a_fault) {
  char row[64] = {0};
  pk_amx_config_t some = {.palette = 1, .colsb = {64, 8, 16, 0, 6, 8, 8}, .rows = {2, 2, 4, 0, 2, 2, 1}};
  pk_amx_model_release(&model);
  pk_amx_model_clear(&model, 0), expect("#UD: no configuration");
  pk_amx_model_load(&model, 0, row, 0), expect("#UD: no configuration");
  pk_amx_model_store(&model, 0, row, 0), expect("#UD: no configuration");
  pk_amx_model_dot(&model, 0, 1, 2), expect("#UD: no configuration");
  cr_assert_null(configured(some));
  pk_amx_model_load(&model, 3, row, 0), expect("#UD: register without rows");
  pk_amx_model_dot(&model, 1, 1, 2), expect("#UD: TDPBF16PS: a register twice");
  pk_amx_model_dot(&model, 0, 4, 2), expect("#UD: TDPBF16PS: colsb");
  pk_amx_model_dot(&model, 0, 1, 2), expect("#UD: TDPBF16PS: shapes");
  configured((pk_amx_config_t){.palette = 0});
  cr_assert_null(model.fault, "palette 0 takes the configuration away");
  pk_amx_model_clear(&model, 0), expect("#UD: no configuration");
}

Test(kernel_amx, loads_fill_a_register_up_with_zeros_and_stores_write_its_shape_alone) {
  unsigned char memory[16 * 64], out[16 * 64];
  for (int i = 0; i < 16 * 64; i++) memory[i] = (unsigned char)(i % 251 + 1), out[i] = 0xee;
  const pk_amx_config_t whole = PK_AMX_WHOLE;
  configured(whole);
  pk_amx_model_load(&model, 0, memory, 64);
  cr_assert_arr_eq(model.tile[0], memory, sizeof memory);
  configured((pk_amx_config_t){.palette = 1, .colsb = {12}, .rows = {3}});
  pk_amx_model_load(&model, 0, memory + 640, -64); /* backwards */
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 64; j++)
      cr_assert_eq(model.tile[0][i][j], i < 3 && j < 12 ? memory[640 - 64 * i + j] : 0, "row %d, byte %d", i, j);
  pk_amx_model_store(&model, 0, out, 100);
  for (int i = 0; i < 16 * 64; i++) {
    const int inside = i / 100 < 3 && i % 100 < 12;
    cr_assert_eq(out[i], inside ? memory[640 - 64 * (i / 100) + i % 100] : 0xee, "byte %d", i);
  }
}

/* ---- arithmetic ---- */
/* One element: `pairs` pairs of a and b, added to `start`. */
static float dot(float start, int pairs, const float *a, const float *b) {
  pk_u16 row[32] = {0}, column[16][2] = {{0}};
  for (int i = 0; i < 2 * pairs; i++) row[i] = narrowed(a[i]), column[i / 2][i % 2] = narrowed(b[i]);
  configured((pk_amx_config_t){.palette = 1, .colsb = {4, (pk_u16)(4 * pairs), 4}, .rows = {1, 1, (pk_u8)pairs}});
  pk_amx_model_load(&model, 0, &start, 4);
  pk_amx_model_load(&model, 1, row, 64);
  pk_amx_model_load(&model, 2, column, 4);
  pk_amx_model_dot(&model, 0, 1, 2);
  pk_amx_model_store(&model, 0, &start, 4);
  cr_assert_null(model.fault);
  return start;
}

Test(kernel_amx, a_product_sums_first_and_second_elements_apart_and_then_adds_both) {
  /* In one sum, 2^24 would absorb each 1. Summed separately, the second elements are complete before they are added
     to it. */
  const float a[] = {0x1p24f, 1, 0, 1, 0, 1, 0, 1}, one[] = {1, 1, 1, 1, 1, 1, 1, 1};
  cr_assert_eq(dot(0, 4, a, one), 0x1p24f + 4);
  cr_assert_eq(dot(-0x1p24f, 4, a, one), 4);
  /* The order of k matters within one of the sums: 1 is lost in 2^24, which is subtracted later. */
  const float lost[] = {0x1p24f, 0, 1, 0, -0x1p24f, 0}, kept[] = {0x1p24f, 0, -0x1p24f, 0, 1, 0};
  cr_assert_eq(dot(0, 3, lost, one), 0);
  cr_assert_eq(dot(0, 3, kept, one), 1);
}

Test(kernel_amx, a_product_is_fused_and_rounds_to_the_nearest_even) {
  /* 1.0078125^2 = 1 + 2^-6 + 2^-14: times 2^10, plus -2^10. The product is not rounded before the sum. */
  const float a[] = {0x1p10f, 0, 0x1.02p5f, 0}, b[] = {-1, 0, 0x1.02p5f, 0};
  cr_assert_eq(dot(0, 2, a, b), 0x1.02p0f * 0x1.02p0f * 0x1p10f - 0x1p10f);
  const float half[] = {0x1p24f, 0, 1, 0}, three[] = {0x1p24f, 0, 3, 0}, one[] = {1, 1, 1, 1};
  cr_assert_eq(dot(0, 2, half, one), 0x1p24f, "2^24 + 1 is a tie");
  cr_assert_eq(dot(0, 2, three, one), 0x1p24f + 4, "2^24 + 3 is a tie");
  /* The intermediate value exceeds the largest float and the result does not: the operation is fused, so that the
     result is finite. */
  const float large[] = {-0x1.fep127f, 0, 0x1p64f, 0}, other[] = {1, 0, 0x1p64f, 0};
  cr_assert(isfinite(dot(0, 2, large, other)));
}

Test(kernel_amx, subnormal_numbers_are_zeros_of_their_sign_on_both_sides) {
  const float tiny[] = {0x1p-130f, 0}, small[] = {0x1p-100f, 0}, big[] = {0x1p120f, 0}, one[] = {1, 0},
              minus[] = {-0x1p-100f, 0};
  cr_assert_eq(dot(0, 1, tiny, big), 0, "an operand");
  cr_assert_eq(dot(0, 1, small, small), 0, "a product");
  cr_assert_eq(dot(0x1p-130f, 1, one, one), 1, "what was there");
  cr_assert_eq(dot(0x1p-130f, 1, tiny, one), 0, "what was there, alone");
  cr_assert_eq(dot(0, 1, minus, small), 0);
  cr_assert_eq(dot(0, 1, (float[]){0x1p-126f, 0}, one), 0x1p-126f, "the smallest normal number stays");
}

/* ---- the choice ---- */
static int requests;
static int yes(void) { return 1; }
static int no(void) { return 0; }
static int agrees(void) { return requests++, 0; }
static int lacks_stack(void) { return ENOSPC; }
static int refuses(void) { return EPERM; }
static hal_host_kernel_fn_t base_product(void) { return pk_host_kernel_fn("gemm_bf16_tiles", PK_ISA_BASE); }

/* A processor that computes one element incorrectly. */
static void wrong_product(const hal_host_range_t *range, void *const *args) {
  base_product()(range, args);
  pk_u16 *const result = *(pk_u16 *const *)args[0];
  result[777] = narrowed(widened(result[777]) + 1);
}

static int choose(const pk_amx_machine_t *machine, int widest, const char *want, int want_warns) {
  char line[200];
  int warns = -1;
  const int isa = pk_amx_choose(machine, widest, line, sizeof line, &warns);
  cr_assert_eq(warns, want_warns, "%s", line);
  cr_assert(want ? strstr(line, want) != NULL : !*line, "the line is '%s'", line);
  return isa;
}

Test(kernel_amx, a_process_uses_the_instructions_only_where_all_agree) {
  const hal_host_kernel_fn_t model_product = pk_amx_this_machine.model;
  const pk_amx_machine_t good = {yes, agrees, base_product(), model_product};
  cr_assert_eq(choose(&good, PK_ISA_AMX, NULL, 0), PK_ISA_AMX);
  cr_assert_eq(requests, 1);
  cr_assert_eq(choose(&good, PK_ISA_AVX512_BF16, NULL, 0), 0, "switched off");
  cr_assert_eq(choose(&good, PK_ISA_AMX_MODEL, NULL, 0), PK_ISA_AMX_MODEL);
  const pk_amx_machine_t lacking = {no, agrees, base_product(), model_product};
  cr_assert_eq(choose(&lacking, PK_ISA_AMX, NULL, 0), 0);
  cr_assert_eq(requests, 1, "permission must be requested only if the instructions would be used");
}

Test(kernel_amx, a_refusal_is_one_line_and_no_use) {
  const hal_host_kernel_fn_t model_product = pk_amx_this_machine.model;
  const pk_amx_machine_t small = {yes, lacks_stack, base_product(), model_product};
  cr_assert_eq(choose(&small, PK_ISA_AMX, "sigaltstack", 1), 0);
  const pk_amx_machine_t closed = {yes, refuses, base_product(), model_product};
  cr_assert_eq(choose(&closed, PK_ISA_AMX, "refuses this process AMX", 1), 0);
  const pk_amx_machine_t wrong = {yes, agrees, wrong_product, model_product};
  cr_assert_eq(choose(&wrong, PK_ISA_AMX, "is wrong", 1), 0);
}

/* ---- the setting: each test is a separate process ---- */
static const char *note(int32_t want_warns) {
  int32_t warns = -1;
  const char *const line = hal_host_kernel_note(&warns);
  if (line) cr_assert_eq(warns, want_warns, "%s", line);
  return line;
}

Test(kernel_amx, the_setting_takes_instruction_sets_away) {
  setenv("HAL_HOST_ISA", "base", 1);
  cr_assert_eq(pk_host_isa(), PK_ISA_BASE);
  cr_assert_eq(hal_host_kernel_find("gemm_bf16_tiles")->fn, base_product());
  cr_assert_eq(hal_host_kernel_find("gemm_f32_tiles")->fn, pk_host_kernel_fn("gemm_f32_tiles", PK_ISA_BASE));
  cr_assert_null(pk_host_kernel_fn("gemm_f32_tiles", PK_ISA_AVX2));
  cr_assert_str_eq(note(0), "bfloat16 products of the host use base");
  cr_assert_null(note(0), "once");
}

Test(kernel_amx, the_setting_chooses_the_model) {
  setenv("HAL_HOST_ISA", "amx_model", 1);
  cr_assert_eq(hal_host_kernel_find("gemm_bf16_tiles")->fn, pk_host_kernel_fn("gemm_bf16_tiles", PK_ISA_AMX_MODEL));
  cr_assert_str_eq(note(0), "bfloat16 products of the host use amx_model");
}

Test(kernel_amx, an_invalid_setting_is_one_warning) {
  setenv("HAL_HOST_ISA", "amx9", 1);
  cr_assert_not_null(hal_host_kernel_find("gemm_f32_tiles"));
  const char *const line = note(1);
  cr_assert(line && strstr(line, "HAL_HOST_ISA=amx9") && strstr(line, "avx512_bf16"), "%s", line ? line : "no line");
  cr_assert_null(note(1));
}

Test(kernel_amx, finding_other_kernels_requests_no_permission) {
  cr_assert_not_null(hal_host_kernel_find("add_f32_contig"));
  cr_assert_null(note(0), "the choice is made when the first product of bfloat16 is requested");
  cr_assert_not_null(hal_host_kernel_find("gemm_bf16_tiles"));
  cr_assert_not_null(note(0));
}
