// views.h: views of lazy tensors in other shapes or dtypes. A wrapper always appears contiguous, so a program may
// request a view that the order of the wrapped tensor does not allow. For a tensor with visible strides, the program
// would have made a copy (reshape, contiguous); here the view is a copy.
#pragma once

#include <torch/library.h>

#include "lazy/direct.h"

namespace torch_backend {

// Registers the views for the device; `boxed` runs the calls that need no copy.
void register_lazy_views(torch::Library &library, BoxedWay boxed);

// The same for autograd, for which such a copy is not a view that shares writes with its base.
void register_lazy_view_copies(torch::Library &library);

}  // namespace torch_backend
