// columns.h: the windows of a convolution as columns of a matrix, and back.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_backend {

// The windows that slide over the spatial dimensions of an image (batch, channel, ...); `count` of them per dimension.
struct Windows {
  c10::IntArrayRef count, size, dilation, pad, step;
};

// Writes the matrix (batch, channel x place in the window, window) of an image, whose columns have stride 1. false = no
// kernel for the dtype.
bool unfold_windows(const at::Tensor &image, const Windows &windows, const at::Tensor &matrix);

// Writes the image in which each place sums what the windows of the matrix have there.
bool fold_windows(const at::Tensor &matrix, const Windows &windows, const at::Tensor &image);

}  // namespace torch_backend
