// transport.cpp: see transport.h.
#include "distributed/transport.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "hal/hal.h"

namespace torch_backend {
namespace {

using std::chrono::milliseconds;
using TensorList = std::vector<at::Tensor>;

struct Transport {
  c10::intrusive_ptr<c10d::Backend> backend;
  std::atomic<bool> is_aborted{false};
  std::mutex lock;
  std::string reason;                            // protected by `lock`, as the member below
  std::vector<c10d::Work *> sends_and_receives;  // with a thread that waits for them
};

// ---- waiting ----
// The interval at which a wait checks whether the group was aborted.
constexpr milliseconds kSlice(100);

struct Aborted {};

void wait_for(Transport &transport, const c10::intrusive_ptr<c10d::Work> &work, milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!work->isCompleted()) {
    if (transport.is_aborted) throw Aborted();
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    try {
      work->wait(std::min(kSlice, left));
    } catch (const std::exception &) {
      // Either the interval or the work has ended; isCompleted returns which.
    }
  }
  work->wait(milliseconds(1));
}

// Waits for a send or receive in one call, not in slices, because a wait that times out ends the connection. abort()
// ends the wait.
void wait_for_pair(Transport &transport, const c10::intrusive_ptr<c10d::Work> &work, milliseconds timeout) {
  auto &all = transport.sends_and_receives;
  const auto change = [&](auto &&what) {
    const std::lock_guard<std::mutex> guard(transport.lock);
    what();
  };
  change([&] { all.push_back(work.get()); });
  std::exception_ptr error;
  try {
    if (!transport.is_aborted) work->wait(timeout);
  } catch (...) {
    error = std::current_exception();
  }
  change([&] { all.erase(std::find(all.begin(), all.end(), work.get())); });
  if (transport.is_aborted) throw Aborted();
  if (error) std::rethrow_exception(error);
}

// ---- tensors over the memory of a call ----
at::Tensor over(const void *data, uint64_t count, at::ScalarType type) {
  return at::from_blob(const_cast<void *>(data), {static_cast<int64_t>(count)}, at::TensorOptions().dtype(type));
}

int64_t element_size(const hal_collective_t &call) {
  return static_cast<int64_t>(c10::elementSize(static_cast<at::ScalarType>(call.dtype)));
}

// The offset of each rank's block in bytes.
struct Blocks {
  std::vector<int64_t> sizes, offsets;
  int64_t total = 0;
  bool is_dense = true;  // the blocks are contiguous, as Gloo requires
};

Blocks blocks_of(const hal_collective_t &call, int ranks, const uint64_t *counts, const uint64_t *displs) {
  Blocks blocks;
  for (int i = 0; i < ranks; i++) {
    const auto size = static_cast<int64_t>(counts ? counts[i] : call.count) * element_size(call);
    const int64_t offset = displs ? static_cast<int64_t>(displs[i]) * element_size(call) : blocks.total;
    blocks.is_dense &= offset == blocks.total;
    blocks.sizes.push_back(size), blocks.offsets.push_back(offset);
    blocks.total += size;
  }
  return blocks;
}

// Returns one block of `size` bytes for one rank.
Blocks block_of(const hal_collective_t &call, int ranks, int rank) {
  Blocks blocks;
  blocks.sizes.assign(static_cast<size_t>(ranks), 0), blocks.offsets.assign(static_cast<size_t>(ranks), 0);
  if (rank >= 0)
    blocks.sizes[static_cast<size_t>(rank)] = blocks.total = static_cast<int64_t>(call.count) * element_size(call);
  return blocks;
}

at::Tensor packed(const void *memory, const Blocks &blocks) {
  if (blocks.is_dense) return over(memory, static_cast<uint64_t>(blocks.total), at::kByte);
  at::Tensor result = at::empty({blocks.total}, at::kByte);
  auto *to = static_cast<char *>(result.mutable_data_ptr());
  for (size_t i = 0; i < blocks.sizes.size(); to += blocks.sizes[i++])
    if (blocks.sizes[i])
      std::memcpy(to, static_cast<const char *>(memory) + blocks.offsets[i], static_cast<size_t>(blocks.sizes[i]));
  return result;
}

void unpack(const at::Tensor &from, void *memory, const Blocks &blocks) {
  if (from.data_ptr() == memory) return;
  const auto *data = static_cast<const char *>(from.data_ptr());
  for (size_t i = 0; i < blocks.sizes.size(); data += blocks.sizes[i++])
    if (blocks.sizes[i])
      std::memcpy(static_cast<char *>(memory) + blocks.offsets[i], data, static_cast<size_t>(blocks.sizes[i]));
}

// ---- one collective ----
class Call {
 public:
  Call(Transport &transport, const hal_collective_t &call, milliseconds timeout)
      : transport_(transport), gloo_(*transport.backend), call_(call), timeout_(timeout) {}

  void run() {
    switch (call_.op) {
      case HAL_COMM_ALL_REDUCE:
        return all_reduce(call_.recv, call_.count);
      case HAL_COMM_REDUCE:
        return reduce();
      case HAL_COMM_REDUCE_SCATTER:
        return reduce_scatter();
      case HAL_COMM_BROADCAST:
        return broadcast();
      case HAL_COMM_ALL_GATHER:
        return all_gather();
      case HAL_COMM_ALL_TO_ALL:
        return exchange(each_sent(), each_received());
      case HAL_COMM_GATHER:
        return exchange(block_of(call_, size(), call_.peer), is_root() ? each_received() : block_of(call_, size(), -1));
      case HAL_COMM_SCATTER:
        return exchange(is_root() ? each_sent() : block_of(call_, size(), -1), block_of(call_, size(), call_.peer));
      case HAL_COMM_SEND:
        return send();
      case HAL_COMM_RECV:
        return receive();
      default:
        return barrier();
    }
  }

 private:
  int size() const { return gloo_.getSize(); }
  bool is_root() const { return gloo_.getRank() == call_.peer; }
  Blocks each_sent() const { return blocks_of(call_, size(), call_.send_counts, call_.send_displs); }
  Blocks each_received() const { return blocks_of(call_, size(), call_.recv_counts, call_.recv_displs); }
  void wait(const c10::intrusive_ptr<c10d::Work> &work) { wait_for(transport_, work, timeout_); }

  // Returns the tensor that Gloo reduces in place: the elements in a supported type, already scaled.
  at::Tensor operand(const at::Tensor &elements) const {
    at::Tensor result = elements;
    if (elements.is_complex()) result = at::view_as_real(elements).reshape(-1);
    if (c10::isReducedFloatingType(elements.scalar_type())) result = elements.to(at::kFloat);
    if (elements.scalar_type() == at::kBool) result = elements.view(at::kByte);
    if (call_.reduce == HAL_REDUCE_PREMUL_SUM) result = result.mul(scale());
    return result;
  }

  c10::Scalar scale() const {
    if (call_.dtype == HAL_FLOAT64) return *static_cast<const double *>(call_.scale);
    return *static_cast<const float *>(call_.scale);
  }

  // The elements are already divided for averages, before they are rounded. "Or" of bools is their maximum and "and"
  // their minimum; "xor" is that of bytes.
  c10d::ReduceOp reduction() const {
    using R = c10d::ReduceOp;
    const bool is_bool = call_.dtype == HAL_BOOL;
    switch (call_.reduce) {
      case HAL_REDUCE_PROD:
        return is_bool ? R::MIN : R::PRODUCT;
      case HAL_REDUCE_MIN:
        return R::MIN;
      case HAL_REDUCE_MAX:
        return R::MAX;
      case HAL_REDUCE_BAND:
        return R::BAND;
      case HAL_REDUCE_BOR:
        return R::BOR;
      case HAL_REDUCE_BXOR:
        return R::BXOR;
      default:
        return is_bool ? R::MAX : R::SUM;
    }
  }

  // Gloo reduces in place: directly in the result if Gloo supports its type, which needs no additional memory.
  void reduce_into(const at::Tensor &result, const at::Tensor &elements) {
    TensorList tensors{operand(elements)};
    if (tensors[0].data_ptr() == elements.data_ptr()) {
      if (result.data_ptr() != elements.data_ptr()) result.copy_(elements);
      tensors[0] = operand(result);
    }
    c10d::AllreduceOptions options;
    options.reduceOp = reduction(), options.timeout = timeout_;
    if (tensors[0].numel()) wait(gloo_.allreduce(tensors, options));
    const bool is_average = call_.reduce == HAL_REDUCE_AVG;
    if (is_average) tensors[0] = tensors[0].is_floating_point() ? tensors[0].div_(size()) : tensors[0].div(size());
    if (tensors[0].data_ptr() == result.data_ptr()) return;
    const at::Tensor flat = result.is_complex()                 ? at::view_as_real(result).reshape(-1)
                            : result.scalar_type() == at::kBool ? result.view(at::kByte)
                                                                : result;
    flat.copy_(tensors[0]);
  }

  at::ScalarType type() const { return static_cast<at::ScalarType>(call_.dtype); }

  void all_reduce(void *to, uint64_t count) { reduce_into(over(to, count, type()), over(call_.send, count, type())); }

  void reduce() {
    const at::Tensor own =
        is_root() ? over(call_.recv, call_.count, type()) : at::empty({static_cast<int64_t>(call_.count)}, type());
    reduce_into(own, over(call_.send, call_.count, type()));
  }

  // Gloo also computes the complete reduction on every rank.
  void reduce_scatter() {
    const Blocks blocks = each_sent();
    const at::Tensor elements = packed(call_.send, blocks).view(type());
    const at::Tensor all = at::empty_like(elements);
    reduce_into(all, elements);
    const auto rank = static_cast<size_t>(gloo_.getRank());
    int64_t start = 0;
    for (size_t i = 0; i < rank; i++) start += blocks.sizes[i];
    if (blocks.sizes[rank])
      std::memcpy(call_.recv, static_cast<const char *>(all.data_ptr()) + start,
                  static_cast<size_t>(blocks.sizes[rank]));
  }

  void broadcast() {
    const uint64_t bytes = call_.count * static_cast<uint64_t>(element_size(call_));
    if (bytes == 0) return;
    TensorList tensors{over(is_root() ? call_.send : call_.recv, bytes, at::kByte)};
    c10d::BroadcastOptions options;
    options.rootRank = call_.peer, options.timeout = timeout_;
    wait(gloo_.broadcast(tensors, options));
    if (is_root() && call_.recv && call_.recv != call_.send) std::memcpy(call_.recv, call_.send, bytes);
  }

  void all_gather() {
    const Blocks to = each_received();
    if (call_.recv_counts || !to.is_dense || to.total == 0) {
      Blocks from = block_of(call_, size(), -1);
      from.sizes.assign(from.sizes.size(), static_cast<int64_t>(call_.count) * element_size(call_));
      return exchange(from, to);
    }
    at::Tensor all = over(call_.recv, static_cast<uint64_t>(to.total), at::kByte);
    at::Tensor own = over(call_.send, call_.count * static_cast<uint64_t>(element_size(call_)), at::kByte).clone();
    c10d::AllgatherOptions options;
    options.timeout = timeout_;
    wait(gloo_._allgather_base(all, own, options));
  }

  void exchange(Blocks from, Blocks to) {
    from.is_dense &= std::accumulate(from.sizes.begin(), from.sizes.end(), int64_t{0}) == from.total;
    if (!from.is_dense) from.total = std::accumulate(from.sizes.begin(), from.sizes.end(), int64_t{0});
    at::Tensor sent = packed(call_.send, from);
    at::Tensor received =
        to.is_dense ? over(call_.recv, static_cast<uint64_t>(to.total), at::kByte) : at::empty({to.total}, at::kByte);
    c10d::AllToAllOptions options;
    options.timeout = timeout_;
    wait(gloo_.alltoall_base(received, sent, to.sizes, from.sizes, options));
    unpack(received, call_.recv, to);
  }

  void send() {
    TensorList tensors{over(call_.send, call_.count * static_cast<uint64_t>(element_size(call_)), at::kByte)};
    if (tensors[0].numel())
      wait_for_pair(transport_, gloo_.send(tensors, call_.peer, static_cast<int>(call_.tag)), timeout_);
  }

  void receive() {
    TensorList tensors{over(call_.recv, call_.count * static_cast<uint64_t>(element_size(call_)), at::kByte)};
    if (tensors[0].numel())
      wait_for_pair(transport_, gloo_.recv(tensors, call_.peer, static_cast<int>(call_.tag)), timeout_);
  }

  void barrier() {
    c10d::BarrierOptions options;
    options.timeout = timeout_;
    wait(gloo_.barrier(options));
  }

  Transport &transport_;
  c10d::Backend &gloo_;
  const hal_collective_t &call_;
  const milliseconds timeout_;
};

// ---- the table ----
// Gloo reports the kind of a failure only in its text.
hal_status_t status_of(const std::string &text) {
  const auto says = [&](const char *words) { return text.find(words) != std::string::npos; };
  if (says("imed out") || says("imeout")) return HAL_NOT_READY;
  if (says("losed by peer") || says("onnection reset") || says("onnection refused") || says("roken pipe"))
    return HAL_UNAVAILABLE;
  return HAL_INTERNAL;
}

hal_status_t check_supported(const hal_collective_t &call) {
  const bool reduces =
      call.op == HAL_COMM_ALL_REDUCE || call.op == HAL_COMM_REDUCE || call.op == HAL_COMM_REDUCE_SCATTER;
  const bool is_complex = call.dtype == HAL_COMPLEX64 || call.dtype == HAL_COMPLEX128;
  if (reduces && (call.dtype == HAL_INT16 || (is_complex && call.reduce == HAL_REDUCE_PROD)))
    return hal_error_set(HAL_UNIMPLEMENTED, "Gloo does not reduce %s; convert the tensor, as to int32 or float32",
                         is_complex ? "products of complex numbers" : "int16");
  return HAL_OK;
}

hal_status_t run(void *context, const hal_collective_t *calls, uint32_t count, int64_t timeout_ns) {
  auto &transport = *static_cast<Transport *>(context);
  const milliseconds timeout(std::max<int64_t>(timeout_ns / 1000000, 1));
  c10::InferenceMode no_autograd;
  for (uint32_t i = 0; i < count; i++) HAL_RETURN_IF_ERROR(check_supported(calls[i]));
  try {
    for (uint32_t i = 0; i < count; i++) {
      if (transport.is_aborted) throw Aborted();
      Call(transport, calls[i], timeout).run();
    }
    return HAL_OK;
  } catch (const Aborted &) {
    const std::lock_guard<std::mutex> guard(transport.lock);
    return hal_error_set(HAL_ABORTED, "%s", transport.reason.c_str());
  } catch (const c10::Error &error) {
    return hal_error_set(status_of(error.what_without_backtrace()), "gloo: %s", error.what_without_backtrace());
  } catch (const std::exception &error) {
    return hal_error_set(status_of(error.what()), "gloo: %s", error.what());
  }
}

void abort(void *context, const char *reason) {
  auto &transport = *static_cast<Transport *>(context);
  const std::lock_guard<std::mutex> guard(transport.lock);
  if (transport.is_aborted) return;
  transport.reason = reason;
  transport.is_aborted = true;
  for (c10d::Work *work : transport.sends_and_receives) work->abort();
}

void destroy(void *context) { delete static_cast<Transport *>(context); }

}  // namespace

hal_comm_transport_t make_host_transport(c10::intrusive_ptr<c10d::Backend> backend) {
  hal_comm_transport_t transport{};
  transport.struct_size = sizeof(transport);
  auto *context = new Transport;
  context->backend = std::move(backend);
  transport.context = context;
  transport.name = "gloo";
  transport.run = run;
  transport.abort = abort;
  transport.destroy = destroy;
  return transport;
}

}  // namespace torch_backend
