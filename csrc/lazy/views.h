// views.h: views of lazy tensors in other shapes or dtypes. A wrapper always looks contiguous, so a program may ask for a view that the order of what it
// wraps does not allow, where a tensor that shows its strides would have been copied before (reshape, contiguous): it gets a copy.
#pragma once

#include <torch/library.h>

#include "lazy/direct.h"

namespace torch_backend {

// Registers them, for the device; `boxed` answers what is no copy.
void register_lazy_views(torch::Library &library, BoxedWay boxed);

// The same for autograd, to which such a copy is none of the views whose base is written with them.
void register_lazy_view_copies(torch::Library &library);

}  // namespace torch_backend
