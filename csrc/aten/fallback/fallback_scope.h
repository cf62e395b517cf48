// fallback_scope.h: CPU tensors that alias or copy device tensors during one call, and the conversion of results.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <optional>

#include "aten/fallback/fallback_storage.h"

namespace torch_backend {

// Maps the tensors of one call. There is one CPU storage per device storage, so that views remain views and see writes
// through other views. There is one CPU tensor per device tensor.
class FallbackScope {
 public:
  explicit FallbackScope(const char *op) : op_(op) {}
  ~FallbackScope();
  FallbackScope(const FallbackScope &) = delete;
  FallbackScope &operator=(const FallbackScope &) = delete;

  // Returns the CPU tensor for an operand. `written`: the operator mutates it. `host_allowed`: it may be on the host
  // although others are on a device.
  at::Tensor to_cpu(const at::Tensor &tensor, bool written, bool host_allowed);

  // Records a Device argument, to which results are copied.
  void set_device(c10::Device device);

  // Throws if host tensors were mixed with device tensors; otherwise waits for the operands' values. To be called after
  // all operands are mapped. `whole_storages`: the operator may use elements of the storages outside of the operands.
  void begin(bool whole_storages);

  // To be called after the kernel: copies changed memory and changed sizes back to the device tensors.
  void restore();

  // Returns the device tensor for a result. `exclusive`: only the results of this call reference its storage, so that
  // its memory may be taken.
  at::Tensor to_device(const at::Tensor &result, bool exclusive);

  // Returns the device of the call, nullopt for a call between host tensors.
  std::optional<c10::Device> device() const { return device_; }

 private:
  struct TensorPair {
    at::Tensor device, cpu;
    bool written;
  };
  struct Fresh {
    StorageRef cpu, device;
  };

  at::Tensor host_operand(const at::Tensor &tensor, bool written, bool host_allowed);
  at::Tensor strided_to_cpu(const at::Tensor &tensor);
  at::Tensor sparse_to_cpu(const at::Tensor &tensor, bool written);
  void note_written();
  void restore_metadata(TensorPair &pair);
  StorageRef device_storage(c10::StorageImpl *storage, bool exclusive);
  bool is_host_storage(const c10::StorageImpl *storage) const;
  at::Tensor part_to_device(const at::Tensor &part);
  void use_device(const at::Tensor &tensor);

  const char *op_;
  std::optional<c10::Device> device_;
  std::optional<c10::Device> operand_device_, foreign_device_;  // of device operands; of an operand on another device
  StorageMap storages_;  // destroyed after the tensors, which reference its storages
  c10::SmallVector<TensorPair, 5> tensors_;
  c10::SmallVector<Fresh, 2> fresh_;       // storages that the kernel created
  c10::SmallVector<StorageRef, 2> hosts_;  // storages of host operands: results that share them stay on the host
};

// Returns a tensor on `storage` with sizes, strides, offset, dtype, the conjugate, negative and zero bits, and the
// wrapped-number flag of `like`.
at::Tensor make_alias(StorageRef storage, c10::DispatchKey backend, const at::Tensor &like);

}  // namespace torch_backend
