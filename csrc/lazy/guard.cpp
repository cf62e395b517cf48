// guard.cpp: see guard.h.
#include "lazy/guard.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <mutex>

#include "core/device.h"
#include "core/lazy/dtype.h"
#include "core/lazy/tensor.h"
#include "core/stream/stream.h"

namespace torch_backend {
namespace {

void set_quietly(int32_t device) noexcept {
  const hal_status_t status = hal_device_set_current(device);
  if (C10_UNLIKELY(status != HAL_OK)) warn_status(status, "setting the current device");
}

// Streams and events of the type are not distinguished: all work of a device is on its default stream.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kLazyType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device old = getDevice();
    setDevice(device);
    return old;
  }
  c10::Device getDevice() const override {
    return c10::Device(kLazyType, static_cast<c10::DeviceIndex>(hal_device_current()));
  }
  void setDevice(c10::Device device) const override { check(hal_device_set_current(device.index())); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_quietly(device.index()); }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::DEFAULT, stream.device());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(hal_device_count()); }
  void synchronizeDevice(const c10::DeviceIndex index) const override { synchronize_device(index); }
};

std::array<std::atomic<hal_lazy_t *>, HAL_MAX_DEVICES> kept;
std::mutex lock;
hal_lazy_desc_t kept_desc;  // of `lock`

// Called once, by the first device, because a process has one mapping of dtypes. `lock` is held.
void decide_dtypes(c10::DeviceIndex index) {
  static bool decided = false;
  if (decided) return;
  hal_device_info_t info{};
  info.struct_size = HAL_STRUCT_SIZE(hal_device_info_t, flags);
  check(hal_device_info(index, &info));
  set_lazy_dtypes(lazy_dtypes_wanted((info.flags & HAL_DEVICE_FP64) != 0));
  decided = true;
}

}  // namespace

void install_lazy_guard() {
  static const c10::impl::DeviceGuardImplRegistrar registrar(
      kLazyType, new Guard);  // replaces torch's own guard, which supports no device
}

LazyGuard::LazyGuard(c10::DeviceIndex index) {
  if (index < 0 || index == hal_device_current()) return;
  previous_ = hal_device_current();
  check(hal_device_set_current(index));
}

LazyGuard::~LazyGuard() {
  if (previous_ >= 0) set_quietly(previous_);
}

hal_lazy_t *kept_lazy(c10::DeviceIndex index) {
  return index >= 0 && static_cast<size_t>(index) < kept.size() ? kept[index].load(std::memory_order_acquire) : nullptr;
}

void describe_kept(const hal_lazy_desc_t &desc) {
  const std::lock_guard<std::mutex> guard(lock);
  kept_desc = desc;
}

void stop_lazy() {
  const std::lock_guard<std::mutex> guard(lock);
  hal_status_t status = HAL_OK;
  for (auto &one : kept) {
    const hal_status_t now = hal_lazy_end(one.exchange(nullptr, std::memory_order_acq_rel));
    if (status == HAL_OK) status = now;
  }
  check_work(status);
}

void keep_lazy(c10::DeviceIndex index) {
  if (C10_LIKELY(kept_lazy(index) != nullptr)) return;
  const std::lock_guard<std::mutex> guard(lock);
  if (kept_lazy(index)) return;
  check(hal_device_ensure(index));
  decide_dtypes(index);
  hal_stream_t *stream = nullptr;
  check(hal_stream_default(index, &stream));
  if (hal_stream_is_recorded(stream)) return;  // by lazy.record(), or captured; no further recording is needed
  hal_lazy_t *lazy = nullptr;
  kept_desc.struct_size = sizeof(kept_desc);
  check(hal_lazy_begin(stream, &kept_desc, &lazy));
  kept[index].store(lazy, std::memory_order_release);
}

}  // namespace torch_backend
