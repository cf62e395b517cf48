// fallback_storage.h: CPU storages that stand for device storages while a CPU kernel runs, and CPU memory that becomes
// device memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

namespace torch_backend {

using StorageRef = c10::intrusive_ptr<c10::StorageImpl>;

// Tells that tensors of the device are used on several streams from now on.
void note_recorded_stream(c10::DeviceIndex device);

// The storages of one call. Where the host may touch the device's memory, a CPU storage lies over the same memory.
// Elsewhere it is memory of the size of the device storage, so that all views of it stay views of one memory; the bytes
// between the operands' first and last elements are copied into it, and what the operator writes is copied back.
class StorageMap {
 public:
  StorageMap() = default;
  ~StorageMap();
  StorageMap(const StorageMap &) = delete;
  StorageMap &operator=(const StorageMap &) = delete;

  // Takes note of the operands' device; before any of their storages is mapped.
  void open(c10::DeviceIndex device);

  // Whether the CPU storages are copies.
  bool staged() const { return staged_; }

  // The CPU storage of a device storage; `unused`, if given, becomes it.
  StorageRef to_cpu(c10::StorageImpl *storage, StorageRef unused = {});

  // Forgets a CPU storage that is to serve again; false where it may not: somebody beside one tensor holds it, or it owns
  // memory.
  bool forget(const c10::StorageImpl *cpu);

  // The device storage of a CPU storage, null for one that is none of ours.
  StorageRef to_device(const c10::StorageImpl *cpu) const;

  // Takes note that the operator reads the elements of a CPU tensor or, with `whole`, any part of its storage. Before `load`.
  void note_read(const c10::TensorImpl *cpu, bool whole);

  // Takes note that the operator writes to the elements of a CPU tensor; called before and after it ran, since it may
  // change where they are.
  void note_written(const c10::TensorImpl *cpu);

  // Before the kernel: waits until the CPU storages hold what queued work gives. For the current stream, and for all
  // streams once any tensor was recorded on another one.
  void load();

  // After the kernel: what was written, resized or replaced becomes the device storages' memory.
  void store();

 private:
  // Bytes of a storage; none at first, where `begin` is not below `end`.
  struct Range {
    size_t begin, end;
    bool empty() const { return begin >= end; }
    void add(const Range &more);
  };
  struct Pair {
    StorageRef device, cpu;
    void *data;  // of the CPU storage, as known; other than it after the kernel replaced the memory
    size_t nbytes;
    Range read, written;
  };
  static Range elements_of(const c10::TensorImpl *tensor);
  Pair *pair_of(const c10::TensorImpl *cpu);
  void copy_to_host(const Pair &pair, void *host, Range range);
  void fill_gaps(Pair &pair);
  void replace(Pair &pair);
  void write_back(Pair &pair);

  c10::DeviceIndex device_ = -1;
  bool staged_ = false;
  c10::SmallVector<Pair, 4> pairs_;
};

// Moves the memory out of a CPU storage, which is left without any, as device memory: adopted without a copy where the
// device may use any host address and has room, copied into a block of the device elsewhere.
c10::DataPtr take_memory(c10::StorageImpl &cpu, c10::DeviceIndex device);

// Copies a CPU storage's memory, which stays what it is, into a block of the device; finished on return.
c10::DataPtr copy_memory(const c10::StorageImpl &cpu, c10::DeviceIndex device);

}  // namespace torch_backend
