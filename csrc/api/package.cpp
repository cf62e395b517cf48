// package.cpp: packages of AOTInductor in the C++ API.
#include "api/package.h"

#include "core/device.h"

namespace torch_backend {

std::unique_ptr<torch::inductor::AOTIModelPackageLoader> load_package(const std::string &path,
                                                                      const PackageOptions &options) {
  using Loader = torch::inductor::AOTIModelPackageLoader;
  const auto metadata = Loader::load_metadata_from_package(path, options.model);
  const auto found = metadata.find("AOTI_DEVICE_KEY");
  const std::string compiled = found == metadata.end() ? "" : found->second;
  const std::string own = c10::DeviceTypeName(kDevice, /*lower_case=*/true);
  TORCH_CHECK(compiled == own, "the package '", path, "' was compiled for '", compiled, "', and this process uses '",
              own, "'. Compile it again for '", own, "'.");
  return std::make_unique<Loader>(path, options.model, options.single_threaded, options.runners,
                                  index_or_current(options.device));
}

}  // namespace torch_backend
