"""Everyday operators whose kernels the tests of the fallback switch off; arithmetic, copies and fills keep theirs."""

OPERATORS = ("_index_put_impl_", "_nonzero_count", "cumprod", "cumsum", "fmod", "index", "index_put", "lerp", "native_layer_norm",
             "nonzero", "randperm", "remainder", "sort")  # fmt: skip
SETTING = {"HAL_DISABLE_OPS": ",".join(OPERATORS)}
