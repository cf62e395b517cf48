// brackets.cpp: several calls of a group that end together (torch.distributed._coalescing_manager).
#include <algorithm>
#include <utility>

#include "distributed/backend.h"

namespace torch_backend {
namespace {

// The works of a bracket, as one. Those of CPU tensors run one by one.
class BracketWork final : public c10d::Work {
 public:
  BracketWork(int rank, std::vector<WorkPtr> works) : Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](const auto &work) { return work->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::all_of(works_.begin(), works_.end(), [](const auto &work) { return work->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const auto &work : works_)
      if (auto error = work->exception()) return error;
    return nullptr;
  }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    for (const auto &work : works_) work->wait(timeout);
    return true;
  }
  void synchronize() override { wait(); }
  TensorList result() override {
    TensorList results;
    for (const auto &work : works_)
      for (auto &tensor : work->result()) results.push_back(std::move(tensor));
    return results;
  }

 private:
  const std::vector<WorkPtr> works_;
};

}  // namespace

WorkPtr DeviceBackend::on_host(WorkPtr work) {
  const std::lock_guard<std::mutex> guard(lock_);
  if (bracket_ && work) bracket_works_.push_back(work);
  return work;
}

void DeviceBackend::startCoalescing() {
  const std::lock_guard<std::mutex> guard(lock_);
  TORCH_CHECK(!bracket_, "startCoalescing: the previous bracket was not ended");
  bracket_ = std::make_unique<Submission>(c10d::OpType::COALESCED);
}

WorkPtr DeviceBackend::endCoalescing() {
  std::unique_ptr<Submission> bracket;
  std::vector<WorkPtr> works;
  {
    const std::lock_guard<std::mutex> guard(lock_);
    TORCH_CHECK(bracket_, "endCoalescing: there is no bracket");
    bracket = std::move(bracket_);
    works = std::exchange(bracket_works_, {});
  }
  if (!bracket->calls.empty()) works.push_back(submit(std::move(*bracket), bracket_device_));
  if (works.size() < 2) return works.empty() ? nullptr : works[0];
  return c10::make_intrusive<BracketWork>(getRank(), std::move(works));
}

void DeviceBackend::discard_bracket() {
  const std::lock_guard<std::mutex> guard(lock_);
  bracket_.reset();
  bracket_works_.clear();
}

}  // namespace torch_backend
