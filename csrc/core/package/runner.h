// runner.h: runs packages of AOTInductor on the device: models that torch compiled ahead of time, as libraries.
#pragma once

#include <cstdint>
#include <string>

namespace torch_backend {

// Registers the runner under the device type's name, by which torch finds it. To be called after the rename; a second
// call does nothing.
void register_package_runner();

// Returns the versions that a package depends on: of torch, torch_backend and the device's plugin. Starts no device.
std::string package_versions(int32_t device);

}  // namespace torch_backend
