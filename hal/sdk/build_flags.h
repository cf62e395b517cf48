/* build_flags.h: how the including file was compiled, as HAL_BUILD_* bits. entry.c is compiled with each plugin, so
 * that the bits are the plugin's and not the archive's; the host compares them with those that the process supports. */
#ifndef HAL_SDK_BUILD_FLAGS_H_
#define HAL_SDK_BUILD_FLAGS_H_

#include "hal/plugin.h"

#if defined(__has_feature) /* clang */
#define HAL_HAS_FEATURE(x) __has_feature(x)
#else
#define HAL_HAS_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || HAL_HAS_FEATURE(address_sanitizer)
#define HAL_BUILD_FLAG_ASAN HAL_BUILD_ASAN
#else
#define HAL_BUILD_FLAG_ASAN UINT64_C(0)
#endif

#if defined(__SANITIZE_THREAD__) || HAL_HAS_FEATURE(thread_sanitizer)
#define HAL_BUILD_FLAG_TSAN HAL_BUILD_TSAN
#else
#define HAL_BUILD_FLAG_TSAN UINT64_C(0)
#endif

#if defined(NDEBUG)
#define HAL_BUILD_FLAG_DEBUG UINT64_C(0)
#else
#define HAL_BUILD_FLAG_DEBUG HAL_BUILD_DEBUG
#endif

#ifndef HAL_BUILD_FLAGS
#define HAL_BUILD_FLAGS (HAL_BUILD_FLAG_ASAN | HAL_BUILD_FLAG_TSAN | HAL_BUILD_FLAG_DEBUG)
#endif

#endif /* HAL_SDK_BUILD_FLAGS_H_ */
