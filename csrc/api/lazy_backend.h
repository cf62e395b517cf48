// lazy_backend.h: a vendor's compiler for lazy programs, in C++: the classes of Lazy Tensors Core's vendor interface,
// based on hal/compiler.h.
//
// A backend reports which operators it lowers. For each graph of them it creates a context, lowers the nodes one by
// one, and builds a computation. The computation is stored and executed in place of the operators. Other operators, and
// graphs that the backend refuses, run on the device's kernels.
#pragma once

#include <hal/compiler.h>

#include <cstdint>
#include <memory>
#include <string>

namespace torch_backend {

// The compiled form of a graph.
class Computation {
 public:
  virtual ~Computation() = default;

  // Queues the computation on `run.stream`, on the buffers of `run`. It is called with locks of the HAL held, but may
  // call hal_stream_host_call and hal_stream_native. An exception is returned to the caller that triggered the flush.
  virtual void Execute(const hal_ir_run_t &run) = 0;

  // Returns a description for reports.
  virtual std::string ToString() const { return ""; }
};

// The state while a graph is lowered.
class LoweringContext {
 public:
  // `ir` is valid as long as the context exists.
  explicit LoweringContext(const hal_ir_t &ir) : ir_(ir) {}
  virtual ~LoweringContext() = default;
  LoweringContext(const LoweringContext &) = delete;
  LoweringContext &operator=(const LoweringContext &) = delete;

  // The graph: its nodes in order, the buffers, and the values that these contain. Since 0.2.
  const hal_ir_t &ir() const { return ir_; }

  // Creates the computation after all nodes were lowered.
  virtual std::unique_ptr<Computation> Build() = 0;

 private:
  const hal_ir_t &ir_;
};

// Lowers operators.
class NodeLowering {
 public:
  virtual ~NodeLowering() = default;

  // Returns whether an operator ("add.Tensor") with these arguments may be part of a graph. Called when it is recorded,
  // by any thread; must be fast.
  virtual bool Supports(const char *name, const hal_op_call_t &call) const = 0;

  // Lowers a node into the context. Returns false to refuse the graph; its operators then run one by one.
  virtual bool Lower(const hal_ir_node_t &node, LoweringContext &context) = 0;
};

// A backend. For each device, one thread at a time calls its functions, except NodeLowering::Supports.
class BackendImplInterface {
 public:
  virtual ~BackendImplInterface() = default;

  // Returns the name for messages.
  virtual const char *Name() const = 0;

  // Returns the object that lowers nodes; it exists as long as the backend.
  virtual NodeLowering &GetNodeLowering() = 0;

  // Creates a context for a graph.
  virtual std::unique_ptr<LoweringContext> CreateLoweringContext(const hal_ir_t &ir) = 0;

  // Returns whether graphs with different numbers are different graphs, so that computations may contain the numbers as
  // constants. By default each run reads the numbers from its calls.
  virtual bool FixesNumbers() const { return false; }
};

// Sets the backend of a device, replacing the previous one. The destructor removes it, unless another backend has
// replaced it.
class BackendRegistrar {
 public:
  // Throws c10::Error if a stream of the device is lazy now, and c10::IndexError (HAL_OUT_OF_RANGE) if there is no such
  // device. Since 0.2.
  explicit BackendRegistrar(std::unique_ptr<BackendImplInterface> backend, int32_t device = 0);
  // Waits for the device. If one of its streams is lazy, the backend is not removed until the process ends, and a
  // warning is logged.
  ~BackendRegistrar();
  BackendRegistrar(const BackendRegistrar &) = delete;
  BackendRegistrar &operator=(const BackendRegistrar &) = delete;

  // Returns the statistics of the backend. Since 0.2.
  hal_compiler_info_t info() const;

 private:
  std::unique_ptr<BackendImplInterface> backend_;
  int32_t device_;
};

}  // namespace torch_backend
