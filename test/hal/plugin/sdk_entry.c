/* Tests of the plugin's side of the negotiation: hal_plugin_entry of the SDK with plugins/five.c, linked into this
 * program. */
#include <criterion/criterion.h>
#include <hal/plugin.h>
#include <stdlib.h>
#include <string.h>

static hal_status_t error_set(hal_status_t code, int64_t native_code, const char *message) {
  (void)native_code, (void)message;
  return code;
}
static void *mem_alloc(size_t size, size_t alignment) {
  (void)alignment;
  return malloc(size);
}

static const hal_host_api_t host = {.struct_size = sizeof host,
                                    .major = HAL_ABI_MAJOR,
                                    .minor = HAL_ABI_MINOR,
                                    .error_set = error_set,
                                    .mem_alloc = mem_alloc,
                                    .mem_free = free};

enum { FIRST_SLOT = offsetof(hal_plugin_api_t, info), SLOT_SIZE = sizeof(void (*)(void)) };

Test(entry, writes_whole_slots_only_and_never_past_the_hosts_table) {
  int accepted = 0;
  for (size_t size = sizeof(size_t); size < sizeof(hal_plugin_api_t) + 256; size++) {
    hal_plugin_api_t *api = malloc(size); /* exact size, so that the address sanitizer detects one byte too many */
    cr_assert_not_null(api);
    memset(api, 0xA5, size);
    memcpy(api, &size, sizeof size);
    const hal_status_t status = hal_plugin_entry(&host, api);
    cr_assert_eq(status, size < FIRST_SLOT ? HAL_INCOMPATIBLE : HAL_OK, "size %zu", size);
    size_t wrote;
    memcpy(&wrote, api, sizeof wrote);
    if (!status) {
      cr_assert_leq(wrote, size);
      cr_assert_leq(wrote, sizeof(hal_plugin_api_t));
      cr_assert_eq((wrote - FIRST_SLOT) % SLOT_SIZE, 0, "size %zu", size);
      for (size_t i = wrote; i < size; i++) cr_assert_eq(((const uint8_t *)api)[i], 0xA5, "byte %zu of %zu", i, size);
      accepted++;
    } else {
      cr_assert_eq(wrote, size, "nothing is written on refusal");
    }
    free(api);
  }
  cr_assert_gt(accepted, 500);
}

Test(entry, provided_names_the_authors_functions_among_the_slots_written) {
  hal_plugin_api_t api = {.struct_size = sizeof api};
  cr_assert_eq(hal_plugin_entry(&host, &api), HAL_OK);
  int provided = 0, slot = 0;
#define HAL_OP(since, kind, group, need, name, params, args)                               \
  cr_expect_eq((int)(api.provided[slot / 64] >> (slot % 64) & 1), #kind[0] == 'M', #name); \
  provided += (int)(api.provided[slot / 64] >> (slot % 64) & 1);                           \
  slot++;
#include <hal/plugin_ops.def>
#undef HAL_OP
  cr_assert_eq(provided, 5);
  api = (hal_plugin_api_t){.struct_size = FIRST_SLOT + SLOT_SIZE};
  cr_assert_eq(hal_plugin_entry(&host, &api), HAL_OK);
  cr_assert_eq(api.provided_words, (size_t)(slot + 63) / 64);
  for (uint64_t word = 0; word < api.provided_words; word++) cr_assert_eq(api.provided[word], word == 0);
}

Test(entry, minors_from_the_oldest_supported_one_on_are_accepted_and_older_ones_get_the_plugins) {
  for (uint32_t minor = 0; minor < HAL_ABI_MINOR + 3; minor++) {
    hal_plugin_api_t api = {.struct_size = sizeof api};
    hal_host_api_t other = host;
    other.minor = minor;
    cr_assert_eq(hal_plugin_entry(&other, &api), minor < HAL_ABI_MINOR_OLDEST ? HAL_INCOMPATIBLE : HAL_OK);
    cr_assert_eq(api.major, HAL_ABI_MAJOR);
    cr_assert_eq(api.minor, HAL_ABI_MINOR);
    cr_assert_eq(api.memory_copy == NULL, minor < HAL_ABI_MINOR_OLDEST);
  }
}

/* A struct of an older version, and the memory after it. */
typedef struct older_s {
  size_t struct_size;
  int32_t first;
  int32_t behind;
} older_t;

Test(growing, a_field_is_written_only_where_the_struct_of_the_other_side_has_it) {
  older_t older = {.struct_size = HAL_STRUCT_SIZE(older_t, first), .behind = 7};
  cr_assert(HAL_HAS_FIELD(&older, first));
  cr_assert_not(HAL_HAS_FIELD(&older, behind));
  HAL_SET_FIELD(&older, first, 1);
  HAL_SET_FIELD(&older, behind, 2);
  cr_assert_eq(older.first, 1);
  cr_assert_eq(older.behind, 7);
  older.struct_size = sizeof older;
  HAL_SET_FIELD(&older, behind, 2);
  cr_assert_eq(older.behind, 2);
}

Test(entry, refuses_other_majors_and_short_hosts) {
  hal_plugin_api_t api = {.struct_size = sizeof api};
  hal_host_api_t other = host;
  for (uint32_t major = 0; major < 4; major++) {
    other.major = major;
    api.struct_size = sizeof api;
    cr_assert_eq(hal_plugin_entry(&other, &api), major == HAL_ABI_MAJOR ? HAL_OK : HAL_INCOMPATIBLE);
  }
  other = host;
  other.struct_size = offsetof(hal_host_api_t, extensions);
  cr_assert_eq(hal_plugin_entry(&other, &api), HAL_INCOMPATIBLE);
  cr_assert_eq(hal_plugin_entry(NULL, &api), HAL_INCOMPATIBLE);
  cr_assert_eq(hal_plugin_entry(&host, NULL), HAL_INCOMPATIBLE);
}

Test(entry, reports_the_plugins_own_build_flags) {
  hal_plugin_api_t api = {.struct_size = sizeof api};
  cr_assert_eq(hal_plugin_entry(&host, &api), HAL_OK);
#if defined(__SANITIZE_ADDRESS__)
  cr_assert(api.build_flags & HAL_BUILD_ASAN);
#else
  cr_assert_not(api.build_flags & HAL_BUILD_ASAN);
#endif
}
