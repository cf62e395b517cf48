// copy_host.cpp: copies between host and device tensors. Dtypes, strides and bits are converted where this requires no
// extra transfer: uploads convert on the host; downloads convert the order on the device, and dtype and bits on the
// host.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/EmptyTensor.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "aten/copy/copy.h"
#include "core/allocator/host_allocator.h"
#include "core/stream/stream.h"
#include "core/sync_debug.h"

namespace torch_backend {
namespace {

// Up to this size an upload from pageable memory is buffered, so that the call does not wait for the device. Above,
// copying into the buffer takes longer than the wait. CUDA's driver also buffers 64 KiB.
constexpr size_t kBufferedBytes = 64 * 1024;

// Keeps host memory allocated until the work now queued on the stream, which uses it, is done.
void release_behind(hal_stream_t *stream, const at::Tensor &host) {
  auto owner = std::make_unique<c10::Storage>(host.storage());
  const auto free = [](void *data) { delete static_cast<c10::Storage *>(data); };
  const hal_status_t status = hal_memory_defer(hal_stream_device(stream), stream, free, owner.get());
  if (status == HAL_OK)
    owner.release();
  else
    check_work(hal_stream_synchronize(stream));  // before the owner is destroyed
}

// A copy between a device and host memory that does not wait: the memory is page-locked, and the caller, with
// non_blocking, does not change its values until the stream is done. The memory itself may be freed earlier.
class PinnedCopy {
 public:
  PinnedCopy(hal_stream_t *stream, const at::Tensor &host, bool non_blocking)
      : stream_(stream), host_(host), allowed_(non_blocking && is_pinned(host.const_data_ptr())) {
    // Before the copy is queued, because no failure may occur between the copy and the protection of its memory.
    if (allowed_) recorded_ = record_host_memory(host.const_data_ptr(), stream);
  }
  explicit operator bool() const { return allowed_; }
  // To be called when the copy is queued. The storage of memory that another library locked keeps it allocated.
  void queued() const {
    if (!recorded_) release_behind(stream_, host_);
  }

 private:
  hal_stream_t *stream_;
  const at::Tensor &host_;
  bool allowed_, recorded_ = false;
};

void upload_buffered(const at::Tensor &src, const at::Tensor &dst, size_t nbytes) {
  HostBuffer buffer = host_buffer(nbytes);
  std::memcpy(buffer.get(), src.const_data_ptr(), nbytes);
  upload_buffer(std::move(buffer), dst);
}

// Copies bytes; `owned`: the host memory is not written by other code, so that only its lifetime matters.
void upload(const at::Tensor &src, const at::Tensor &dst, bool non_blocking, bool owned) {
  const size_t nbytes = dst.nbytes();
  if (nbytes == 0) return;
  const c10::DeviceIndex device = dst.device().index();
  hal_stream_t *stream = current_stream(device);
  // A recording reads page-locked memory when it runs, as non_blocking allows; otherwise it reads the buffer.
  const bool small = nbytes <= kBufferedBytes || (hal_stream_is_recorded(stream) && is_pinned(src.const_data_ptr()));
  const PinnedCopy pinned(stream, src, non_blocking && !owned);
  if (small && !owned && !pinned) return upload_buffered(src, dst, nbytes);
  const bool deferred = owned && (small || non_blocking);
  if (!pinned && !deferred) note_host_wait(device, "a copy from pageable host memory");
  check_work(hal_memory_copy(stream, address_of(dst), device, src.const_data_ptr(), HAL_HOST, nbytes));
  if (C10_UNLIKELY(!pinned && hal_stream_is_recorded(stream))) return;  // a recording has copied the bytes
  if (pinned) return pinned.queued();
  if (deferred) return release_behind(stream, src);
  check_work(hal_stream_synchronize(stream));
}

void download(const at::Tensor &src, const at::Tensor &dst, bool non_blocking) {
  const size_t nbytes = dst.nbytes();
  if (nbytes == 0) return;
  const c10::DeviceIndex device = src.device().index();
  hal_stream_t *stream = current_stream(device);
  const PinnedCopy pinned(stream, dst, non_blocking);
  if (!pinned) note_host_wait(device, "a copy to the host");
  check_read(hal_memory_copy(stream, dst.mutable_data_ptr(), HAL_HOST, address_of(src), device, nbytes), "cpu()");
  if (pinned) return pinned.queued();
  check_work(hal_stream_synchronize(stream));
}

at::Tensor host_like(const at::Tensor &layout, c10::ScalarType dtype) {
  if (layout.is_non_overlapping_and_dense()) {
    return at::Tensor(at::detail::empty_strided_cpu(layout.sizes(), layout.strides(), dtype));
  }
  return at::Tensor(at::detail::empty_cpu(layout.sizes(), dtype));
}

at::Tensor device_like(const at::Tensor &host, c10::DeviceIndex device) {
  return make_empty_strided(host.sizes(), host.strides(), host.scalar_type(), device);
}

}  // namespace

HostBuffer host_buffer(size_t nbytes) {
  HostBuffer buffer(std::malloc(nbytes), &std::free);
  if (!buffer) throw std::bad_alloc();
  return buffer;
}

void upload_buffer(HostBuffer buffer, const at::Tensor &dst) {
  const c10::DeviceIndex device = dst.device().index();
  hal_stream_t *stream = current_stream(device);
  check(hal_memory_copy(stream, address_of(dst), device, buffer.get(), HAL_HOST, dst.nbytes()));
  if (C10_UNLIKELY(hal_stream_is_recorded(stream))) return;
  const hal_status_t status = hal_memory_defer(
      device, stream, [](void *data) { std::free(data); }, buffer.get());
  if (status != HAL_OK) check_work(hal_stream_synchronize(stream));  // before the buffer is freed
  check(status);
  buffer.release();
}

void copy_from_host(const at::Tensor &src, const at::Tensor &dst, bool non_blocking) {
  if (dst.numel() == 0 && src.sizes() == dst.sizes()) return;
  if (same_elements(src, dst) && same_dense_layout(src, dst)) return upload(src, dst, non_blocking, /*owned=*/false);
  // A source that broadcasts is copied in its own shape and expanded on the device.
  const bool same_shape = src.sizes() == dst.sizes();
  const at::Tensor elements = host_like(same_shape ? dst : src, dst.scalar_type());
  elements.copy_(src);
  apply_bits(elements, dst);
  if (same_shape && same_dense_layout(elements, dst)) return upload(elements, dst, non_blocking, /*owned=*/true);
  const at::Tensor moved = device_like(elements, dst.device().index());
  upload(elements, moved, non_blocking, /*owned=*/true);
  const at::Tensor fitting = same_shape ? moved : moved.expand(dst.sizes());
  if (dst.numel() != 0) copy_raw(fitting, dst);
}

void copy_to_host(const at::Tensor &src, const at::Tensor &dst, bool non_blocking) {
  if (same_elements(src, dst) && same_dense_layout(src, dst)) return download(src, dst, non_blocking);
  at::Tensor dense = src;
  if (!src.is_non_overlapping_and_dense()) {
    dense = make_empty(src.sizes(), src.scalar_type(), src.device().index());
    if (src.numel() != 0) copy_raw(src, dense);
  }
  const at::Tensor elements = host_like(dense, src.scalar_type());
  download(dense, elements, /*non_blocking=*/false);
  elements._set_conj(src.is_conj());
  elements._set_neg(src.is_neg());
  dst.copy_(elements);
}

}  // namespace torch_backend
