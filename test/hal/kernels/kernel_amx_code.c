/* kernel_amx_code.c: the compiled AMX code of bfloat16 products. If the processor lacks the instructions, or this
 * process may not use them, each instruction raises SIGILL. The handler then decodes the registers, addresses and
 * steps from the machine code and runs the model. Otherwise the processor executes the instructions. */
#define _GNU_SOURCE
#include <signal.h>
#include <ucontext.h>

#include "products.h"

#if defined(__x86_64__) && defined(PK_HAS_CLONES)
static pk_amx_model_t model;
static long traps;

/* A register by its number in an instruction. */
static long long value_of(const ucontext_t *context, int number) {
  static const int place[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return context->uc_mcontext.gregs[place[number]];
}

/* An instruction with a three-byte prefix. */
typedef struct decoded_s {
  int opcode, prefix, reg, rm, other,
      memory; /* prefix: 0 none, 1 66, 2 F3, 3 F2; other: vvvv; memory: rm is none of the registers */
  char *address;
  long long step; /* of rows: the scaled index */
  int bytes;
} decoded_t;

static int decode(const unsigned char *code, const ucontext_t *context, decoded_t *out) {
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || code[2] & 4) return 0; /* the map 0F 38, 128 bits */
  const int extend_index = !(code[1] & 0x40), extend_base = !(code[1] & 0x20), mod = code[4] >> 6;
  *out = (decoded_t){.opcode = code[3],
                     .prefix = code[2] & 3,
                     .reg = code[4] >> 3 & 7,
                     .rm = code[4] & 7,
                     .other = ~code[2] >> 3 & 15,
                     .memory = mod != 3,
                     .bytes = 5};
  if (mod == 3) return 1;
  int base = out->rm, far = mod == 2;
  if (out->rm == 4) {
    const int sib = code[out->bytes++], index = (sib >> 3 & 7) + 8 * extend_index;
    base = sib & 7;
    if (index != 4) out->step = value_of(context, index) << (sib >> 6);
  }
  const int none = mod == 0 && base == 5; /* no base, or the next instruction's address */
  far = far || none;
  long long at = none ? 0 : value_of(context, base + 8 * extend_base);
  if (far) {
    int offset;
    memcpy(&offset, code + out->bytes, sizeof offset);
    at += offset, out->bytes += 4;
  } else if (mod == 1) {
    at += (signed char)code[out->bytes++];
  }
  if (none && out->rm == 5) at += context->uc_mcontext.gregs[REG_RIP] + out->bytes;
  out->address = (char *)(intptr_t)at; /* NOLINT: the integer is an address */
  return 1;
}

static int execute(const decoded_t *i) {
  enum { F3 = 2, F2 = 3 };
  if (i->opcode == 0x49 && i->prefix == 0 && i->memory)
    pk_amx_model_configure(&model, (const pk_amx_config_t *)(const void *)i->address);
  else if (i->opcode == 0x49 && i->prefix == 0)
    pk_amx_model_release(&model);
  else if (i->opcode == 0x49 && i->prefix == F2 && !i->memory)
    pk_amx_model_clear(&model, i->reg);
  else if (i->opcode == 0x4b && i->prefix == F2 && i->memory)
    pk_amx_model_load(&model, i->reg, i->address, i->step);
  else if (i->opcode == 0x4b && i->prefix == F3 && i->memory)
    pk_amx_model_store(&model, i->reg, i->address, i->step);
  else if (i->opcode == 0x5c && i->prefix == F3 && !i->memory)
    pk_amx_model_dot(&model, i->reg, i->rm, i->other);
  else
    return 0;
  return !model.fault;
}

static void on_illegal(int number, siginfo_t *info, void *data) {
  ucontext_t *const context = data;
  decoded_t instruction;
  (void)info;
  if (decode((const unsigned char *)(intptr_t)context->uc_mcontext.gregs[REG_RIP], context, &instruction) &&
      execute(&instruction)) {
    context->uc_mcontext.gregs[REG_RIP] += instruction.bytes;
    traps++;
    return;
  }
  signal(number, SIG_DFL); /* it is raised again */
}

static void catch_instructions(void) {
  struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
  sigaction(SIGILL, &action, NULL);
}

/* The compiled code needs the vectors of AVX512-BF16 around the products; sanitized builds have neither. A processor
 * with AMX executes the configuration without the system's permission and traps only at the first register. The
 * model would then miss the configuration, so the test runs only if the processor executes all instructions or none. */
static int can_run(void) {
  if (!pk_host_kernel_fn("gemm_bf16_tiles", PK_ISA_AVX512_BF16)) {
    cr_skip_test("this processor has no AVX512-BF16, or this build or HAL_HOST_ISA does not use it");
    return 0;
  }
  if (!pk_amx_this_machine.has()) return 1;
  const int refused = pk_amx_this_machine.permit();
  if (!refused) return 1;
  cr_skip_test("the system refuses this process AMX: error %d", refused);
  return 0;
}

Test(kernel_amx_code, the_compiled_form_is_right_in_all_sizes_and_layouts) {
  if (!can_run()) return;
  catch_instructions();
  products_check("AMX as compiled", pk_amx_this_machine.product, 2);
  cr_assert(traps > 1000 || pk_amx_this_machine.has(), "%ld instructions of AMX were executed", traps);
  cr_assert_eq(model.config.palette, 0, "the state must be released after each launch");
}

Test(kernel_amx_code, the_compiled_form_passes_its_own_check_and_equals_the_model) {
  if (!can_run()) return;
  catch_instructions();
  cr_assert(pk_amx_agrees(pk_amx_this_machine.product, pk_amx_this_machine.model));
  const product_t p = {70, 90, 520, 1, B_TURNED, 1, 0, 0, 0, 0};
  operand_t a, b, self, hard = product_run(pk_amx_this_machine.product, &p, &a, &b, &self);
  free(a.data), free(b.data), free(self.data);
  operand_t soft = product_run(pk_amx_this_machine.model, &p, &a, &b, &self);
  for (int i = 0; i < p.m; i++)
    cr_assert_arr_eq(hard.data + i * hard.row, soft.data + i * soft.row, (size_t)p.n * 2, "row %d", i);
  free(a.data), free(b.data), free(self.data), free(hard.data), free(soft.data);
}
#else
Test(kernel_amx_code, there_is_no_such_code) {
  cr_skip_test("AMX is an instruction set of x86, and sanitizers leave its code out");
}
#endif
