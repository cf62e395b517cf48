/* Tests that the declarations of the Vulkan plugin are those of Khronos' header, where that is installed. */
#include "../../../plugins/vulkan/vulkan_api.h"
#include "headers/compared.h"
#include "support.h"

#ifdef KHRONOS_HEADER
static const compared_field_t fields[] = {VULKAN_FIELDS(COMPARED_FIELD){NULL, NULL, 0, 0}};
static const compared_number_t numbers[] = {VULKAN_RESULTS(COMPARED_NUMBER) VULKAN_NUMBERS(COMPARED_NUMBER){NULL, 0}};
#endif

Test(vulkan_headers, structures_have_the_sizes_and_offsets_of_the_standard) {
#ifdef KHRONOS_HEADER
  for (size_t i = 0; fields[i].structure; i++) {
    cr_expect_eq(fields[i].size, khronos_fields[i].size, "%s has %zu bytes instead of %zu", fields[i].structure,
                 fields[i].size, khronos_fields[i].size);
    cr_expect_eq(fields[i].offset, khronos_fields[i].offset, "%s.%s is at %zu instead of %zu", fields[i].structure,
                 fields[i].field, fields[i].offset, khronos_fields[i].offset);
  }
#else
  cr_skip_test("no vulkan_core.h");
#endif
}

Test(vulkan_headers, numbers_are_those_of_the_standard) {
#ifdef KHRONOS_HEADER
  for (size_t i = 0; numbers[i].name; i++)
    cr_expect_eq(numbers[i].number, khronos_numbers[i].number, "%s is %ld instead of %ld", numbers[i].name,
                 numbers[i].number, khronos_numbers[i].number);
#else
  cr_skip_test("no vulkan_core.h");
#endif
}
