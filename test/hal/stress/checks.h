/* checks.h: checks in the threads of a stress program: a failure is printed and counted, and the program continues. */
#ifndef CHECKS_H_
#define CHECKS_H_

#include <hal/status.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int mistakes;

#define CHECK(condition)                                                                       \
  do {                                                                                         \
    if (!(condition)) {                                                                        \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, hal_error_message()); \
      atomic_fetch_add(&mistakes, 1);                                                          \
    }                                                                                          \
  } while (0)
#define CHECK_OK(call) CHECK((call) == HAL_OK)

#endif /* CHECKS_H_ */
