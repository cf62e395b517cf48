/* api.h: linkage and attributes of the HAL's public functions. */
#ifndef HAL_API_H_
#define HAL_API_H_

#if defined(__GNUC__)
#define HAL_API __attribute__((visibility("default")))
#define HAL_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))
/* For functions that report a failure only once: the compiler warns if the result is not used. */
#define HAL_MUST_USE __attribute__((warn_unused_result))
#else
#define HAL_API
#define HAL_MUST_USE
#define HAL_PRINTF(text, first)
#endif

#endif /* HAL_API_H_ */
