// submission.h: the collectives of one call of torch, or of a bracket of calls, and the tensors that they use.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <c10/util/SmallVector.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/work.h"

namespace torch_backend {

// The type and sizes of a tensor, for the log of collectives.
struct Shape {
  c10::ScalarType dtype;
  c10::SmallVector<int64_t, 5> sizes;
};
using Shapes = c10::SmallVector<Shape, 1>;

struct Submission {
  c10d::OpType op = c10d::OpType::UNKNOWN;
  std::vector<hal_collective_t> calls;
  TensorList stash, outputs;
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool blocks = false;  // wait() waits on the host
  bool waits = false;   // the caller waits at once (async_op=False): its thread runs the collectives
  std::vector<std::shared_ptr<std::vector<uint64_t>>> arrays;
  std::vector<std::shared_ptr<double>> scales;
  std::vector<std::function<void()>> copies;
  Shapes inputs_logged, outputs_logged;
  std::optional<c10::Device> device;  // of its tensors

  explicit Submission(c10d::OpType op) : op(op) {}
  // `options` are those of the call, of any of torch's types for them.
  template <typename Options>
  Submission(c10d::OpType op, const Options &options) : op(op), timeout(options.timeout), waits(!options.asyncOp) {}

  // Returns a tensor whose elements are read in the order of its sizes.
  at::Tensor operand(const at::Tensor &tensor);
  // Does so for an operand whose memory may overlap that of `result`: it is copied, unless it starts `in_place`
  // elements after the result. No position is in place without a value.
  at::Tensor operand(const at::Tensor &tensor, const at::Tensor &result, std::optional<int64_t> in_place);
  // Returns memory for a result with the sizes of `tensor`: its own, or some that is copied there.
  at::Tensor result(const at::Tensor &tensor);
  // Returns memory that is read and written element by element. It has the order of the sizes on all ranks, which may
  // have different strides.
  at::Tensor in_place(const at::Tensor &tensor);
  // Returns one block of memory for the elements of several results.
  at::Tensor results(const TensorList &tensors);
  // Returns the elements of several operands in one block.
  at::Tensor operands(const TensorList &tensors);
  // Sets arrays of counts and displacements; none where all counts are `even`.
  void set_blocks(const uint64_t *&counts, const uint64_t *&displs, const std::vector<int64_t> &sizes, int64_t even);
  // Sets the reduction and its factor. Throws ValueError for one that is unknown.
  void set_reduction(hal_collective_t &call, const c10d::ReduceOp &op);
  // Returns the name of the call, such as "all_reduce" or "send 0->1".
  std::string name(int rank) const;
  // Returns its name in the log, as torch's analyzer of flight recorder dumps knows it.
  std::string logged_name(int rank) const;
  // Notes the shape of an operand or result that the functions above have not seen.
  void log_input(const at::Tensor &tensor) { inputs_logged.push_back(shape_of(tensor)); }
  void log_output(const at::Tensor &tensor) { outputs_logged.push_back(shape_of(tensor)); }
  // Appends what another call brought.
  void take(Submission &&other);
  // Returns a function that copies results to where the caller wants them; empty where they are there already.
  std::function<void()> finish();

 private:
  void copy_to(const at::Tensor &tensor, const at::Tensor &memory);
  // Throws ValueError unless all tensors of a call, or of a bracket, are on one device.
  void check_device(c10::Device device);
  static Shape shape_of(const at::Tensor &tensor);
  // Returns the shape of a tensor; several are one, as the memory for them is.
  static Shape shape_of(const TensorList &tensors);
};

// What a process group adds to the log of collectives (hal/comm.h) for a submission.
class LogEntry {
 public:
  LogEntry(const Submission &submission, uint32_t group, int rank, bool is_pair, uint64_t sequence, uint64_t operation,
           const char *stack);
  // Valid as long as this object, the submission and the text of the stack.
  const hal_comm_entry_t *get() const { return &entry_; }

 private:
  const std::string name_;
  c10::SmallVector<hal_comm_tensor_t, 2> tensors_;
  hal_comm_entry_t entry_{};
};

}  // namespace torch_backend
