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
  const bool down = is_on("XLA_USE_BF16") || is_on("LTC_DOWNCAST_BF16") || is_on("XLA_DOWNCAST_BF16");
  if (is_on("LTC_USE_BF16")) return {c10::kBFloat16, c10::kBFloat16};
  if (down) return {c10::kBFloat16, c10::kFloat};
  return {c10::kFloat, has_double ? c10::kDouble : c10::kFloat};
}

const LazyDtypes &lazy_dtypes() { return current; }

void set_lazy_dtypes(const LazyDtypes &dtypes) { current = dtypes; }

}  // namespace torch_backend
