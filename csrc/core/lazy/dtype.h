// dtype.h: what lazy tensors compute in, which may be narrower than the dtype that they say: LTC_USE_BF16, LTC_USE_32BIT_LONG and their kind.
#pragma once

#include <c10/core/ScalarType.h>

namespace torch_backend {

struct LazyDtypes {
  c10::ScalarType of_float = c10::kFloat, of_double = c10::kDouble, of_long = c10::kLong;

  // What a dtype is computed in.
  c10::ScalarType physical(c10::ScalarType said) const {
    return said == c10::kFloat ? of_float : said == c10::kDouble ? of_double : said == c10::kLong ? of_long : said;
  }
  bool narrows() const { return of_float != c10::kFloat || of_double != c10::kDouble || of_long != c10::kLong; }
};

// Reads the environment: LTC_USE_BF16=1, float and double are bfloat16; XLA_USE_BF16=1, LTC_DOWNCAST_BF16=1 or XLA_DOWNCAST_BF16=1, float is bfloat16 and
// double float. Else what they say, but double is float on devices without double. LTC_USE_32BIT_LONG=1 or XLA_USE_32BIT_LONG=1: long is int. Throws for other values than 0 and 1.
LazyDtypes lazy_dtypes_wanted(bool has_double);

// Those of this process, which the first lazy tensor's device decides.
const LazyDtypes &lazy_dtypes();
void set_lazy_dtypes(const LazyDtypes &dtypes);

}  // namespace torch_backend
