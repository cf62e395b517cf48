// fallback_storage.h: CPU storages that replace device storages while a CPU kernel runs, and CPU memory that becomes
// device memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

namespace torch_backend {

using StorageRef = c10::intrusive_ptr<c10::StorageImpl>;

// Records that tensors of the device are used on several streams from now on.
void note_recorded_stream(c10::DeviceIndex device);

// The storages of one call. If the host may access the device's memory, a CPU storage uses the same memory. Otherwise
// it allocates memory of the size of the device storage, so that all views of it remain views of one memory. The bytes
// between the operands' first and last elements are copied into it, and written bytes are copied back.
class StorageMap {
 public:
  StorageMap() = default;
  ~StorageMap();
  StorageMap(const StorageMap &) = delete;
  StorageMap &operator=(const StorageMap &) = delete;

  // Records the operands' device, before any of their storages is mapped.
  void open(c10::DeviceIndex device);

  // Returns whether the CPU storages are copies.
  bool staged() const { return staged_; }

  // Returns the CPU storage of a device storage; `unused`, if given, is used for it.
  StorageRef to_cpu(c10::StorageImpl *storage, StorageRef unused = {});

  // Removes a CPU storage that is to be reused. Returns false if it may not be: it has other references than one
  // tensor, or owns memory.
  bool forget(const c10::StorageImpl *cpu);

  // Returns the device storage of a CPU storage, null if it has none.
  StorageRef to_device(const c10::StorageImpl *cpu) const;

  // Records that the operator reads the elements of a CPU tensor or, with `whole`, any part of its storage. Before
  // `load`.
  void note_read(const c10::TensorImpl *cpu, bool whole);

  // Records that the operator writes to the elements of a CPU tensor. Called before and after the kernel, which may
  // change their place.
  void note_written(const c10::TensorImpl *cpu);

  // Before the kernel: waits until the CPU storages contain the results of queued work. For the current stream, and for
  // all streams once any tensor was recorded on another one.
  void load();

  // After the kernel: memory that was written, resized or replaced becomes the device storages' memory.
  void store();

 private:
  // A range of bytes of a storage; empty at first, with `begin` not below `end`.
  struct Range {
    size_t begin, end;
    bool empty() const { return begin >= end; }
    void add(const Range &more);
  };
  struct Pair {
    StorageRef device, cpu;
    void *data;  // of the CPU storage, as recorded; differs from it after the kernel replaced the memory
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

// Takes the memory of a CPU storage as device memory; the storage then has none. Adopts it without a copy if the device
// may use any host address and has enough memory. Otherwise copies it into a block of the device.
c10::DataPtr take_memory(c10::StorageImpl &cpu, c10::DeviceIndex device);

// Copies a CPU storage's memory, which does not change, into a block of the device; finished on return.
c10::DataPtr copy_memory(const c10::StorageImpl &cpu, c10::DeviceIndex device);

}  // namespace torch_backend
