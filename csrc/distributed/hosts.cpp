// hosts.cpp: see hosts.h.
#include "distributed/hosts.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "distributed/store.h"
#include "distributed/transport.h"
#include "hal/hal.h"

namespace torch_backend {
namespace {

using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using Keys = std::vector<std::string>;
using Bytes = std::vector<uint8_t>;

// A store whose waits end as soon as another rank has failed: those of `guard`, a table over the same store, until
// `release`.
class GuardedStore final : public c10d::Store {
 public:
  GuardedStore(StorePtr store, const hal_comm_store_t &guard)
      : Store(store->getTimeout()), store_(std::move(store)), guard_(guard) {}
  // The table is not used any more.
  void release() { guard_ = {}; }

  c10::intrusive_ptr<Store> clone() override { return store_->clone(); }
  void set(const std::string &key, const Bytes &value) override { store_->set(key, value); }
  Bytes compareSet(const std::string &key, const Bytes &current, const Bytes &value) override {
    return store_->compareSet(key, current, value);
  }
  Bytes get(const std::string &key) override {
    wait({key});
    return store_->get(key);
  }
  int64_t add(const std::string &key, int64_t value) override { return store_->add(key, value); }
  bool deleteKey(const std::string &key) override { return store_->deleteKey(key); }
  bool check(const Keys &keys) override { return store_->check(keys); }
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  bool hasExtendedApi() const override { return false; }
  void wait(const Keys &keys) override { wait(keys, getTimeout()); }
  void wait(const Keys &keys, const milliseconds &timeout) override {
    if (guard_.get == nullptr) return store_->wait(keys, timeout);
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (const auto &key : keys) {
      const auto left =
          std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - std::chrono::steady_clock::now());
      size_t size = 0;
      ::torch_backend::check(
          guard_.get(guard_.context, key.c_str(), std::max<int64_t>(left.count(), 1), nullptr, 0, &size));
    }
  }

 private:
  const StorePtr store_;
  hal_comm_store_t guard_;
};

// The context of hal_comm_hosts_t, until its `release`.
struct Connection {
  const c10::intrusive_ptr<BoundedStore> store;
  const DeviceBackend::MakeHostBackend *make;  // of the caller; until the ranks are connected
};

hal_status_t connect(void *context, const char *use, int32_t rank, int32_t size, const hal_comm_store_t *store,
                     int64_t timeout_ns, hal_comm_transport_t *transport) {
  const auto &connection = *static_cast<const Connection *>(context);
  const auto guarded = c10::make_intrusive<GuardedStore>(connection.store, *store);
  const auto timeout = std::chrono::duration_cast<milliseconds>(std::chrono::nanoseconds(timeout_ns));
  hal_status_t status = HAL_OK;
  try {
    *transport =
        make_host_transport((*connection.make)(use, {rank, size, guarded}, std::max(timeout, milliseconds(1))));
  } catch (const c10::Error &error) {
    status = hal_error_set(HAL_UNAVAILABLE, "gloo: %s", error.what_without_backtrace());
  } catch (const std::exception &error) {
    status = hal_error_set(HAL_UNAVAILABLE, "gloo: %s", error.what());
  }
  guarded->release();
  return status;
}

}  // namespace

hal_status_t make_hosts_transport(const DeviceBackend::Members &members, const DeviceBackend::MakeHostBackend &make,
                                  milliseconds timeout, uint32_t flags, hal_comm_transport_t *transport) {
  // The store of the group is that of other groups, too, whose calls would wait for those of the transport's thread.
  c10::intrusive_ptr<BoundedStore> own;
  HAL_RETURN_IF_ERROR(clone_store(members.store, "hosts", timeout, &own));
  auto *connection = new Connection{own, &make};
  const hal_comm_store_t store = store_table(*own);
  hal_comm_hosts_t hosts{};
  hosts.struct_size = sizeof(hosts);
  hosts.store = &store;
  hosts.name = (flags & HAL_COMM_HOSTS_FLAT) != 0 ? "gloo" : "hosts";
  hosts.rank = members.rank, hosts.size = members.size;
  hosts.timeout_ns = std::chrono::nanoseconds(timeout).count();
  hosts.flags = flags;
  hosts.context = connection;
  hosts.connect = connect;
  hosts.release = [](void *context) { delete static_cast<Connection *>(context); };
  const hal_status_t status = hal_comm_transport_hierarchical(&hosts, transport);
  own->end_limit();
  return status;
}

}  // namespace torch_backend
