// dtype.cpp: see dtype.h.
#include "core/lazy/dtype.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <string>

namespace torch_backend {
namespace {

LazyDtypes current;

bool is_on(const char *name) {
  const char *const value = std::getenv(name);
  const std::string text = value ? value : "";
  TORCH_CHECK_VALUE(text.empty() || text == "0" || text == "1", name, "=", text, ": expected 0 or 1");
  return text == "1";
}

}  // namespace

LazyDtypes lazy_dtypes_wanted(bool has_double) {
  LazyDtypes wanted;
  const bool down = is_on("XLA_USE_BF16") || is_on("LTC_DOWNCAST_BF16") || is_on("XLA_DOWNCAST_BF16");
  if (is_on("LTC_USE_32BIT_LONG") || is_on("XLA_USE_32BIT_LONG")) wanted.of_long = c10::kInt;
  if (down || !has_double) wanted.of_double = c10::kFloat;
  if (down) wanted.of_float = c10::kBFloat16;
  if (is_on("LTC_USE_BF16")) wanted.of_float = wanted.of_double = c10::kBFloat16;
  return wanted;
}

const LazyDtypes &lazy_dtypes() { return current; }

void set_lazy_dtypes(const LazyDtypes &dtypes) { current = dtypes; }

}  // namespace torch_backend
