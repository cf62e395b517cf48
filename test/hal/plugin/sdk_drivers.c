/* Tests of the SDK's helpers for plugins that use drivers: profile records (plugin_records.h), sealed binaries
 * (plugin_binary.h) and SPIR-V (plugin_spirv.h). */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <hal/plugin_binary.h>
#include <hal/plugin_records.h>
#include <hal/plugin_spirv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char message[2048];
static hal_status_t error_set(hal_status_t code, int64_t native_code, const char *text) {
  (void)native_code;
  snprintf(message, sizeof message, "%s", text);
  return code;
}
static void *mem_alloc(size_t size, size_t alignment) {
  (void)alignment;
  return malloc(size);
}
static uint64_t correlation(void) { return 42; }
static const hal_host_api_t host = {.struct_size = sizeof host,
                                    .error_set = error_set,
                                    .mem_alloc = mem_alloc,
                                    .mem_free = free,
                                    .profile_correlation = correlation};
static void begin(void) { hal_host = &host; }
TestSuite(drivers, .init = begin, .timeout = 60);

/* ---- records ---- */

typedef struct seen_s {
  uint64_t count, lost, sum;
} seen_t;

static void look(void *user_data, const hal_profile_record_t *record) {
  seen_t *const seen = user_data;
  if (record->kind == HAL_PROFILE_LOST)
    seen->lost += record->bytes;
  else
    seen->count++, seen->sum += record->bytes;
}

Test(drivers, records_of_the_running_collection_are_read_once_and_dropped_ones_are_counted) {
  static hal_records_t records = {.lock = PTHREAD_MUTEX_INITIALIZER};
  enum { MOST = 1 << 18, MORE = 5 };
  uint64_t number = 0;
  seen_t seen = {0};
  hal_profile_record_t record = {.struct_size = sizeof record, .name = "k", .bytes = 1};
  cr_assert_eq(hal_records_note(&records, &number), 0);
  cr_assert_eq(number, 0);
  hal_records_enable(&records, 1);
  const uint32_t noted = hal_records_note(&records, &number);
  cr_assert_neq(noted, 0);
  cr_assert_eq(number, 42);
  for (int i = 0; i < MOST + MORE; i++) hal_records_append(&records, noted, &record);
  hal_records_enable(&records, 0);
  hal_records_append(&records, noted, &record); /* ended late; the buffer is full */
  hal_records_read(&records, look, &seen);
  cr_assert_eq(seen.count, MOST);
  cr_assert_eq(seen.sum, MOST);
  cr_assert_eq(seen.lost, MORE + 1);
  hal_records_enable(&records, 1);
  hal_records_append(&records, noted, &record); /* of the collection before */
  seen = (seen_t){0};
  hal_records_read(&records, look, &seen);
  cr_assert_eq(seen.count + seen.lost, 0);
}

/* ---- sealed binaries ---- */

Test(drivers, a_binary_is_opened_by_its_maker_and_no_flipped_or_missing_byte_passes) {
  unsigned char data[HAL_BINARY_SEAL + 16];
  const void *inside = NULL;
  size_t size = 0;
  hal_module_desc_t desc = {.struct_size = sizeof desc, .dialect = "binary", .data = data, .size = sizeof data};
  memcpy(data + HAL_BINARY_SEAL, "0123456789abcdef", 16);
  hal_binary_seal(data, 16, "'Device 9' (driver 1)");
  cr_assert_eq(hal_binary_open("mine", &desc, "'Device 9' (driver 1)", &inside, &size), HAL_OK);
  cr_assert(size == 16 && memcmp(inside, "0123456789abcdef", 16) == 0);
  cr_assert_eq(hal_binary_open("mine", &desc, "'Device 9' (driver 2)", &inside, &size), HAL_INVALID_ARGUMENT);
  cr_assert(strstr(message, "(driver 1)") && strstr(message, "(driver 2)"), "%s", message);
  for (size_t i = 0; i < sizeof data; i++) {
    if (i >= 24 + 22 && i < HAL_BINARY_SEAL) continue; /* after the end of the maker's name */
    data[i] ^= 4;
    cr_assert_eq(hal_binary_open("mine", &desc, "'Device 9' (driver 1)", &inside, &size), HAL_INVALID_ARGUMENT, "%zu",
                 i);
    data[i] ^= 4;
  }
  for (desc.size = 0; desc.size < sizeof data; desc.size++)
    cr_assert_eq(hal_binary_open("mine", &desc, "'Device 9' (driver 1)", &inside, &size), HAL_INVALID_ARGUMENT);
}

/* ---- SPIR-V ---- */

#define OP(code, length) ((length) << 16 | (code))

/* A kernel "k" of a global pointer, an int, a struct by value, local memory and a float3; written by hand from the
   specification. */
static const uint32_t module[] = {0x07230203, 0x10200, 0,  20,        0, /* magic, version, generator, bound */
                                  OP(15, 4),  6,       10, 'k',          /* OpEntryPoint Kernel %10 "k" */
                                  OP(21, 4),  1,       32, 0,            /* %1 = int */
                                  OP(22, 3),  2,       32,               /* %2 = float */
                                  OP(23, 4),  3,       2,  3,            /* %3 = float3 */
                                  OP(32, 4),  4,       5,  2,            /* %4 = float *, CrossWorkgroup */
                                  OP(30, 3),  5,       1,                /* %5 = struct */
                                  OP(32, 4),  6,       7,  5,            /* %6 = %5 *, Function */
                                  OP(32, 4),  7,       4,  2,            /* %7 = float *, Workgroup */
                                  OP(54, 5),  8,       9,  0,         9, /* another function, with its own parameters */
                                  OP(55, 3),  1,       11, OP(54, 5), 8, 10, 0,         9, /* and the kernel */
                                  OP(55, 3),  4,       12, OP(55, 3), 1, 13, OP(55, 3), 6, 14,
                                  OP(55, 3),  7,       15, OP(55, 3), 3, 16};
enum { WORDS = sizeof module / sizeof *module };

Test(drivers, spirv_reports_the_parameters_of_a_kernel) {
  static const uint32_t kinds[] = {HAL_ARG_POINTER, HAL_ARG_VALUE, HAL_ARG_VALUE, HAL_ARG_LOCAL, HAL_ARG_VALUE};
  static const uint32_t sizes[] = {sizeof(void *), 4, 0, 0, 16};
  hal_spirv_signature_t signature;
  cr_assert(hal_spirv_signature(module, WORDS, "k", &signature));
  cr_assert_eq(signature.count, 5);
  for (int i = 0; i < 5; i++) {
    cr_assert_eq(signature.kinds[i], kinds[i], "argument %d", i);
    cr_assert_eq(signature.sizes[i], sizes[i], "argument %d", i);
  }
  cr_assert_str_eq(hal_spirv_kernel_name(module, WORDS, 0), "k");
  cr_assert_null(hal_spirv_kernel_name(module, WORDS, 1));
  cr_assert_not(hal_spirv_signature(module, WORDS, "kk", &signature));
}

Test(drivers, damaged_spirv_is_read_within_its_words) {
  hal_spirv_signature_t signature;
  for (size_t count = 0; count <= WORDS;
       count++) { /* each in memory of its exact size, so that sanitizers detect an access past the end */
    uint32_t *const part = calloc(count ? count : 1, sizeof *part);
    memcpy(part, module, count * sizeof *part);
    hal_spirv_signature(part, count, "k", &signature);
    hal_spirv_kernel_name(part, count, 0);
    for (size_t i = 0; i < count; i++)
      for (int bit = 0; bit < 32; bit += 5) {
        part[i] ^= 1u << bit;
        hal_spirv_signature(part, count, "k", &signature);
        hal_spirv_kernel_name(part, count, 1);
        part[i] ^= 1u << bit;
      }
    free(part);
  }
}
