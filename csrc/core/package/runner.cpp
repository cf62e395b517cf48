// runner.cpp: see runner.h. torch's loader extracts a package into a folder and calls the runner that is registered
// under the name of the package's device. The library in it uses the HAL (api/aoti_model.h).
#include "core/package/runner.h"

#include <ATen/DynamicLibrary.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/compat.h"
#include "core/device.h"
#include "core/package/constants.h"
#include "core/stream/stream.h"
#include "torch_backend/version.h"

namespace torch_backend {
namespace package {
namespace {

using Base = torch::inductor::AOTIModelContainerRunner;
using Update = decltype(&AOTInductorModelContainerUpdateConstantBuffer);

c10::Device device_at(int32_t index) { return c10::Device(kDevice, static_cast<c10::DeviceIndex>(index)); }

// Calls a function with the lines of the file that the compiler has added to the package: the versions, where its
// kernels run, and the layouts of its constants.
template <typename Function>
void read_file(const std::string &library, Function &&call) {
  const std::filesystem::path folder = std::filesystem::path(library).parent_path();
  for (const auto &entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".torch_backend") continue;
    std::ifstream file(entry.path());
    std::string line;
    for (size_t number = 0; std::getline(file, line); ++number) call(number, line);
  }
}

// Compares the requirements of the generated code with this process.
void check_package(const std::string &library, int32_t device) {
  std::string versions, kernels;
  read_file(library, [&](size_t number, const std::string &line) {
    if (number < 2) (number == 0 ? versions : kernels) = line;
  });
  const char *const again = "Compile it again with torch._inductor.aoti_compile_and_package.";
  TORCH_CHECK(!versions.empty(), "the package of '", library,
              "' has no file with the versions for which it was compiled. ", again);
  const std::string own = package_versions(device);
  TORCH_CHECK(versions == own, "the package was compiled for ", versions, ", and ", device_at(device), " has ", own,
              ". ", again);
  TORCH_CHECK(kernels != "host" || (hal_device_flags(device) & HAL_DEVICE_HOST_VISIBLE) != 0,
              "the package's kernels run on the host, and the memory of ", device_at(device), " is not visible to it. ",
              again);
}

// Functions of the library that allocate memory use the current device, and receive only the container's handle.
struct Container {
  int32_t device;
  Update update, update_from_cpu;
  decltype(&AOTInductorModelContainerUpdateUserManagedConstantBuffer) use_tensors;
  decltype(&AOTInductorModelContainerUpdateInactiveConstantBuffer) update_inactive;
  decltype(&AOTInductorModelContainerRunConstantFolding) fold;
  std::shared_ptr<const Constants> constants;
};

class Containers {
 public:
  void add(AOTInductorModelContainerHandle handle, Container container) {
    const std::lock_guard<std::mutex> lock(mutex_);
    containers_[handle] = container;
  }
  void remove(AOTInductorModelContainerHandle handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    containers_.erase(handle);
  }
  Container find(AOTInductorModelContainerHandle handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return containers_.at(handle);
  }

 private:
  std::mutex mutex_;
  std::map<AOTInductorModelContainerHandle, Container> containers_;
};

Containers &containers() {
  static auto *containers = new Containers;  // never destroyed, like all registries here
  return *containers;
}

// Returns the tensors of a call of torch's class, which passes its map.
Given given(const Container &container, AOTInductorConstantMapHandle map, bool uses_tensors = false) {
  return Given(*container.constants, *reinterpret_cast<const torch::inductor::TensorConstantMap *>(map), uses_tensors);
}

AOTIRuntimeError update(AOTInductorModelContainerHandle handle, AOTInductorConstantMapHandle constants, bool inactive,
                        bool all) {
  const Container container = containers().find(handle);
  const c10::DeviceGuard guard(device_at(container.device));
  return container.update(handle, given(container, constants).handle(), inactive, all);
}

AOTIRuntimeError use_tensors(AOTInductorModelContainerHandle handle, AOTInductorConstantMapHandle constants,
                             bool inactive, bool all) {
  const Container container = containers().find(handle);
  const c10::DeviceGuard guard(device_at(container.device));
  return container.use_tensors(handle, given(container, constants, /*uses_tensors=*/true).handle(), inactive, all);
}

AOTIRuntimeError update_from_cpu(AOTInductorModelContainerHandle handle, AOTInductorConstantMapHandle constants,
                                 bool inactive, bool all) {
  const Container container = containers().find(handle);
  const c10::DeviceGuard guard(device_at(container.device));
  return container.update_from_cpu(handle, given(container, constants).handle(), inactive, all);
}

AOTIRuntimeError update_inactive(AOTInductorModelContainerHandle handle, AOTInductorConstantMapHandle constants) {
  const Container container = containers().find(handle);
  const c10::DeviceGuard guard(device_at(container.device));
  return container.update_inactive(handle, given(container, constants).handle());
}

AOTIRuntimeError fold(AOTInductorModelContainerHandle handle, bool inactive, AOTInductorStreamHandle stream,
                      AOTIProxyExecutorHandle proxy) {
  const Container container = containers().find(handle);
  const c10::DeviceGuard guard(device_at(container.device));
  return container.fold(handle, inactive, stream, proxy);
}

// torch's runtime in the library is compiled for a device with memory of its own, whose name there is "cuda".
class Runner final : public Base {
 public:
  Runner(const std::string &library, size_t models, int32_t device, const std::string &folder, bool single_threaded)
      : Base(library, models, "cuda:" + std::to_string(device), folder, single_threaded), device_(device) {
    containers().add(container_handle_,
                     {device, update_constant_buffer_func_, update_constant_buffer_from_cpu_func_,
                      update_user_managed_constant_buffer_func_, update_inactive_constant_buffer_func_,
                      run_const_fold_func_, std::make_shared<const Constants>(read_constants(library))});
    update_user_managed_constant_buffer_func_ = &use_tensors;
    update_constant_buffer_func_ = &update;
    if (update_constant_buffer_from_cpu_func_ != nullptr) update_constant_buffer_from_cpu_func_ = &update_from_cpu;
    update_inactive_constant_buffer_func_ = &update_inactive;
    run_const_fold_func_ = &fold;
  }

  ~Runner() override {
    containers().remove(container_handle_);
    keep_constants_for_queued_work();
  }

 private:
  std::vector<at::Tensor> run_impl(std::vector<AtenTensorHandle> &inputs, void *stream) override {
    const c10::DeviceGuard guard(device_at(device_));
    TORCH_CHECK(stream == nullptr, "a package runs on the current stream of ", device_at(device_),
                ". Pass no stream, and set the current stream by a stream guard.");
    note(current_stream(device_));
    if (!complete_.load(std::memory_order_acquire)) check_constants();
    return Base::run_impl(inputs, nullptr);
  }

  Constants read_constants(const std::string &library) {
    Constants constants;
    const auto dtypes = getConstantNamesToDtypes();
    for (const auto &[name, original] : getConstantNamesToOriginalFQNs())
      constants[name] = {original, static_cast<at::ScalarType>(dtypes.at(name)), {}, {}};
    read_file(library, [&](size_t number, const std::string &line) {
      if (number >= 2) read_layout(line, constants);
    });
    return constants;
  }

  // Generated code reads constants without a check.
  void check_constants() {
    const auto from_folding = reinterpret_cast<decltype(&AOTInductorModelContainerGetConstantFromFolded)>(
        model_so_->sym("AOTInductorModelContainerGetConstantFromFolded"));
    const auto held = extract_constants_map(false);
    size_t count = 0;
    TORCH_CHECK(get_num_constants_func_(container_handle_, &count) == AOTI_RUNTIME_SUCCESS);
    for (size_t i = 0; i < count; ++i) {
      bool computed = false;
      const char *name = nullptr;
      TORCH_CHECK(from_folding(container_handle_, i, &computed) == AOTI_RUNTIME_SUCCESS);
      TORCH_CHECK(get_constant_original_fqn_func_(container_handle_, i, &name) == AOTI_RUNTIME_SUCCESS);
      TORCH_CHECK(computed || held.count(name) != 0, "the package contains no weights, and its constant '", name,
                  "' has no value. Call load_constants first.");
    }
    complete_.store(true, std::memory_order_release);
  }

  void note(hal_stream_t *stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) streams_.push_back(stream);
  }

  // The base class releases the constants next, which queued work may still read.
  void keep_constants_for_queued_work() noexcept {
    try {
      for (const bool inactive : {false, true})
        for (const auto &[name, constant] : extract_constants_map(inactive)) keep(constant);
    } catch (const std::exception &error) {
      hal_log(HAL_LOG_WARNING, "the constants of a package are released before work that reads them: %s", error.what());
    }
  }

  void keep(const at::Tensor &constant) {
    hal_block_t *block = nullptr;
    if (!constant.is_privateuseone() || hal_memory_find_block(constant.const_data_ptr(), &block) != HAL_OK) return;
    for (hal_stream_t *stream : streams_) check(hal_memory_record_stream(block, stream));
  }

  int32_t device_;
  std::atomic<bool> complete_{false};  // all constants have values
  std::mutex mutex_;
  std::vector<hal_stream_t *> streams_;  // that have run the package
};

std::unique_ptr<Base> create(const std::string &library, size_t models, const std::string &device,
                             const std::string &folder, const bool single_threaded) {
  const int32_t index = index_or_current<int32_t>(c10::Device(device).index());
  check(hal_device_ensure(index));
  check_package(library, index);
  const c10::DeviceGuard guard(device_at(index));
  return std::make_unique<Runner>(library, models, index, folder, single_threaded);
}

}  // namespace
}  // namespace package

void register_package_runner() {
  torch::inductor::getAOTIModelRunnerRegistry().emplace(c10::DeviceTypeName(kDevice, /*lower_case=*/true),
                                                        &package::create);
}

std::string package_versions(int32_t device) {
  int32_t plugin = 0, ordinal = 0;
  check(hal_device_locate(device, &plugin, &ordinal));
  hal_registry_entry_t entry{};
  entry.struct_size = sizeof entry;
  check(hal_registry_plugin(plugin, &entry));
  return "torch " + std::to_string(TORCH_BACKEND_TORCH_VERSION / 100) + "." +
         std::to_string(TORCH_BACKEND_TORCH_VERSION % 100) + ", torch_backend " TORCH_BACKEND_VERSION ", plugin " +
         entry.name + " " + entry.version;
}

}  // namespace torch_backend
