// groups.cpp: groups of some of a group's ranks.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include "core/device.h"
#include "distributed/backend.h"
#include "hal/hal.h"

namespace torch_backend {

// Returns the group of `ranks`, which are numbers in this group, or nullptr if this process is not among them.
c10::intrusive_ptr<DeviceBackend> DeviceBackend::child(const c10::intrusive_ptr<c10d::Store> &store,
                                                       const std::vector<int> &ranks,
                                                       const c10::intrusive_ptr<Options> &options) const {
  const auto found = std::find(ranks.begin(), ranks.end(), getRank());
  if (found == ranks.end()) return nullptr;
  auto own = c10::make_intrusive<DeviceOptions>(options_->backend, options ? options->timeout : options_->timeout);
  if (options) own->group_name = options->group_name, own->group_desc = options->group_desc;
  const auto &global = options_->global_ranks_in_group;
  for (const int rank : ranks)
    own->global_ranks_in_group.push_back(static_cast<size_t>(rank) < global.size() ? global[static_cast<size_t>(rank)]
                                                                                   : static_cast<uint64_t>(rank));
  const Members members{static_cast<int>(found - ranks.begin()), static_cast<int>(ranks.size()), store};
  return c10::make_intrusive<DeviceBackend>(members, std::move(own), route_, program_);  // torch binds its device
}

// The new group meets in this group's store, under the number of the split and its first rank. torch's name of the new
// group, and of `store`, contains the number of groups of this process, which may differ between ranks. The store's
// connection is a new one, because another thread may wait on this group's connection. torch calls this once for each
// device type, with one `store`, and uses the first result for all of them.
DeviceBackend::BackendPtr DeviceBackend::split(const c10::intrusive_ptr<c10d::Store> &store,
                                               const std::vector<int> &ranks,
                                               const c10::intrusive_ptr<Options> &options) {
  for (const int rank : ranks)
    TORCH_CHECK_VALUE(rank >= 0 && rank < getSize(), "split: rank ", rank, " is out of range for a group of ",
                      getSize(), " ranks");
  TORCH_CHECK_VALUE(!ranks.empty(), "split: no rank");
  const auto [number, is_new] = number_of_split(store);
  const std::string prefix = "split/" + std::to_string(number) + "/" + std::to_string(ranks[0]);
  auto made = child(c10::make_intrusive<c10d::PrefixStore>(prefix, store_->clone()), ranks, options);
  const std::lock_guard<std::mutex> guard(lock_);
  if (!is_new || comm_ == nullptr || *hal_comm_library(comm_) == '\0') return made;  // it connects at its first use
  // All ranks of this group take part in the library's split, also those that are not in the new group.
  const int color = made ? *std::min_element(ranks.begin(), ranks.end()) : -1;
  const auto split_library = [&](hal_comm_t *comm) {
    return hal_comm_split_library(comm_, color, comm != nullptr ? made->getRank() : 0, comm, library_flags(), 0);
  };
  program_.without_lock([&] {
    if (made)
      made->begin(device_, split_library);
    else
      check(split_library(nullptr));
  });
  return made;
}

std::pair<uint64_t, bool> DeviceBackend::number_of_split(const c10::intrusive_ptr<c10d::Store> &store) {
  const std::lock_guard<std::mutex> guard(lock_);
  const bool is_new = store.get() != split_store_.get();
  if (is_new) splits_++;
  split_store_ = store;
  return {splits_, is_new};
}

DeviceBackend::BackendPtr DeviceBackend::shrink(const std::vector<int64_t> &excluded, int flags,
                                                const c10::intrusive_ptr<Options> &options) {
  constexpr int kAbort = 1;  // torch.distributed.distributed_c10d.SHRINK_ABORT
  std::vector<int> left;
  for (int rank = 0; rank < getSize(); rank++)
    if (std::find(excluded.begin(), excluded.end(), rank) == excluded.end()) left.push_back(rank);
  TORCH_CHECK_VALUE(std::find(left.begin(), left.end(), getRank()) != left.end(), "shrink: rank ", getRank(),
                    " is among the excluded ranks ", excluded, ", which do not call it");
  const std::string prefix = "shrink/" + std::to_string(shrinks_++);
  auto made = child(c10::make_intrusive<c10d::PrefixStore>(prefix, store_->clone()), left, options);
  if (made->options_->group_desc.empty()) made->options_->group_desc = getGroupDesc() + ":shrink";
  shrink_library(*made, left, (flags & kAbort) != 0);
  if (flags & kAbort) abort();
  return made;
}

// The library derives the new group from this one before this one is aborted. If this group has no library, the first
// collective of the new group connects its ranks.
void DeviceBackend::shrink_library(DeviceBackend &made, const std::vector<int> &left, bool aborts) {
  const std::lock_guard<std::mutex> guard(lock_);
  if (comm_ == nullptr || *hal_comm_library(comm_) == '\0') return;
  std::vector<int32_t> excluded;
  for (int rank = 0; rank < getSize(); rank++)
    if (std::find(left.begin(), left.end(), rank) == left.end()) excluded.push_back(rank);
  program_.without_lock([&] {
    made.begin(device_, [&](hal_comm_t *comm) {
      return hal_comm_shrink_library(comm_, excluded.data(), static_cast<uint32_t>(excluded.size()),
                                     aborts ? HAL_COMM_SHRINK_ABORT : 0, comm, library_flags(), 0);
    });
  });
}

void DeviceBackend::eagerConnectSingleDevice(at::Device device) {
  TORCH_CHECK_VALUE(device.type() == kDevice && device.has_index(), "the process group '", getGroupUid(),
                    "' cannot connect ", device, ": expected a ", kDevice, " device with an index");
  const std::lock_guard<std::mutex> guard(lock_);
  communicator_of(device.index());
}

}  // namespace torch_backend
