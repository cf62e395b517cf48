// fallback_alias.h: CPU tensors over the memory of device tensors, for the time of one call, and the way back.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <optional>

namespace torch_backend {

// Waits until the host may touch the device's memory: for the current stream, and for all streams once any tensor was
// recorded on another one. Throws NotImplementedError, naming `op`, where the host never may.
void wait_for_host_access(c10::DeviceIndex device, const char *op);

// Tells that tensors of the device are used on several streams from now on.
void note_recorded_stream(c10::DeviceIndex device);

// Maps the tensors of one call. Per device storage there is one CPU storage over the same memory, so that views stay
// views and a write through one is seen by the others; per device tensor one CPU tensor.
class AliasScope {
 public:
  explicit AliasScope(const char *op) : op_(op) {}
  ~AliasScope();
  AliasScope(const AliasScope &) = delete;
  AliasScope &operator=(const AliasScope &) = delete;

  // Gives the CPU tensor for an operand. `written`: the operator mutates it; `host_allowed`: it may live on the host
  // although others live on a device.
  at::Tensor to_cpu(const at::Tensor &tensor, bool written, bool host_allowed);

  // Takes note of a Device argument: results go there.
  void set_device(c10::Device device);

  // Throws when host tensors were mixed with device tensors; otherwise waits for the device. To be called when all
  // operands are mapped.
  void begin();

  // After the kernel: gives resized or replaced memory and changed sizes back to the device tensors.
  void restore();

  // Gives the device tensor for a result. `exclusive`: nobody but the results of this call holds its storage, so the
  // memory may be taken.
  at::Tensor to_device(const at::Tensor &result, bool exclusive);

  // The device of the call, none for one between host tensors.
  std::optional<c10::Device> device() const { return device_; }

 private:
  using StorageRef = c10::intrusive_ptr<c10::StorageImpl>;
  struct StoragePair {
    StorageRef device, cpu;
    void *data;
    size_t nbytes;
  };
  struct TensorPair {
    at::Tensor device, cpu;
    bool written;
  };
  struct Adopted {
    StorageRef cpu, device;
  };

  at::Tensor host_operand(const at::Tensor &tensor, bool written, bool host_allowed);
  at::Tensor sparse_to_cpu(const at::Tensor &tensor, bool written);
  void restore_metadata(TensorPair &pair);
  StorageRef alias_storage(c10::StorageImpl *storage);
  StorageRef device_storage(c10::StorageImpl *storage, bool exclusive);
  bool is_host_storage(const c10::StorageImpl *storage) const;
  at::Tensor part_to_device(const at::Tensor &part);
  void use_device(const at::Tensor &tensor);

  const char *op_;
  std::optional<c10::Device> device_;
  std::optional<c10::Device> operand_device_, foreign_device_;  // of device operands; of an operand that does not fit
  c10::SmallVector<StoragePair, 4> storages_;
  c10::SmallVector<TensorPair, 5> tensors_;
  c10::SmallVector<Adopted, 2> adopted_;
  c10::SmallVector<StorageRef, 2> hosts_;  // storages of host operands: results that share them stay on the host
};

}  // namespace torch_backend
