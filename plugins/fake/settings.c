/* settings.c: the environment variables of the fake plugin. They are read once. An invalid value is an error that names
 * the variable, the value and the valid values; it never has a silent default. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <hal/plugin_setting.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sanitize/sanitize.h"

/* Reads an integer in [least, most]; `fallback` if the variable is unset or empty. */
static hal_status_t read_number(const char *variable, uint64_t least, uint64_t most, uint64_t fallback,
                                uint64_t *out_value) {
  const char *text = hal_setting(variable);
  if (!text || !*text) {
    *out_value = fallback;
    return HAL_OK;
  }
  char *end = NULL;
  errno = 0;
  const unsigned long long value = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
  if (!end || *end || errno || value < least || value > most)
    return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: %s is '%s'; set it to an integer from %llu to %llu, or unset it",
                      variable, text, (unsigned long long)least, (unsigned long long)most);
  *out_value = value;
  return HAL_OK;
}

/* Reads a number of bytes, with K, M, G or T for powers of 1024. */
static hal_status_t read_size(const char *variable, uint64_t least, uint64_t fallback, uint64_t *out_value) {
  const char *text = hal_setting(variable);
  if (!text || !*text) {
    *out_value = fallback;
    return HAL_OK;
  }
  static const char units[] = "kmgt";
  char *end = NULL;
  errno = 0;
  uint64_t value = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
  int bad = !end || errno;
  if (!bad && *end) {
    const char *unit = strchr(units, tolower((unsigned char)*end));
    bad = !unit || end[1] || __builtin_mul_overflow(value, UINT64_C(1024) << (10 * (unit - units)), &value);
  }
  if (bad || value < least)
    return fake_error(HAL_INVALID_ARGUMENT, 0,
                      "fake: %s is '%s'; set it to a number of bytes, at least %llu, such as 512M or 4G, or unset it",
                      variable, text, (unsigned long long)least);
  *out_value = value;
  return HAL_OK;
}

/* Reads the C compiler: a program, and words before its options; set and empty: none. */
static hal_status_t read_compiler(char *compiler, size_t room) {
  const char *text = hal_setting("HAL_FAKE_CC");
  if (!text) text = "cc";
  if ((size_t)snprintf(compiler, room, "%s", text + strspn(text, " ")) < room) return HAL_OK;
  return fake_error(
      HAL_INVALID_ARGUMENT, 0,
      "fake: HAL_FAKE_CC is '%.60s ...', longer than %zu bytes; set it to a C compiler such as gcc, to nothing "
      "for none, or unset it",
      text, room - 1);
}

hal_status_t fake_settings_devices(int32_t *out_count) {
  /* The result must not change within a process; two threads at the same time read the same value */
  static atomic_int kept;
  int count = atomic_load_explicit(&kept, memory_order_relaxed);
  if (!count) {
    uint64_t value = 0;
    const hal_status_t status = read_number("HAL_FAKE_DEVICES", 1, FAKE_MAX_DEVICES, 1, &value);
    if (status) return status;
    count = (int)value;
    atomic_store_explicit(&kept, count, memory_order_relaxed);
  }
  *out_count = count;
  return HAL_OK;
}

/* Returns the number of cores that this process may use, which may be fewer than the machine's under taskset or in a
 * container. */
static uint32_t core_count(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return (uint32_t)CPU_COUNT(&set);
  const long online = sysconf(_SC_NPROCESSORS_ONLN); /* affinity masks of more than 1024 CPUs */
  return online > 0 ? (uint32_t)online : 1;
}

static uint64_t machine_memory(void) {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
}

/* Reads a list of classes. */
static hal_status_t read_classes(uint32_t *out_classes) {
  static const struct {
    const char *name;
    uint32_t class;
  } classes[] = {{"memory", FAKE_SANITIZE_MEMORY},
                 {"init", FAKE_SANITIZE_INIT},
                 {"leak", FAKE_SANITIZE_LEAK},
                 {"race", FAKE_SANITIZE_RACE}};
  const char *const text = hal_setting("HAL_FAKE_SANITIZE");
  *out_classes = 0;
  for (const char *at = text ? text : ""; *at;) {
    const size_t length = strcspn(at, ",");
    size_t i = 0;
    while (i < sizeof classes / sizeof *classes &&
           (strlen(classes[i].name) != length || memcmp(classes[i].name, at, length) != 0))
      i++;
    if (i == sizeof classes / sizeof *classes)
      return fake_error(
          HAL_INVALID_ARGUMENT, 0,
          "fake: HAL_FAKE_SANITIZE is '%s'; set it to classes separated by commas: memory, init, leak and race, "
          "or unset it",
          text);
    *out_classes |= classes[i].class;
    at += length;
    if (*at == ',') at++;
  }
  return HAL_OK;
}

/* Reads the variables of the sanitizer. */
static hal_status_t read_sanitize(uint64_t protect, fake_sanitize_settings_t *out_sanitize) {
  uint64_t raises = 0, exit_code = 0, limit = 0, quarantine = 0;
  *out_sanitize = (fake_sanitize_settings_t){.classes = 0};
  hal_status_t status = read_classes(&out_sanitize->classes);
  if (!status) status = read_number("HAL_FAKE_SANITIZE_RAISE", 0, 1, 0, &raises);
  if (!status) status = read_number("HAL_FAKE_SANITIZE_EXIT_CODE", 0, 255, 0, &exit_code);
  if (!status) status = read_number("HAL_FAKE_SANITIZE_REPORTS", 1, UINT32_MAX, 100, &limit);
  if (!status) status = read_size("HAL_FAKE_SANITIZE_QUARANTINE", 0, UINT64_C(256) << 20, &quarantine);
  if (!status && out_sanitize->classes && protect)
    status = fake_error(HAL_INVALID_ARGUMENT, 0,
                        "fake: HAL_FAKE_SANITIZE and HAL_FAKE_PROTECT=1 exclude each other; unset one of them");
  out_sanitize->raises = (uint32_t)raises;
  out_sanitize->exit_code = (uint32_t)exit_code;
  out_sanitize->limit = limit;
  out_sanitize->quarantine = quarantine;
  return status;
}

hal_status_t fake_settings_read(fake_settings_t *out_settings, fake_sanitize_settings_t *out_sanitize) {
  const uint32_t cores = core_count() < FAKE_MAX_THREADS ? core_count() : FAKE_MAX_THREADS;
  uint64_t async = 0, delay = 0, threads = 0, memory = 0, fault = 0, protect = 0, profile = 0;
  uint64_t grid = 0, numbered = 0, first = 0, binding = 0, alignment = 0;
  hal_status_t status = read_number("HAL_FAKE_ASYNC", 0, 1, 1, &async);
  if (!status) status = read_number("HAL_FAKE_DELAY", 0, 1000000, 0, &delay);
  if (!status) status = read_number("HAL_FAKE_THREADS", 1, FAKE_MAX_THREADS, cores, &threads);
  if (!status) status = read_number("HAL_FAKE_FAULT", 0, UINT64_MAX, 0, &fault);
  if (!status) status = read_number("HAL_FAKE_PROTECT", 0, 1, 0, &protect);
  if (!status) status = read_number("HAL_FAKE_PROFILE", 1, UINT64_C(1) << 30, UINT64_C(1) << 18, &profile);
  if (!status) status = read_number("HAL_FAKE_GRID", 1, UINT32_MAX, 0, &grid);
  if (!status) status = read_number("HAL_FAKE_MAX_THREADS", 1, UINT64_MAX, 0, &numbered);
  if (!status) status = read_number("HAL_FAKE_BINDING_ALIGNMENT", 1, 4096, 1, &alignment);
  if (!status && alignment & (alignment - 1))
    status = fake_error(HAL_INVALID_ARGUMENT, 0,
                        "fake: HAL_FAKE_BINDING_ALIGNMENT is %llu; set it to a power of two up to 4096, or unset it",
                        (unsigned long long)alignment);
  if (!status) status = read_number("HAL_FAKE_MAX_BINDING", 1, UINT64_MAX, 0, &binding);
  if (!status) status = read_number("HAL_FAKE_FIRST_BLOCK", 0, 1, 1, &first);
  if (!status) status = read_sanitize(protect, out_sanitize);
  if (!status) status = read_size("HAL_FAKE_MEMORY", 4096, machine_memory(), &memory);
  if (status) return status;
  *out_settings = (fake_settings_t){.memory = memory,
                                    .fault = fault,
                                    .profile = profile,
                                    .async = (uint32_t)async,
                                    .delay_us = (uint32_t)delay,
                                    .threads = (uint32_t)threads,
                                    .protect = (uint32_t)protect,
                                    .sanitize = out_sanitize->classes,
                                    .watched = protect || out_sanitize->classes,
                                    .grid = (uint32_t)grid,
                                    .first = (uint32_t)first,
                                    .numbered = numbered,
                                    .binding = binding,
                                    .limited = grid || numbered || alignment > 1,
                                    .alignment = (uint32_t)alignment};
  return read_compiler(out_settings->compiler, sizeof out_settings->compiler);
}
