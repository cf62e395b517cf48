// fallback_scope.h: CPU tensors that stand for device tensors, for the time of one call, and the way back.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <optional>

#include "aten/fallback/fallback_storage.h"

namespace torch_backend {

// Maps the tensors of one call. Per device storage there is one CPU storage, so that views stay views and a write through
// one is seen by the others; per device tensor one CPU tensor.
class FallbackScope {
 public:
  explicit FallbackScope(const char *op) : op_(op) {}
  ~FallbackScope();
  FallbackScope(const FallbackScope &) = delete;
  FallbackScope &operator=(const FallbackScope &) = delete;

  // Gives the CPU tensor for an operand. `written`: the operator mutates it; `host_allowed`: it may live on the host
  // although others live on a device.
  at::Tensor to_cpu(const at::Tensor &tensor, bool written, bool host_allowed);

  // Takes note of a Device argument: results go there.
  void set_device(c10::Device device);

  // Throws when host tensors were mixed with device tensors; otherwise waits for the operands' values. To be called when
  // all operands are mapped. `whole_storages`: the operator may use elements of the storages that are none of the operands'.
  void begin(bool whole_storages);

  // After the kernel: gives changed memory and changed sizes back to the device tensors.
  void restore();

  // Gives the device tensor for a result. `exclusive`: nobody but the results of this call holds its storage, so the
  // memory may be taken.
  at::Tensor to_device(const at::Tensor &result, bool exclusive);

  // The device of the call, none for one between host tensors.
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
  std::optional<c10::Device> operand_device_, foreign_device_;  // of device operands; of an operand that does not fit
  StorageMap storages_;                                         // outlives the tensors: they hold its storages
  c10::SmallVector<TensorPair, 5> tensors_;
  c10::SmallVector<Fresh, 2> fresh_;       // storages that the kernel made
  c10::SmallVector<StorageRef, 2> hosts_;  // storages of host operands: results that share them stay on the host
};

// A tensor on `storage` with sizes, strides, offset, dtype, the conjugate, negative and zero bits, and the
// wrapped-number flag of `like`.
at::Tensor make_alias(StorageRef storage, c10::DispatchKey backend, const at::Tensor &like);

}  // namespace torch_backend
