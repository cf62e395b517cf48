// dtype.h: the dtype in which lazy tensors are computed, which may be narrower than the dtype that they report:
// LTC_USE_BF16, LTC_USE_32BIT_LONG and similar settings.
#pragma once

#include <c10/core/ScalarType.h>

namespace torch_backend {

struct LazyDtypes {
  c10::ScalarType of_float = c10::kFloat, of_double = c10::kDouble, of_long = c10::kLong;

  // Returns the dtype in which a reported dtype is computed.
  c10::ScalarType physical(c10::ScalarType reported) const {
    return reported == c10::kFloat    ? of_float
           : reported == c10::kDouble ? of_double
           : reported == c10::kLong   ? of_long
                                      : reported;
  }
  bool narrows() const { return of_float != c10::kFloat || of_double != c10::kDouble || of_long != c10::kLong; }
};

// Reads the environment. LTC_USE_BF16=1: float and double are computed as bfloat16. XLA_USE_BF16=1, LTC_DOWNCAST_BF16=1
// or XLA_DOWNCAST_BF16=1: float as bfloat16 and double as float. Otherwise as reported, but double as float on devices
// without double. LTC_USE_32BIT_LONG=1 or XLA_USE_32BIT_LONG=1: long as int. Throws for other values than 0 and 1.
LazyDtypes lazy_dtypes_wanted(bool has_double);

// Returns the dtypes of this process, which the first lazy tensor's device determines.
const LazyDtypes &lazy_dtypes();
void set_lazy_dtypes(const LazyDtypes &dtypes);

}  // namespace torch_backend
