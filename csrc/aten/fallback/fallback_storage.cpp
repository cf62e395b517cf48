// fallback_storage.cpp: see fallback_storage.h.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "aten/fallback/fallback_storage.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "core/allocator/allocator.h"
#include "core/status.h"
#include "core/stream/stream.h"
#include "core/sync_debug.h"

namespace torch_backend {
namespace {

std::atomic<bool> several_streams[HAL_MAX_DEVICES];

// A staged copy contains operands that the operator only writes, and gaps between elements.
struct Unchecked {
  Unchecked() { hal_stack_set_unchecked(1); }
  ~Unchecked() { hal_stack_set_unchecked(0); }
  Unchecked(const Unchecked &) = delete;
  Unchecked &operator=(const Unchecked &) = delete;
};

bool has_flag(c10::DeviceIndex device, uint64_t flag) { return hal_device_flags(device) & flag; }

// Returns a block with a copy of host memory, queued on the current stream. Does not pass the address NULL, which a
// copy of 0 bytes may have.
c10::DataPtr queue_copy(hal_stream_t *stream, const void *data, size_t nbytes, c10::DeviceIndex device) {
  c10::DataPtr block = allocate(nbytes, device);
  if (nbytes) check_work(hal_memory_copy(stream, block.get(), device, data, HAL_HOST, nbytes));
  return block;
}

template <class Owner>
void release_behind(hal_stream_t *stream, Owner &&owner) {
  auto kept = std::make_unique<std::decay_t<Owner>>(std::forward<Owner>(owner));
  const auto release = [](void *data) { delete static_cast<std::decay_t<Owner> *>(data); };
  check(hal_memory_defer(hal_stream_device(stream), stream, release, kept.get()));
  kept.release();
}

}  // namespace

void note_recorded_stream(c10::DeviceIndex device) {
  if (device >= 0 && device < HAL_MAX_DEVICES) several_streams[device].store(true, std::memory_order_relaxed);
}

StorageMap::~StorageMap() {
  if (staged_) return;
  // A kernel written in Python may have stored an alias, which must not outlive the memory. So it shares ownership of
  // the device storage.
  for (Pair &pair : pairs_) {
    if (C10_LIKELY(!pair.cpu || pair.cpu.use_count() == 1)) continue;
    auto *owner = new StorageRef(pair.device);
    const auto release = [](void *context) { delete static_cast<StorageRef *>(context); };
    pair.cpu->set_data_ptr_noswap(c10::DataPtr(pair.device->mutable_data(), owner, release, c10::Device(c10::kCPU)));
  }
}

void StorageMap::open(c10::DeviceIndex device) {
  if (C10_LIKELY(device_ == device)) return;
  // flags are 0 for a device that cannot be used, as in a forked child; report this error
  check(hal_device_ensure(device));
  device_ = device;
  staged_ = !has_flag(device, HAL_DEVICE_HOST_VISIBLE);
}

StorageRef StorageMap::to_cpu(c10::StorageImpl *storage, StorageRef unused) {
  for (const Pair &pair : pairs_) {
    if (pair.device.get() == storage) return pair.cpu;
  }
  const size_t nbytes = storage->nbytes();
  c10::DataPtr memory(storage->mutable_data(), c10::Device(c10::kCPU));
  // A storage of zeros without memory (_efficientzerotensor) has none on the CPU either.
  if (C10_UNLIKELY(staged_) && memory.get() != nullptr) memory = c10::GetCPUAllocator()->allocate(nbytes);
  void *data = memory.get();
  if (unused) {
    unused->set_data_ptr_noswap(std::move(memory));
    unused->set_nbytes(nbytes);
    unused->set_resizable(storage->resizable());
  } else {
    unused = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes, std::move(memory),
                                                   c10::GetCPUAllocator(), storage->resizable());
  }
  pairs_.push_back({StorageRef::reclaim_copy(storage), unused, data, nbytes, {nbytes, 0}, {nbytes, 0}});
  return unused;
}

bool StorageMap::forget(const c10::StorageImpl *cpu) {
  if (staged_) return false;
  for (Pair &pair : pairs_) {
    if (pair.cpu.get() != cpu) continue;
    // After an exception it may own memory that was not taken.
    if (cpu->data() != pair.data || pair.cpu.use_count() != 2 || pair.cpu.weak_use_count() != 1) return false;
    pair.cpu.reset();
    return true;
  }
  return false;
}

StorageRef StorageMap::to_device(const c10::StorageImpl *cpu) const {
  for (const Pair &pair : pairs_) {
    if (pair.cpu.get() == cpu) return pair.device;
  }
  return {};
}

void StorageMap::Range::add(const Range &more) {
  begin = std::min(begin, more.begin);
  end = std::max(end, more.end);
}

// Returns the range from the first element to the end of the last one; strides are not negative.
StorageMap::Range StorageMap::elements_of(const c10::TensorImpl *tensor) {
  const int64_t first = tensor->storage_offset();
  int64_t last = first;
  for (int64_t d = 0; d < tensor->dim(); d++) last += (tensor->size(d) - 1) * tensor->stride(d);
  const size_t itemsize = tensor->itemsize();
  return {static_cast<size_t>(first) * itemsize, static_cast<size_t>(last + 1) * itemsize};
}

StorageMap::Pair *StorageMap::pair_of(const c10::TensorImpl *cpu) {
  if (!cpu->has_storage()) return nullptr;
  const c10::StorageImpl *storage = cpu->unsafe_storage().unsafeGetStorageImpl();
  for (Pair &pair : pairs_) {
    if (pair.cpu.get() == storage) return &pair;
  }
  return nullptr;
}

void StorageMap::note_read(const c10::TensorImpl *cpu, bool whole) {
  if (C10_LIKELY(!staged_)) return;
  Pair *const pair = pair_of(cpu);
  if (!pair) return;
  if (whole)
    pair->read.add({0, pair->nbytes});
  else if (cpu->numel())
    pair->read.add(elements_of(cpu));
}

void StorageMap::note_written(const c10::TensorImpl *cpu) {
  if (C10_LIKELY(!staged_) || cpu->numel() == 0) return;
  if (Pair *const pair = pair_of(cpu)) pair->written.add(elements_of(cpu));
}

// Queues a copy of a range of the device storage to its place in host memory.
void StorageMap::copy_to_host(const Pair &pair, void *host, Range range) {
  if (range.empty() || host == nullptr) return;
  const Unchecked unchecked;
  check_work(hal_memory_copy(current_stream(device_), static_cast<char *>(host) + range.begin, HAL_HOST,
                             static_cast<const char *>(pair.device->data()) + range.begin, device_,
                             range.end - range.begin));
}

void StorageMap::load() {
  note_host_wait(device_, "an operator that runs on the CPU");
  if (C10_UNLIKELY(several_streams[device_].load(std::memory_order_relaxed)))
    check_work(hal_device_synchronize(device_));
  if (C10_UNLIKELY(staged_)) {
    for (Pair &pair : pairs_) {
      pair.read.end = std::min(pair.read.end, pair.nbytes);
      copy_to_host(pair, pair.data, pair.read);
    }
  }
  check_work(hal_stream_synchronize(current_stream(device_)));
}

void StorageMap::store() {
  for (Pair &pair : pairs_) {
    if (C10_UNLIKELY(pair.cpu->data() != pair.data || pair.cpu->nbytes() != pair.nbytes)) {
      replace(pair);
    } else if (C10_UNLIKELY(!pair.written.empty())) {
      write_back(pair);
    }
  }
}

// Copies the bytes that the kernel neither read nor wrote into the memory that it allocated, because they belong to
// other tensors of the storage.
void StorageMap::fill_gaps(Pair &pair) {
  const size_t nbytes = std::min(pair.nbytes, pair.cpu->nbytes());
  Range known = pair.read;
  known.add(pair.written);
  if (known.empty()) known = {nbytes, nbytes};
  if (known.begin == 0 && known.end >= nbytes) return;
  void *host = pair.cpu->mutable_data();
  copy_to_host(pair, host, {0, std::min(known.begin, nbytes)});
  copy_to_host(pair, host, {known.end, nbytes});
  check_work(hal_stream_synchronize(current_stream(device_)));
}

// The kernel resized the storage (out=, resize_).
void StorageMap::replace(Pair &pair) {
  const size_t nbytes = pair.cpu->nbytes();
  if (staged_) {
    fill_gaps(pair);
    pair.device->set_data_ptr_noswap(copy_memory(*pair.cpu, device_));
    pair.data = pair.cpu->mutable_data();
  } else if (pair.cpu->data() != pair.data) {
    pair.device->set_data_ptr_noswap(take_memory(*pair.cpu, device_));
    pair.data = pair.device->mutable_data();
    // borrows again the memory that it owned
    pair.cpu->set_data_ptr_noswap(c10::DataPtr(pair.data, c10::Device(c10::kCPU)));
  }
  pair.device->set_nbytes(nbytes);
  pair.nbytes = nbytes;
}

void StorageMap::write_back(Pair &pair) {
  hal_stream_t *stream = current_stream(device_);
  const size_t begin = pair.written.begin, size = std::min(pair.written.end, pair.nbytes) - begin;
  check_work(hal_memory_copy(stream, static_cast<char *>(pair.device->mutable_data()) + begin, device_,
                             static_cast<const char *>(pair.data) + begin, HAL_HOST, size));
  release_behind(stream, pair.cpu);
}

c10::DataPtr take_memory(c10::StorageImpl &cpu, c10::DeviceIndex device) {
  const size_t nbytes = cpu.nbytes();
  c10::DataPtr memory = cpu.set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
  if (!memory.get() || !nbytes) return allocate(0, device);
  c10::DataPtr block;
  if (has_flag(device, HAL_DEVICE_UNIFIED) && adopt(memory, nbytes, device, &block)) return block;
  hal_stream_t *stream = current_stream(device);
  block = queue_copy(stream, memory.get(), nbytes, device);
  release_behind(stream, std::move(memory));
  return block;
}

c10::DataPtr copy_memory(const c10::StorageImpl &cpu, c10::DeviceIndex device) {
  hal_stream_t *stream = current_stream(device);
  c10::DataPtr block = queue_copy(stream, cpu.data(), cpu.nbytes(), device);
  if (cpu.nbytes()) check_work(hal_stream_synchronize(stream));
  return block;
}

}  // namespace torch_backend
