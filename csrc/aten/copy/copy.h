// copy.h: copies between tensors of one shape, by their devices. `raw` copies move elements of one size in their memory
// order and ignore dtype, conjugate and negative bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <memory>

#include "aten/prepare/op_call.h"
#include "core/graph/graph.h"

namespace torch_backend {

// Returns whether both are dense in memory in the same order, so that their bytes can be copied as one range.
inline bool same_dense_layout(const at::Tensor &a, const at::Tensor &b) {
  return a.sizes() == b.sizes() &&
         ((a.is_contiguous() && b.is_contiguous()) ||
          (a.strides() == b.strides() && a.is_non_overlapping_and_dense() && b.is_non_overlapping_and_dense()));
}

inline bool same_bits(const at::Tensor &a, const at::Tensor &b) {
  return a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

// Returns whether `a` and `b` store values in the same way.
inline bool same_elements(const at::Tensor &a, const at::Tensor &b) {
  return a.scalar_type() == b.scalar_type() && same_bits(a, b);
}

inline bool has_bits(const at::Tensor &tensor) { return tensor.is_conj() || tensor.is_neg(); }

// Returns the address of the first element.
inline char *address_of(const at::Tensor &tensor) { return static_cast<char *>(describe(tensor).data); }

// Converts stored elements into those of a tensor with the conjugate and negative bits of `like`, or back.
void apply_bits(const at::Tensor &elements, const at::Tensor &like);

// Copies between device tensors on one device, with elements of one size.
void copy_raw(const at::Tensor &src, const at::Tensor &dst);

// Copies between device tensors on one device, with any dtypes and bits.
void copy_on_device(const at::Tensor &src, const at::Tensor &dst);

// Copies into the elements of `dst` that begin at `begin` along `dim`; they have the sizes of `src`.
void copy_into_part(const at::Tensor &src, const at::Tensor &dst, int64_t dim, int64_t begin);

// Copies between device tensors on two devices, with any dtypes and bits.
void copy_across_devices(const at::Tensor &src, const at::Tensor &dst);

// Memory allocated by malloc.
using HostBuffer = std::unique_ptr<void, decltype(&std::free)>;
HostBuffer host_buffer(size_t nbytes);

// Queues the upload of a whole buffer into `dst`, a contiguous tensor of the same size in bytes, and frees the buffer
// when it is done.
void upload_buffer(HostBuffer buffer, const at::Tensor &dst);

// Copies from the host; `src` may broadcast to `dst`. Blocks unless `non_blocking` and the host memory is pinned.
void copy_from_host(const at::Tensor &src, const at::Tensor &dst, bool non_blocking);
void copy_to_host(const at::Tensor &src, const at::Tensor &dst, bool non_blocking);

}  // namespace torch_backend
