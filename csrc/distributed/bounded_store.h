// bounded_store.h: a store whose calls end. torch's TCPStore waits for its server without a time limit, which does not
// respond if its process is stopped or its host has lost the network.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace torch_backend {

// Forwards calls to another store. A call that has no response within the limit throws c10::DistStoreError, as do all
// later calls. Calls of stores other than TCPStore are forwarded without a limit. For any thread, except the end.
class BoundedStore final : public c10d::Store {
 public:
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  using Bytes = std::vector<uint8_t>;
  using Keys = std::vector<std::string>;

  // The limit is `timeout` from now, and a short time for calls after it.
  BoundedStore(StorePtr store, std::chrono::milliseconds timeout);
  ~BoundedStore() override;

  // Later calls have no limit, unless one was lost.
  void end_limit();
  // Returns the address of the server, " at host:port", or "" for a store without a server.
  const std::string &address() const { return address_; }

  c10::intrusive_ptr<Store> clone() override;
  void set(const std::string &key, const Bytes &value) override;
  Bytes compareSet(const std::string &key, const Bytes &current, const Bytes &value) override;
  Bytes get(const std::string &key) override;
  int64_t add(const std::string &key, int64_t value) override;
  bool deleteKey(const std::string &key) override;
  bool check(const Keys &keys) override;
  int64_t getNumKeys() override;
  bool hasExtendedApi() const override { return false; }
  void wait(const Keys &keys) override { wait(keys, getTimeout()); }
  void wait(const Keys &keys, const std::chrono::milliseconds &timeout) override;

 private:
  struct Caller;

  // Runs a call of the store on the thread. `call` owns what it uses, because it may run longer than this function.
  template <typename Result>
  Result bounded(std::function<Result(c10d::Store &)> call);
  // Returns false if calls have no limit any more.
  bool run(std::function<void()> call);

  const StorePtr store_;
  const std::chrono::steady_clock::time_point deadline_;
  std::string address_;
  std::shared_ptr<Caller> caller_;  // nullptr: calls never have a limit
  std::thread thread_;
};

}  // namespace torch_backend
