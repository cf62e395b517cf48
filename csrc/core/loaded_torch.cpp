// loaded_torch.cpp: reports a program whose libtorch is not the version that this library is built for. Without the
// check, classes that differ between the versions would be used with the wrong layout.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace {

constexpr unsigned major_of(uint64_t version) { return version >> 56 & 0xff; }
constexpr unsigned minor_of(uint64_t version) { return version >> 48 & 0xff; }

// Runs before all other constructors of this library, and so before its registrations. In Python the package has
// checked the version before.
[[gnu::constructor(101)]] void refuse_other_torch() {
  constexpr uint64_t built = TORCH_ABI_VERSION;
  const uint64_t loaded = aoti_torch_abi_version();
  if (major_of(loaded) == major_of(built) && minor_of(loaded) == minor_of(built)) return;
  std::fprintf(stderr,
               "torch_backend: this program was built for torch %u.%u and has loaded torch %u.%u; build it again for "
               "torch %u.%u, or let it find torch %u.%u\n",
               major_of(built), minor_of(built), major_of(loaded), minor_of(loaded), major_of(loaded), minor_of(loaded),
               major_of(built), minor_of(built));
  _exit(1);
}

}  // namespace
