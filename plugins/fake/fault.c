/* fault.c: handles accesses to protected memory. It writes a report to stderr that names the device, the address, its
 * allocation and the work. Then the process ends as it would without this handler: the previously installed handler
 * runs, or the signal ends the process.
 *
 * Everything in the handler is async-signal-safe: no malloc, no stdio, no wait for a lock. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "protect.h"

static const int signals[] = {SIGSEGV, SIGBUS};
enum { SIGNALS = sizeof signals / sizeof *signals };
static struct sigaction before[SIGNALS];
static int installed;

/* ---- text without stdio ----------------------------------------------------------------------------------------- */

typedef struct text_s {
  size_t length;
  char data[1024];
} text_t;

static void put(text_t *text, const char *string) {
  while (*string && text->length < sizeof text->data) text->data[text->length++] = *string++;
}

static void put_number(text_t *text, uint64_t number, unsigned base) {
  char digits[24];
  size_t at = sizeof digits;
  digits[--at] = 0;
  do digits[--at] = "0123456789abcdef"[number % base];
  while (number /= base);
  put(text, base == 16 ? "0x" : "");
  put(text, digits + at);
}

static void put_address(text_t *text, const void *address) { put_number(text, (uintptr_t)address, 16); }

/* ---- the report ------------------------------------------------------------------------------------------------- */

/* Returns "read", "written", or "accessed" if the processor's error code is not supported here. */
static const char *kind_of_access(const void *context) {
#if defined(__x86_64__)
  const ucontext_t *user = context;
  return user->uc_mcontext.gregs[REG_ERR] & 2 ? "written" : "read"; /* bit 1 of a page fault's error code: a write */
#else
  (void)context;
  return "accessed";
#endif
}

/* Writes the position of the address: in the memory, before or after it. */
static void put_place(text_t *text, const fake_segment_t *segment, const char *address, const char *start) {
  put(text, "  allocation: ");
  put_address(text, segment->base);
  put(text, ", ");
  put_number(text, segment->size, 10);
  put(text, " bytes; the access is ");
  if (address < start) {
    put_number(text, (uint64_t)(start - address), 10);
    put(text, " bytes before its beginning");
  } else if ((size_t)(address - start) >= segment->size) {
    put_number(text, (uint64_t)(address - start) - segment->size, 10);
    put(text, " bytes after its end");
  } else {
    put(text, "at offset ");
    put_number(text, (uint64_t)(address - start), 10);
  }
  put(text, "\n");
}

static void report(const fake_segment_t *segment, const char *address, const void *context) {
  /* Determines which of the two mappings was accessed: they are GUARD bytes apart, and half of that belongs to each. */
  const int in_work = address >= segment->work - FAKE_GUARD_BYTES / 2;
  const char *const kernel = fake_protect_running();
  text_t text = {.length = 0};
  put(&text, "fake: memory of device ");
  put_number(&text, (uint64_t)segment->device, 10);
  put(&text, " was ");
  put(&text, kind_of_access(context));
  put(&text, kernel ? " by kernel " : in_work ? " by a worker" : " by the host");
  put(&text, kernel ? kernel : "");
  put(&text, in_work  ? " out of bounds"
             : kernel ? " through an address that is not a pointer argument of its launch"
                      : "");
  put(&text, " (HAL_FAKE_PROTECT=1)\n  address: ");
  put_address(&text, address);
  put(&text, "\n");
  put_place(&text, segment, address, in_work ? segment->work : segment->base);
  const char *const last = atomic_load_explicit(&fake.devices[segment->device].last, memory_order_relaxed);
  put(&text, "  last work queued on the device: ");
  put(&text, last ? last : "none");
  put(&text, kernel || in_work ? "\n  check the pointers, sizes and strides of the launch\n"
                               : "\n  the host cannot access this device's memory: copy it first (hal_memory_copy, or "
                                 ".cpu() in torch)\n");
  ssize_t written = 0;
  for (size_t done = 0; done < text.length; done += (size_t)written) {
    written = write(STDERR_FILENO, text.data + done, text.length - done);
    if (written < 0) return;
  }
}

/* ---- the handler ------------------------------------------------------------------------------------------------ */

/* Continues as without this handler. */
static void pass_on(int which, int number, siginfo_t *info, void *context) {
  const struct sigaction *previous = &before[which];
  if (previous->sa_flags & SA_SIGINFO) {
    previous->sa_sigaction(number, info, context);
    return;
  }
  if (previous->sa_handler != SIG_DFL && previous->sa_handler != SIG_IGN) {
    previous->sa_handler(number);
    return;
  }
  /* With the default handler restored, the faulting instruction faults again and ends the process as usual. A fault
   * cannot be ignored. A signal that a process sent is not repeated, so it is raised again. */
  struct sigaction plain = {.sa_handler = SIG_DFL};
  if (info->si_code <= 0 && previous->sa_handler == SIG_IGN) return;
  sigaction(number, &plain, NULL);
  if (info->si_code <= 0) raise(number);
}

static void handle(int number, siginfo_t *info, void *context) {
  const int cause = errno;
  fake_segment_t segment;
  if (number == SIGSEGV && info->si_code > 0 && fake_ipc_wait_in_handler(info->si_addr)) {
    errno = cause;
    return; /* the instruction runs again */
  }
  /* si_code > 0: a fault of this thread, with a known address, not a signal from a process. */
  if (fake.settings.protect && info->si_code > 0 && fake_memory_find_in_handler(info->si_addr, &segment) == 1 &&
      segment.device >= 0)
    report(&segment, info->si_addr, context);
  errno = cause;
  pass_on(number == signals[0] ? 0 : 1, number, info, context);
}

hal_status_t fake_fault_install(void) {
  if (installed) return HAL_OK;
  struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < SIGNALS; i++)
    if (sigaction(signals[i], &action, &before[i]))
      return fake_error(HAL_INTERNAL, errno, "fake: HAL_FAKE_PROTECT=1 and ipc_export need a handler of signal %d: %s",
                        signals[i], strerror(errno));
  installed = 1;
  return HAL_OK;
}

void fake_fault_uninstall(void) {
  for (int i = 0; i < SIGNALS; i++) {
    struct sigaction now;
    /* A handler that was installed later stays installed, and calls this one, so this one must not be removed. */
    if (installed && !sigaction(signals[i], NULL, &now) && now.sa_flags & SA_SIGINFO && now.sa_sigaction == handle)
      sigaction(signals[i], &before[i], NULL);
  }
}
