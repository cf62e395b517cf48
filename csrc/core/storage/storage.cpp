// storage.cpp: resizes a storage without a wait: the copy is queued, and the old block is freed after it.
#include "core/storage/storage.h"

#include <algorithm>
#include <utility>

#include "core/allocator/allocator.h"
#include "core/status.h"
#include "core/stream/stream.h"

namespace torch_backend {

void resize_storage(c10::StorageImpl *storage, size_t size) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceIndex device = storage->device().index();
  c10::DataPtr fresh = allocate(size, device);
  const c10::DataPtr &old = storage->data_ptr();
  const size_t kept = std::min(size, storage->nbytes());
  if (kept != 0 && old.get() != nullptr) {
    hal_stream_t *stream = current_stream(device);
    check(hal_memory_copy(stream, fresh.get(), device, old.get(), device, kept));
    if (hal_block_t *block = block_of(old))
      check(hal_memory_record_stream(block, stream));  // it may belong to another stream
    else
      check(hal_stream_synchronize(stream));  // memory of another owner is freed as soon as the reference is dropped
  }
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(size);
}

}  // namespace torch_backend
