// compat.h: every line of csrc/ that depends on torch's version. Window: 2.11 to 2.15; supported now: 2.13.
#pragma once

#include <torch/headeronly/version.h>

#define TORCH_BACKEND_TORCH_VERSION (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)
