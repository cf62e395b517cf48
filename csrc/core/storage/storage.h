// storage.h: changing the size of a device storage.
#pragma once

#include <c10/core/Storage.h>

namespace torch_backend {

// Sets the size of a storage to `size` bytes and preserves the bytes that fit, ordered on the current stream of its
// device.
void resize_storage(c10::StorageImpl *storage, size_t size);

}  // namespace torch_backend
