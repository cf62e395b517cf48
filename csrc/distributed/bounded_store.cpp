// bounded_store.cpp: see bounded_store.h.
#include "distributed/bounded_store.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace torch_backend {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// Within which a server that works responds to a call after the limit. Longer than a pause of a busy machine.
constexpr milliseconds kGrace(500);

// Returns the store over TCP below prefixes, or nullptr.
const c10d::TCPStore *tcp_of(c10d::Store &store) {
  auto *const prefixed = dynamic_cast<c10d::PrefixStore *>(&store);
  const BoundedStore::StorePtr below = prefixed ? prefixed->getUnderlyingNonPrefixStore() : BoundedStore::StorePtr();
  return dynamic_cast<const c10d::TCPStore *>(below ? below.get() : &store);
}

}  // namespace

// ---- the thread ----
// Shared with the thread, which may outlive the store.
struct BoundedStore::Caller {
  std::mutex lock;
  std::condition_variable changed;
  std::function<void()> call;  // runs; empty: none
  uint64_t begun = 0, ended = 0;
  bool ends = false, is_lost = false;

  void run_calls() {
    std::unique_lock<std::mutex> guard(lock);
    for (;;) {
      changed.wait(guard, [&] { return call || ends; });
      if (!call) return;
      guard.unlock();
      call();
      guard.lock();
      call = nullptr;
      ended++;
      changed.notify_all();
    }
  }

  // Returns whether the call has ended. The caller holds the lock.
  bool run(std::unique_lock<std::mutex> &guard, std::function<void()> next, steady_clock::time_point until) {
    if (!changed.wait_until(guard, until, [&] { return !call || is_lost; }) || is_lost) return false;
    call = std::move(next);
    changed.notify_all();
    const auto number = ++begun;
    return changed.wait_until(guard, until, [&] { return ended >= number; });
  }
};

BoundedStore::BoundedStore(StorePtr store, milliseconds timeout)
    : Store(store->getTimeout()), store_(std::move(store)), deadline_(steady_clock::now() + timeout) {
  const c10d::TCPStore *const tcp = tcp_of(*store_);
  if (tcp == nullptr) return;
  address_ = " at " + tcp->getHost() + ":" + std::to_string(tcp->getPort());
  caller_ = std::make_shared<Caller>();
  thread_ = std::thread([caller = caller_] { caller->run_calls(); });
}

BoundedStore::~BoundedStore() { end_limit(); }

// The thread of a lost call continues to use the store, which is never destroyed.
void BoundedStore::end_limit() {
  if (!thread_.joinable()) return;
  bool is_lost = false;
  {
    const std::lock_guard<std::mutex> guard(caller_->lock);
    caller_->ends = true;
    is_lost = caller_->is_lost;
    caller_->changed.notify_all();
  }
  if (!is_lost) return thread_.join();
  StorePtr(store_).release();
  thread_.detach();
}

bool BoundedStore::run(std::function<void()> call) {
  const auto until = std::max(deadline_, steady_clock::now() + kGrace);
  std::unique_lock<std::mutex> guard(caller_->lock);
  if (caller_->ends && !caller_->is_lost) return false;
  if (caller_->run(guard, std::move(call), until)) return true;
  caller_->is_lost = true;
  C10_THROW_ERROR(DistStoreError, "no response within the time limit");
}

template <typename Result>
Result BoundedStore::bounded(std::function<Result(c10d::Store &)> call) {
  struct Outcome {
    std::optional<Result> result;
    std::exception_ptr error;
  };
  if (!caller_) return call(*store_);
  const auto outcome = std::make_shared<Outcome>();
  const auto work = [outcome, call, store = store_.get()] {
    try {
      outcome->result = call(*store);
    } catch (...) {
      outcome->error = std::current_exception();
    }
  };
  if (!run(work)) return call(*store_);
  if (outcome->error) std::rethrow_exception(outcome->error);
  return std::move(*outcome->result);
}

// ---- the calls ----
c10::intrusive_ptr<c10d::Store> BoundedStore::clone() {
  return bounded<StorePtr>([](c10d::Store &store) { return store.clone(); });
}

void BoundedStore::set(const std::string &key, const Bytes &value) {
  bounded<bool>([key, value](c10d::Store &store) {
    store.set(key, value);
    return true;
  });
}

BoundedStore::Bytes BoundedStore::compareSet(const std::string &key, const Bytes &current, const Bytes &value) {
  return bounded<Bytes>([key, current, value](c10d::Store &store) { return store.compareSet(key, current, value); });
}

BoundedStore::Bytes BoundedStore::get(const std::string &key) {
  return bounded<Bytes>([key](c10d::Store &store) { return store.get(key); });
}

int64_t BoundedStore::add(const std::string &key, int64_t value) {
  return bounded<int64_t>([key, value](c10d::Store &store) { return store.add(key, value); });
}

bool BoundedStore::deleteKey(const std::string &key) {
  return bounded<bool>([key](c10d::Store &store) { return store.deleteKey(key); });
}

bool BoundedStore::check(const Keys &keys) {
  return bounded<bool>([keys](c10d::Store &store) { return store.check(keys); });
}

int64_t BoundedStore::getNumKeys() {
  return bounded<int64_t>([](c10d::Store &store) { return store.getNumKeys(); });
}

void BoundedStore::wait(const Keys &keys, const milliseconds &timeout) {
  bounded<bool>([keys, timeout](c10d::Store &store) {
    store.wait(keys, timeout);
    return true;
  });
}

}  // namespace torch_backend
