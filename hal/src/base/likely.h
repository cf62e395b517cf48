/* likely.h: branch prediction hints. Private to hal/src. */
#ifndef HAL_SRC_LIKELY_H_
#define HAL_SRC_LIKELY_H_

#define HAL_LIKELY(x) __builtin_expect(!!(x), 1)
#define HAL_UNLIKELY(x) __builtin_expect(!!(x), 0)

#endif /* HAL_SRC_LIKELY_H_ */
