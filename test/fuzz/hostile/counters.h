/* counters.h: this process's counters of coverage. */
#ifndef TEST_FUZZ_COUNTERS_H_
#define TEST_FUZZ_COUNTERS_H_

#include <stddef.h>
#include <stdint.h>

/* Returns the counters, of which there are `*out_size`. */
const uint8_t *fuzz_counters(size_t *out_size);

#endif /* TEST_FUZZ_COUNTERS_H_ */
