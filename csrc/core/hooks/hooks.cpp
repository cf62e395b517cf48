// hooks.cpp: the accelerator hooks of torch. Querying whether a device exists initializes nothing.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "core/allocator/allocator.h"
#include "core/allocator/host_allocator.h"
#include "core/device.h"
#include "core/generator/generator.h"
#include "core/status.h"
#include "core/storage/storage.h"

namespace torch_backend {
namespace {

using c10::DeviceIndex;

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return hal_device_count() > 0; }
  bool hasPrimaryContext(DeviceIndex device) const override {
    return hal_device_is_initialized(index_or_current(device)) != 0;
  }
  void init() const override { check(hal_device_ensure(hal_device_current())); }

  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(hal_device_count()); }
  DeviceIndex getCurrentDevice() const override { return static_cast<DeviceIndex>(hal_device_current()); }
  void setCurrentDevice(DeviceIndex device) const override { check(hal_device_set_current(device)); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const int32_t old = hal_device_current();
    check(hal_device_set_current(device));
    return static_cast<DeviceIndex>(old);
  }
  // In torch, a negative index means no change.
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? getCurrentDevice() : exchangeDevice(device);
  }

  // If a plugin cannot lock pages, the allocator returns pageable memory and is_pinned() returns false.
  bool isPinnedPtr(const void *address) const override { return is_pinned(address); }
  at::Allocator *getPinnedMemoryAllocator() const override { return host_allocator(); }

  at::Device getDeviceFromPtr(void *address) const override {
    int32_t device = 0;
    check(hal_memory_find(address, &device));
    return at::Device(kDevice, static_cast<DeviceIndex>(device));
  }

  const at::Generator &getDefaultGenerator(DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(DeviceIndex device) const override { return new_generator(device); }

  void resizePrivateUse1Bytes(const c10::Storage &storage, size_t size) const override {
    resize_storage(storage.unsafeGetStorageImpl(), size);
  }
};

const bool hooks_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);  // never destroyed
  return true;
}();

}  // namespace
}  // namespace torch_backend
