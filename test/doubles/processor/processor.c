/* processor.c: makes the programs of a run see a smaller processor, so that a machine with AVX-512 runs the tests
 * like one without.
 *
 * Preloaded (LD_PRELOAD), with HAL_TEST_PROCESSOR as the name of a processor (`processors` below). The library makes
 * CPUID fault (Linux, arch_prctl), executes the instruction in the handler of the fault and removes the features
 * that the processor lacks. Each library of the process sees the result: the portable kernels, MKL, oneDNN, PoCL. A
 * program that executes an instruction without the feature's CPUID bit is not detected. The C library selected its
 * own functions earlier; they are not affected. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { EAX, EBX, ECX, EDX, REGISTERS };
enum { NO_AMX = 1, NO_BF16 = 2, NO_AVX512 = 4, NO_AVX2 = 8, AMD = 16 };
static const struct {
  const char *name;
  int lacks;
} processors[] = {
    {"avx512_bf16", NO_AMX},
    {"avx512", NO_AMX | NO_BF16},
    {"avx2", NO_AMX | NO_BF16 | NO_AVX512},
    {"epyc", NO_AMX | NO_BF16 | NO_AVX512 | AMD}, /* another vendor: MKL selects other code */
    {"base", NO_AMX | NO_BF16 | NO_AVX512 | NO_AVX2},
};

/* The bits of a leaf that a processor without the feature does not have. */
static const struct {
  uint32_t leaf, subleaf;
  int lacks, reg;
  uint32_t bits;
} features[] = {
    {7, 0, NO_AMX, EDX, 1u << 22 | 1u << 24 | 1u << 25},
    {7, 1, NO_AMX, EAX, 1u << 21},
    {7, 1, NO_BF16, EAX, 1u << 5 | 1u << 4 | 1u << 23},
    {7, 0, NO_BF16, EDX, 1u << 23},
    {7, 0, NO_AVX512, EBX, 1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31},
    {7, 0, NO_AVX512, ECX, 1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14},
    {7, 0, NO_AVX512, EDX, 1u << 2 | 1u << 3 | 1u << 8},
    {7, 0, NO_AVX2, EBX, 1u << 5},
    {1, 0, NO_AVX2, ECX, 1u << 12 | 1u << 29},
};

static int lacks;
static struct sigaction wanted = {.sa_handler = SIG_DFL}; /* the program's handler of SIGSEGV */
static int (*real_sigaction)(int, const struct sigaction *, struct sigaction *);

static int cpuid_faults(int on) { return (int)syscall(SYS_arch_prctl, ARCH_SET_CPUID, !on); }

static void read_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[REGISTERS]) {
  cpuid_faults(0);
  __cpuid_count(leaf, subleaf, out[EAX], out[EBX], out[ECX], out[EDX]);
  cpuid_faults(1);
  for (size_t i = 0; i < sizeof features / sizeof *features; i++)
    if (features[i].leaf == leaf && features[i].subleaf == subleaf && features[i].lacks & lacks)
      out[features[i].reg] &= ~features[i].bits;
  if (!(lacks & AMD)) return;
  if (leaf == 0) memcpy(&out[EBX], "Auth", 4), memcpy(&out[EDX], "enti", 4), memcpy(&out[ECX], "cAMD", 4);
  if (leaf == 1) out[EAX] = 0x00a20f10; /* Zen 3 */
  if (leaf == 4 || leaf > 0x80000008u) memset(out, 0, REGISTERS * sizeof *out);
}

static void on_fault(int number, siginfo_t *info, void *data) {
  ucontext_t *const context = data;
  greg_t *const regs = context->uc_mcontext.gregs;
  /* A general protection fault: the code at this address was fetched, so it can be read. */
  if (info->si_code == SI_KERNEL && memcmp((const void *)(intptr_t)regs[REG_RIP], "\x0f\xa2", 2) == 0) { /* NOLINT */
    uint32_t out[REGISTERS];
    read_cpuid((uint32_t)regs[REG_RAX], (uint32_t)regs[REG_RCX], out);
    regs[REG_RAX] = out[EAX], regs[REG_RBX] = out[EBX], regs[REG_RCX] = out[ECX], regs[REG_RDX] = out[EDX];
    regs[REG_RIP] += 2;
    return;
  }
  const struct sigaction action = wanted;
  if (action.sa_flags & SA_RESETHAND) wanted = (struct sigaction){.sa_handler = SIG_DFL};
  if (action.sa_flags & SA_SIGINFO) {
    action.sa_sigaction(number, info, data);
  } else if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) {
    action.sa_handler(number);
  } else if (action.sa_handler == SIG_DFL || info->si_code > 0) { /* a fault cannot be ignored */
    const struct sigaction end = {.sa_handler = SIG_DFL};
    real_sigaction(number, &end, NULL);
    if (info->si_code <= 0) raise(number); /* a real fault comes again */
  }
}

static void install(void) {
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  real_sigaction(SIGSEGV, &action, NULL);
}

/* ---- functions that the program calls ---- */
int sigaction(int number, const struct sigaction *action, struct sigaction *old);
int sigaction(int number, const struct sigaction *action, struct sigaction *old) {
  if (!real_sigaction) *(void **)&real_sigaction = dlsym(RTLD_NEXT, "sigaction"); /* another library's constructor */
  if (number != SIGSEGV || !lacks) return real_sigaction(number, action, old);
  if (old) *old = wanted;
  if (action) wanted = *action;
  return 0;
}

sighandler_t signal(int number, sighandler_t handler);
sighandler_t signal(int number, sighandler_t handler) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
  sigaddset(&action.sa_mask, number);
  return sigaction(number, &action, &old) ? SIG_ERR : old.sa_handler;
}

__attribute__((constructor)) static void begin(void) {
  const char *const name = getenv("HAL_TEST_PROCESSOR");
  if (!real_sigaction) *(void **)&real_sigaction = dlsym(RTLD_NEXT, "sigaction");
  if (!name) return;
  for (size_t i = 0; i < sizeof processors / sizeof *processors; i++)
    if (strcmp(name, processors[i].name) == 0) lacks = processors[i].lacks;
  if (!lacks) {
    fprintf(stderr, "HAL_TEST_PROCESSOR=%s: unknown processor; expected avx512_bf16, avx512, avx2, epyc or base\n",
            name);
    _exit(2);
  }
  install();
  if (cpuid_faults(1) == 0) return;
  fprintf(stderr, "HAL_TEST_PROCESSOR: this processor or system cannot intercept CPUID: %s\n", strerror(errno));
  _exit(77);
}
