// hooks.h: functions that a process group calls when its collectives end or fail.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "distributed/compat.h"

namespace torch_backend {

// Thread-safe. No function is called while a lock is held.
class GroupHooks {
 public:
  using OnCompletion = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;
  // Runs a function while the calling thread does not hold the interpreter's lock.
  using WithoutLock = std::function<void(const std::function<void()> &run)>;

  explicit GroupHooks(WithoutLock without) : without_lock(std::move(without)) {}
  GroupHooks(const GroupHooks &) = delete;
  GroupHooks &operator=(const GroupHooks &) = delete;
  ~GroupHooks();  // functions of run_later still run
  const WithoutLock without_lock;

  void add_abort(int64_t id, AbortHook hook);
  void remove_abort(int64_t id);
  void add_completion(int64_t id, CompletionHook hook);
  void remove_completion(int64_t id);
  void set_on_completion(OnCompletion hook);
  // Returns whether a function is called for each completed collective.
  bool has_completion();
  bool has_on_completion();

  // Calls the abort hooks. The exception of a hook is logged, and the other hooks still run.
  void aborting();
  void completed(const CompletionHookArgs &arguments);
  void completed(const std::shared_ptr<c10d::WorkInfo> &info);

  // Runs a function after those of earlier calls, on a separate thread, which may wait for the device.
  void run_later(std::function<void()> function);

  // begin: a collective was submitted. end: its functions have run, or it has failed.
  void begin();
  void end();
  // Records that the group's failure was thrown to the program, or that the program aborted the group.
  void failure_is_known() { failure_is_known_ = true; }
  bool is_failure_known() const { return failure_is_known_; }
  // Waits until every collective that has begun has ended.
  void wait_for_all();

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  // Shared pointers, because a function that Python owns is copied and destroyed only while no lock is held.
  std::map<int64_t, std::shared_ptr<AbortHook>> abort_;
  std::map<int64_t, std::shared_ptr<CompletionHook>> completion_;
  std::shared_ptr<OnCompletion> on_completion_;
  int64_t pending_ = 0;
  struct Worker;
  std::shared_ptr<Worker> worker_;  // of run_later, with its thread; created by its first call
  std::atomic<bool> failure_is_known_{false};
};

// Returns the milliseconds since abort hooks were last called in this process, or -1 if they never were.
int64_t ms_since_abort();

}  // namespace torch_backend
