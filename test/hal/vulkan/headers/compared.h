/* compared.h: sizes of structures and offsets of fields, as one of two headers declares them. */
#ifndef TEST_HAL_VULKAN_COMPARED_H_
#define TEST_HAL_VULKAN_COMPARED_H_

#include <stddef.h>

typedef struct compared_field_s {
  const char *structure, *field;
  size_t size, offset;
} compared_field_t;

typedef struct compared_number_s {
  const char *name;
  long number;
} compared_number_t;

/* Of vulkan_core.h; the arrays end with a name that is NULL. */
extern const compared_field_t khronos_fields[];
extern const compared_number_t khronos_numbers[];

#define COMPARED_FIELD(structure, field) {#structure, #field, sizeof(structure), offsetof(structure, field)},
#define COMPARED_NUMBER(name, number) {#name, (long)name},

#endif /* TEST_HAL_VULKAN_COMPARED_H_ */
