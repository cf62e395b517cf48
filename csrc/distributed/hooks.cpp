// hooks.cpp: see hooks.h.
#include "distributed/hooks.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

namespace torch_backend {
namespace {

template <typename Hook, typename Argument>
void call(const Hook &hook, const Argument &argument) noexcept {
  try {
    hook(argument);
  } catch (const std::exception &error) {
    TORCH_WARN("a hook of a process group failed: ", error.what());
  }
}

template <typename Hook>
using Hooks = std::map<int64_t, std::shared_ptr<Hook>>;

template <typename Hook>
void add(std::mutex &lock, Hooks<Hook> &hooks, int64_t id, Hook &&hook, const char *kind) {
  TORCH_CHECK_VALUE(hook, "an empty ", kind, " hook");
  auto owned = std::make_shared<Hook>(std::move(hook));
  const std::lock_guard<std::mutex> guard(lock);
  TORCH_CHECK_VALUE(hooks.emplace(id, owned).second, "the number ", id, " is that of another ", kind,
                    " hook; unregister that first");
}

template <typename Hook>
void remove(std::mutex &lock, Hooks<Hook> &hooks, int64_t id, const char *kind) {
  std::shared_ptr<Hook> removed;
  const std::lock_guard<std::mutex> guard(lock);
  const auto found = hooks.find(id);
  TORCH_CHECK_VALUE(found != hooks.end(), "no ", kind, " hook has the number ", id);
  removed.swap(found->second);
  hooks.erase(found);
}

}  // namespace

void GroupHooks::add_abort(int64_t id, AbortHook hook) { add(lock_, abort_, id, std::move(hook), "abort"); }
void GroupHooks::remove_abort(int64_t id) { remove(lock_, abort_, id, "abort"); }
void GroupHooks::add_completion(int64_t id, CompletionHook hook) {
  add(lock_, completion_, id, std::move(hook), "completion");
}
void GroupHooks::remove_completion(int64_t id) { remove(lock_, completion_, id, "completion"); }

void GroupHooks::set_on_completion(OnCompletion hook) {
  auto owned = std::make_shared<OnCompletion>(std::move(hook));
  const std::lock_guard<std::mutex> guard(lock_);
  TORCH_CHECK(!on_completion_, "the process group has a hook for completed collectives already");
  on_completion_ = std::move(owned);
}

bool GroupHooks::has_completion() {
  const std::lock_guard<std::mutex> guard(lock_);
  return !completion_.empty();
}

bool GroupHooks::has_on_completion() {
  const std::lock_guard<std::mutex> guard(lock_);
  return on_completion_ != nullptr;
}

namespace {
std::atomic<int64_t> last_abort{-1};  // of the steady clock, in milliseconds; -1: none
int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
}  // namespace

int64_t ms_since_abort() {
  const int64_t last = last_abort;
  return last < 0 ? -1 : now_ms() - last;
}

void GroupHooks::aborting() {
  std::vector<std::shared_ptr<AbortHook>> hooks;
  {
    const std::lock_guard<std::mutex> guard(lock_);
    for (const auto &hook : abort_) hooks.push_back(hook.second);
  }
  if (!hooks.empty()) last_abort = now_ms();
  for (const auto &hook : hooks) call([&](int) { (*hook)(); }, 0);
}

void GroupHooks::completed(const CompletionHookArgs &arguments) {
  std::vector<std::shared_ptr<CompletionHook>> hooks;
  {
    const std::lock_guard<std::mutex> guard(lock_);
    for (const auto &hook : completion_) hooks.push_back(hook.second);
  }
  for (const auto &hook : hooks) call(*hook, arguments);
}

void GroupHooks::completed(const std::shared_ptr<c10d::WorkInfo> &info) {
  std::shared_ptr<OnCompletion> hook;
  {
    const std::lock_guard<std::mutex> guard(lock_);
    hook = on_completion_;
  }
  if (hook) call(*hook, info);
}

// A thread that runs functions in their order, until the group ends and none is left. It may end the group itself: the
// functions hold works, which hold the group's hooks.
struct GroupHooks::Worker {
  std::mutex lock;
  std::condition_variable changed;
  std::deque<std::function<void()>> functions;  // under `lock`
  bool is_ending = false;

  // Returns an empty function at the end.
  std::function<void()> next() {
    std::unique_lock<std::mutex> guard(lock);
    changed.wait(guard, [&] { return !functions.empty() || is_ending; });
    if (functions.empty()) return {};
    auto first = std::move(functions.front());
    functions.pop_front();
    return first;
  }
};

GroupHooks::~GroupHooks() {
  if (!worker_) return;
  {
    const std::lock_guard<std::mutex> guard(worker_->lock);
    worker_->is_ending = true;
  }
  worker_->changed.notify_all();
}

void GroupHooks::run_later(std::function<void()> function) {
  std::shared_ptr<Worker> worker;
  {
    const std::lock_guard<std::mutex> guard(lock_);
    if (!worker_) {
      worker_ = std::make_shared<Worker>();
      std::thread([worker = worker_] {
        while (auto next = worker->next()) next();
      }).detach();
    }
    worker = worker_;
  }
  {
    const std::lock_guard<std::mutex> guard(worker->lock);
    worker->functions.push_back(std::move(function));
  }
  worker->changed.notify_all();
}

void GroupHooks::begin() {
  const std::lock_guard<std::mutex> guard(lock_);
  pending_++;
}

void GroupHooks::end() {
  {
    const std::lock_guard<std::mutex> guard(lock_);
    pending_--;
  }
  changed_.notify_all();
}

void GroupHooks::wait_for_all() {
  std::unique_lock<std::mutex> guard(lock_);
  changed_.wait(guard, [&] { return pending_ == 0; });
}

}  // namespace torch_backend
