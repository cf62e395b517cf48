// guard.cpp: c10's device guard: current device and stream, events, implemented by the HAL. The HAL checks indices, and
// its messages name the index and the count. Functions that are noexcept log errors.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "core/device.h"
#include "core/dtypes.h"
#include "core/graph/external.h"
#include "core/guard/given_event.h"
#include "core/guard/host_waits.h"
#include "core/status.h"
#include "core/stream/stream.h"

namespace torch_backend {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

Device device_at(int32_t index) { return Device(kDevice, static_cast<DeviceIndex>(index)); }

// Checks the type and returns the index, the current one for a device without an index.
int32_t index_of(const Device &device) {
  TORCH_CHECK(device.type() == kDevice, "Expected a device of type '", kDevice, "' but found '", device, "'");
  return index_or_current<int32_t>(device.index());
}

hal_event_t *to_event(void *event) { return static_cast<hal_event_t *>(event); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice; }

  // ---- current device ----
  Device exchangeDevice(Device device) const override {
    const int32_t old = hal_device_current();
    const int32_t index = index_of(device);
    if (index != old) check(hal_device_set_current(index));
    return device_at(old);
  }
  Device getDevice() const override { return device_at(hal_device_current()); }
  void setDevice(Device device) const override {
    const int32_t index = index_of(device);
    if (index != hal_device_current()) check(hal_device_set_current(index));
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.type() != kDevice || !device.has_index()) return;
    const hal_status_t status = hal_device_set_current(device.index());
    if (status != HAL_OK) warn_status(status, "restoring the current device");
  }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(hal_device_count()); }

  c10::DeviceCapability getDeviceCapability(Device device) const override { return capability(index_of(device)); }

  // ---- streams ----
  // An unused device has no current stream but its default one. Returning it must not initialize the device, because
  // the autograd engine queries the streams of all devices.
  Stream getStream(Device device) const override {
    const int32_t index = index_of(device);
    if (C10_UNLIKELY(!hal_device_is_initialized(index) && index < hal_device_count()))
      return Stream(Stream::DEFAULT, device_at(index));
    return to_c10(current_stream(static_cast<DeviceIndex>(index)));
  }
  Stream getDefaultStream(Device device) const override {
    hal_stream_t *stream = nullptr;
    check(hal_stream_default(index_of(device), &stream));
    return to_c10(stream);
  }
  Stream getStreamFromGlobalPool(Device device, bool high_priority) const override {
    return getNewStream(device, high_priority ? -1 : 0);
  }
  Stream getNewStream(Device device, int priority) const override {
    hal_stream_t *stream = nullptr;
    const hal_status_t status = hal_stream_acquire(index_of(device), priority, &stream);
    if (status != HAL_OK && HostWaits::exists()) return getStream(device);
    check(status);
    return to_c10(stream);
  }
  Stream exchangeStream(Stream stream) const override {
    const int32_t index = index_of(stream.device());
    if (C10_UNLIKELY(stream.id() == 0 && !hal_device_is_initialized(index) && index < hal_device_count()))
      return Stream(Stream::DEFAULT, device_at(index));
    hal_stream_t *previous = nullptr;
    check(hal_stream_set_current(to_hal(stream), &previous));
    return to_c10(previous);
  }
  void *getStreamNativeHandle(const Stream stream) const override {
    void *handle = nullptr;
    check(hal_stream_native(to_hal(stream), &handle));
    return handle;
  }
  bool queryStream(const Stream &stream) const override { return is_done(hal_stream_query(to_hal(stream))); }
  void synchronizeStream(const Stream &stream) const override { check_work(hal_stream_synchronize(to_hal(stream))); }
  void synchronizeDevice(const DeviceIndex device) const override { synchronize_device(device); }
  bool isStreamCapturing(const Stream &stream) const override {
    // The default stream of an unused device does not exist yet.
    if (stream.id() == 0 && !hal_device_is_initialized(index_of(stream.device()))) return false;
    return hal_program_of_stream(to_hal(stream)) != nullptr;
  }
  void recordDataPtrOnStream(const c10::DataPtr &ptr, const Stream &stream) const override {
    hal_block_t *block = block_of(ptr);
    if (block != nullptr && ptr.get() != nullptr) check(hal_memory_record_stream(block, to_hal(stream)));
  }

  // ---- events ----
  // c10 requests timing by BACKEND_DEFAULT; an event is created at its first record.
  void record(void **event, const Stream &stream, const DeviceIndex device, const c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device index ", static_cast<int>(device),
                " does not match recording stream's device index ", static_cast<int>(stream.device_index()), ".");
    hal_stream_t *where = to_hal(stream);
    hal_event_t *target = to_event(*event);
    if (target == nullptr) {
      *event = GivenEvent::take();
      if (*event != nullptr) return;
    }
    const uint32_t flags = flag == c10::EventFlag::BACKEND_DEFAULT ? uint32_t{HAL_EVENT_TIMING} : 0;
    if (target == nullptr) {
      const hal_status_t status = hal_event_create(stream.device_index(), flags, &target);
      if (status != HAL_OK && HostWaits::wait(where)) return;
      check(status);
    }
    *event = target;  // owned by the c10 event from now on, even if the recording fails
    if (capture_external_record(target, where)) {
      TORCH_CHECK(flag != c10::EventFlag::BACKEND_DEFAULT,
                  "an external event that a graph records does not support timing; create it with enable_timing=False");
      return;
    }
    const hal_status_t status = hal_event_record(target, where);
    if (status != HAL_OK && !HostWaits::wait(where)) throw_status(status);
  }
  void block(void *event, const Stream &stream) const override {
    if (event == nullptr || capture_external_wait(to_event(event), to_hal(stream))) return;
    const hal_status_t status = hal_stream_wait_event(to_hal(stream), to_event(event));
    if (status != HAL_OK && !HostWaits::wait(to_event(event))) throw_work_status(status);
  }
  bool queryEvent(void *event) const override { return event == nullptr || is_done(hal_event_query(to_event(event))); }
  void synchronizeEvent(void *event) const override {
    if (event != nullptr) check_work(hal_event_synchronize(to_event(event)));
  }
  void destroyEvent(void *event, const DeviceIndex) const noexcept override {
    forget_external(to_event(event));
    hal_event_destroy(to_event(event));
  }
  double elapsedTime(void *start, void *end, const DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "elapsed_time requires two recorded events: record both, created with enable_timing=True");
    int64_t nanoseconds = 0;
    check(hal_event_elapsed(to_event(start), to_event(end), &nanoseconds));
    return static_cast<double>(nanoseconds) / 1e6;  // torch's unit is milliseconds
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

hal_event_t *&GivenEvent::given() {
  static thread_local hal_event_t *event = nullptr;
  return event;
}

HostWaits *&HostWaits::current() {
  static thread_local HostWaits *waits = nullptr;
  return waits;
}

}  // namespace torch_backend
