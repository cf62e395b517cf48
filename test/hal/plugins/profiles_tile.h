/* profiles_tile.h: reads from the arguments of a launch how it divides its work; for profiles.c. */
#ifndef TEST_PROFILES_TILE_H_
#define TEST_PROFILES_TILE_H_

#include <hal/plugin.h>
#include <stdio.h>
#include <string.h>

#include "ops/attention/attention_args.h"
#include "ops/convolution/convolution_args.h"
#include "ops/gemm/gemm_args.h"
#include "ops/index/index_args.h"

/* The struct among the arguments, which is identified by its size; NULL = there is none. */
static const void *profile_argument(const hal_launch_t *launch, size_t size) {
  for (uint32_t i = 0; i < launch->arg_count; i++)
    if (launch->args[i].kind == HAL_ARG_VALUE && launch->args[i].size == size) return launch->args[i].value;
  return NULL;
}

static void profile_tile(const char *kernel, const hal_launch_t *launch, char *text, size_t size) {
  const pk_gemm_t *const product = profile_argument(launch, sizeof *product);
  const pk_conv_t *const images = profile_argument(launch, sizeof *images);
  const pk_attention_t *const heads = profile_argument(launch, sizeof *heads);
  const pk_scatter_t *const runs = profile_argument(launch, sizeof *runs);
  text[0] = 0;
  if (product && strncmp(kernel, "gemm_", 5) == 0 && !strstr(kernel, "_vector"))
    snprintf(text, size, ", tiles of %lld x %lld, %lld parts", (long long)product->tiles.tile_m,
             (long long)product->tiles.tile_n, (long long)(product->parts > 0 ? product->parts : 1));
  else if (images && strncmp(kernel, "convolution_", 12) == 0)
    snprintf(text, size, ", tiles of %lld x %lld", (long long)images->tiles.tile_m, (long long)images->tiles.tile_n);
  else if (heads && strncmp(kernel, "attention", 9) == 0)
    snprintf(text, size, ", blocks of %lld queries", (long long)heads->block);
  else if (runs && strncmp(kernel, "scatter", 7) == 0)
    snprintf(text, size, ", chunks of %lld", (long long)runs->chunk);
}

#endif /* TEST_PROFILES_TILE_H_ */
