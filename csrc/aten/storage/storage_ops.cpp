// storage_ops.cpp: operators on a tensor's storage: resize_, set_, record_stream, and whether `.data` may be swapped.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/Context.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/set_native.h>
#include <torch/library.h>

#include "aten/fallback/fallback_storage.h"
#include "aten/prepare/device_index.h"
#include "aten/prepare/resize.h"
#include "aten/prepare/tensor.h"
#include "core/storage/storage.h"
#include "core/stream/stream.h"

namespace torch_backend {

void resize_in_place(c10::TensorImpl *tensor, c10::IntArrayRef sizes, std::optional<c10::IntArrayRef> strides) {
  if (tensor->sizes() == sizes && (!strides || tensor->strides() == *strides)) return;
  const size_t itemsize = tensor->dtype().itemsize(), offset = static_cast<size_t>(tensor->storage_offset());
  // The size is computed, and checked for overflow, before the tensor changes.
  const size_t nbytes = strides ? at::detail::computeStorageNbytes(sizes, *strides, itemsize, offset)
                                : at::detail::computeStorageNbytesContiguous(sizes, itemsize, offset);
  if (strides) {
    tensor->set_sizes_and_strides(sizes, *strides);
  } else {
    tensor->set_sizes_contiguous(sizes);
  }
  if (tensor->numel() == 0) return;  // an offset beyond an empty storage is valid
  c10::StorageImpl *storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  TORCH_INTERNAL_ASSERT(storage, "a device tensor without a storage");
  if (nbytes > storage->nbytes()) resize_storage(storage, nbytes);
}

namespace {

const at::Tensor &resize_(const at::Tensor &self, c10::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  at::detail::check_size_nonnegative(size);
  const auto old_nbytes = static_cast<int64_t>(self.storage().nbytes());
  resize_in_place(self.unsafeGetTensorImpl(), size, std::nullopt);
  if (format) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format", *format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                   at::globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_resize_deterministic_(self, old_nbytes);
  }
  return self;
}

at::Tensor &set_source_Storage_storage_offset(at::Tensor &self, at::Storage source, int64_t offset,
                                              c10::IntArrayRef size, c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  resize_in_place(self.unsafeGetTensorImpl(), size, stride.data() ? std::optional(stride) : std::nullopt);
  return self;
}

at::Tensor &set_source_storage(at::Tensor &self, at::Storage source) { return at::native::set_(self, source); }

// set_() without a source: an empty storage of the same device.
at::Tensor &set_empty(at::Tensor &self) {
  at::Storage empty(c10::Storage::use_byte_size_t(), 0, allocate(0, self.device().index()), allocator(),
                    /*resizable=*/true);
  return set_source_Storage_storage_offset(self, std::move(empty), 0, {0}, {});
}

void record_stream(at::Tensor &self, c10::Stream stream) {
  allocator()->recordStream(self.storage().data_ptr(), stream);
  if (stream.device_type() == kDevice) note_recorded_stream(stream.device_index());
}

// Copies immediately: ATen's copy-on-write requires memory whose context is the memory itself.
at::Tensor lazy_clone(const at::Tensor &self) { return self.clone(); }

bool plain(const at::Tensor &tensor) {
  const c10::DispatchKeySet keys = tensor.key_set();
  return tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_nested() &&
         !keys.has(c10::DispatchKey::Python) && (tensor.is_cpu() || tensor.device().type() == kDevice);
}

// Called by Module.to() and `.data =`. If it returns true, parameters keep their identity when they move, as between
// CPU and CUDA. ATen's implementation knows in-tree devices only.
bool has_compatible_shallow_copy_type(const at::Tensor &self, const at::Tensor &from) {
  return (plain(self) && plain(from)) || self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

}  // namespace

// An operator with its own kernel for the device no longer gets ATen's composite kernel for the autograd key.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace torch_backend

#include "aten/storage/storage_ops.inc"  // registrations: codegen/operators
