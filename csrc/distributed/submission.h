// submission.h: the collectives of one call of torch, or of a bracket of calls, and the tensors that they use.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "distributed/work.h"

namespace torch_backend {

struct Submission {
  c10d::OpType op = c10d::OpType::UNKNOWN;
  std::vector<hal_collective_t> calls;
  TensorList stash, outputs;
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool blocks = false;  // wait() waits on the host
  std::vector<std::shared_ptr<std::vector<uint64_t>>> arrays;
  std::vector<std::shared_ptr<double>> scales;
  std::vector<std::function<void()>> copies;

  explicit Submission(c10d::OpType op, std::chrono::milliseconds timeout = c10d::kUnsetTimeout)
      : op(op), timeout(timeout) {}

  // Returns a tensor whose elements are read in the order of its sizes.
  at::Tensor operand(const at::Tensor &tensor);
  // Returns memory for a result with the sizes of `tensor`: its own, or some that is copied there.
  at::Tensor result(const at::Tensor &tensor);
  // Returns a tensor that is read and written element by element, in the order of its memory where it has no gaps.
  at::Tensor in_place(const at::Tensor &tensor);
  // Returns one block of memory for the elements of several results.
  at::Tensor results(const TensorList &tensors);
  // Returns the elements of several operands in one block.
  at::Tensor operands(const TensorList &tensors);
  // Sets arrays of counts and displacements; none where all counts are `even`.
  void set_blocks(const uint64_t *&counts, const uint64_t *&displs, const std::vector<int64_t> &sizes, int64_t even);
  // Sets the reduction and its factor. Throws ValueError for one that is unknown.
  void set_reduction(hal_collective_t &call, const c10d::ReduceOp &op);
  // Appends what another call brought.
  void take(Submission &&other);
  // Returns a function that copies results to where the caller wants them; empty where they are there already.
  std::function<void()> finish();

 private:
  void copy_to(const at::Tensor &tensor, const at::Tensor &memory);
};

}  // namespace torch_backend
