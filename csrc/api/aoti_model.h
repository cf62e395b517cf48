// aoti_model.h: included first by the C++ that AOTInductor generates for the device; programs do not include it.
//
// torch's runtime for such code is a set of headers. They know the memory of the CPU, and that of CUDA by the functions
// of CUDA's runtime. This file reads them with functions of these names that call the HAL, so that the constants of a
// model are in memory of the device.
#pragma once

#include <hal/hal.h>
#include <torch/csrc/inductor/aoti_runtime/device_utils.h>  // as for the CPU: a stream is an address
#include <torch/csrc/inductor/aoti_runtime/utils.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {  // each package has its own

inline void torch_backend_check(hal_status_t status) {
  if (status != HAL_OK) throw std::runtime_error(hal_error_message());
}

}  // namespace

// ---- kernels of the package ----
namespace torch_backend::package {
namespace {

// An argument of a launch.
struct Value {
  std::array<char, 16> bytes;
  uint32_t size, kind;  // kind: HAL_ARG_*
};

inline Value element(const void *data, uint32_t size) {
  Value value{{}, size, HAL_ARG_VALUE};
  std::memcpy(value.bytes.data(), data, size);
  return value;
}

template <class Number>
inline Value value(Number number) {
  return element(&number, sizeof number);
}

inline Value address(const void *data) {
  Value value = element(&data, sizeof data);
  value.kind = HAL_ARG_POINTER;
  return value;
}

// A kernel in the portable dialect, a static object of the package.
class Kernel {
 public:
  // `reports`: its last argument is the stream's error record.
  Kernel(const char *name, const char *text, bool reports) : name_(name), text_(text), reports_(reports) {
    all().push_back(this);
  }

  // Compiles the kernels of the package for a device, or finds them in the disk cache.
  static void compile_all(int32_t device) {
    for (Kernel *kernel : all()) kernel->compile(device);
  }

  // Queues the kernel on the current stream of a device.
  void launch(int32_t device, int64_t items, std::initializer_list<Value> values) const {
    if (items == 0) return;
    std::array<hal_arg_t, kMostArguments> arguments;
    uint32_t count = 0;
    for (const Value &value : values) arguments[count++] = {value.bytes.data(), value.size, value.kind};
    void *report = nullptr;
    if (reports_) {
      torch_backend_check(hal_kernel_report_address(device, nullptr, &report));
      arguments[count++] = {&report, sizeof report, HAL_ARG_POINTER};
    }
    hal_kernel_t *const kernel = kernels_[device].load(std::memory_order_acquire);
    torch_backend_check(
        hal_kernel_launch_items(kernel, nullptr, static_cast<uint64_t>(items), arguments.data(), count));
    if (reports_) torch_backend_check(hal_kernel_report_launched(device, nullptr));
  }

 private:
  static constexpr size_t kMostArguments = 64;  // inductor fuses fewer buffers

  static std::vector<Kernel *> &all() {
    static std::vector<Kernel *> kernels;
    return kernels;
  }

  void compile(int32_t device) {
    hal_kernel_t *kernel = nullptr;
    torch_backend_check(hal_kernel_compile(device, name_, text_, &kernel));
    kernels_[device].store(kernel, std::memory_order_release);
  }

  const char *name_, *text_;
  bool reports_;
  std::array<std::atomic<hal_kernel_t *>, HAL_MAX_DEVICES> kernels_{};
};

}  // namespace
}  // namespace torch_backend::package

namespace {

// ---- functions of CUDA's runtime ----
using cudaError_t = hal_status_t;
constexpr cudaError_t cudaSuccess = HAL_OK, cudaErrorNotReady = HAL_NOT_READY;
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDefault };

inline const char *cudaGetErrorString(cudaError_t) { return hal_error_message(); }
inline cudaError_t cudaGetLastError() { return HAL_OK; }

inline cudaError_t cudaGetDevice(int32_t *device) {
  *device = hal_device_current();
  return HAL_OK;
}

// Called when a model is created.
inline cudaError_t cudaSetDevice(int32_t device) {
  HAL_RETURN_IF_ERROR(hal_device_set_current(device));
  torch_backend::package::Kernel::compile_all(device);
  return HAL_OK;
}

inline cudaError_t cudaMalloc(void **out, size_t size) {
  hal_block_t *block = nullptr;
  const hal_status_t status = hal_memory_allocate(hal_device_current(), nullptr, size, &block);
  if (status == HAL_OK) *out = hal_memory_block_address(block);
  return status;
}

// The runner has recorded the streams that use the block (core/package/runner.cpp).
inline cudaError_t cudaFree(void *address) {
  hal_block_t *block = nullptr;
  if (address == nullptr) return HAL_OK;
  const hal_status_t status = hal_memory_find_block(address, &block);
  if (status == HAL_OK) hal_memory_release(block);
  return status;
}

// Copies constants into memory that work of any stream may read; the source may be written by queued work.
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind kind) {
  int32_t device = 0, source = HAL_HOST;
  HAL_RETURN_IF_ERROR(hal_memory_find(to, &device));
  if (kind == cudaMemcpyDefault && hal_memory_find(from, &source) != HAL_OK) source = HAL_HOST;
  if (source != HAL_HOST && source != device) HAL_RETURN_IF_ERROR(hal_device_synchronize(source));
  HAL_RETURN_IF_ERROR(hal_device_synchronize(device));
  HAL_RETURN_IF_ERROR(hal_memory_copy(nullptr, to, device, from, source, size));
  return hal_device_synchronize(device);
}

// The runtime records an event at the end of a run, so that no other run uses the same object of the model before. Here
// runs share nothing that is written, and are in the order of their streams. It waits only for constants that it has
// computed, which other streams may read.
using cudaEvent_t = void *;
inline cudaError_t cudaEventCreate(cudaEvent_t *event) {
  *event = nullptr;
  return HAL_OK;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return HAL_OK; }
inline cudaError_t cudaEventRecord(cudaEvent_t, void *) { return HAL_OK; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return HAL_OK; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return hal_device_synchronize(hal_device_current()); }

// From 2.14 on, torch copies constants by page-locked memory and a stream of its own, if it can create one, and
// otherwise by cudaMemcpy, as here.
using cudaStream_t = void *;
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;
enum cudaMemoryType { cudaMemoryTypeUnregistered };
struct cudaPointerAttributes {
  cudaMemoryType type;
};
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned) { return HAL_UNIMPLEMENTED; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return HAL_OK; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return hal_device_synchronize(hal_device_current()); }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { return cudaEventCreate(event); }
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *, const void *) { return HAL_UNIMPLEMENTED; }
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, size, kind);
}

using CUmodule = void *;
using CUresult = int;
constexpr CUresult CUDA_SUCCESS = 0;
inline CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
inline CUresult cuGetErrorString(CUresult, const char **) { return CUDA_SUCCESS; }

}  // namespace

#define USE_CUDA 1
#define AOTI_RUNTIME_CUDA_CHECK(call) torch_backend_check(call)
#define aoti_torch_device_type_cuda aoti_torch_device_type_privateuse1
#include <torch/csrc/inductor/aoti_include/common.h>
#include <torch/csrc/inductor/aoti_runtime/model_container.h>
#undef aoti_torch_device_type_cuda
#undef AOTI_RUNTIME_CUDA_CHECK
#undef USE_CUDA
#include <torch/csrc/inductor/cpp_wrapper/device_internal/cpu.h>

// ---- functions that generated code calls ----
namespace torch_backend::package {
namespace {

// Waits for the work queued on the current stream of a device: the kernel that is called next runs on the host.
inline void wait(int32_t device) {
  hal_stream_t *stream = nullptr;
  torch_backend_check(hal_stream_current(device, &stream));
  torch_backend_check(hal_stream_synchronize(stream));
}

// Throws if an input is on another device than the model.
inline void check_input(AtenTensorHandle input, const char *name, int32_t device) {
  int32_t type = 0, index = 0;
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(input, &type));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(input, &index));
  if (type == aoti_torch_device_type_privateuse1() && index == device) return;
  std::stringstream message;
  message << "input '" << name << "' of the package must be on device " << device
          << " of the package's type, but it is ";
  if (type == aoti_torch_device_type_privateuse1())
    message << "on device " << index;
  else
    message << (type == aoti_torch_device_type_cpu() ? "on the CPU" : "of another type");
  throw std::runtime_error(message.str());
}

}  // namespace
}  // namespace torch_backend::package
