// lazy_backend.h: a vendor's compiler for lazy programs, in C++: the classes of Lazy Tensors Core's vendor interface, over hal/compiler.h.
//
// A backend says which operators it lowers, makes a context for each graph of them, lowers its nodes one by one, and builds a computation, which is kept and
// executed in their place. Operators that it does not lower, and graphs that it refuses, run on the device's kernels.
#pragma once

#include <hal/compiler.h>

#include <cstdint>
#include <memory>
#include <string>

namespace torch_backend {

// What a graph was compiled to.
class Computation {
 public:
  virtual ~Computation() = default;

  // Queues it on `run.stream`, on the buffers of `run`. Called with locks of the HAL: hal_stream_host_call and hal_stream_native may be called. An exception is told to who asked for
  // the work.
  virtual void Execute(const hal_ir_run_t &run) = 0;

  // What it is, for reports.
  virtual std::string ToString() const { return ""; }
};

// What is known while a graph is lowered.
class LoweringContext {
 public:
  // `ir` is valid as long as the context is.
  explicit LoweringContext(const hal_ir_t &ir) : ir_(ir) {}
  virtual ~LoweringContext() = default;
  LoweringContext(const LoweringContext &) = delete;
  LoweringContext &operator=(const LoweringContext &) = delete;

  // The graph: its nodes in their order, the buffers, and which values these hold. Since 0.2.
  const hal_ir_t &ir() const { return ir_; }

  // Makes the computation, when all nodes were lowered.
  virtual std::unique_ptr<Computation> Build() = 0;

 private:
  const hal_ir_t &ir_;
};

// Lowers operators.
class NodeLowering {
 public:
  virtual ~NodeLowering() = default;

  // Tells whether an operator ("add.Tensor") with these arguments may be in a graph. Called when it is recorded: quick, by any thread.
  virtual bool Supports(const char *name, const hal_op_call_t &call) const = 0;

  // Lowers a node into the context; false = the graph is refused, and its operators run one by one.
  virtual bool Lower(const hal_ir_node_t &node, LoweringContext &context) = 0;
};

// A backend. Its functions are called by one thread at a time for a device, but for NodeLowering::Supports.
class BackendImplInterface {
 public:
  virtual ~BackendImplInterface() = default;

  // For messages.
  virtual const char *Name() const = 0;

  // Who lowers nodes; lives as long as the backend.
  virtual NodeLowering &GetNodeLowering() = 0;

  // A context for a graph.
  virtual std::unique_ptr<LoweringContext> CreateLoweringContext(const hal_ir_t &ir) = 0;

  // Whether a graph with other numbers is another one, so that computations may hold them as constants. By default numbers are read from each run's calls.
  virtual bool FixesNumbers() const { return false; }
};

// Makes a backend that of a device, in place of the one before, and ends that when it is destroyed, unless another has taken its place.
class BackendRegistrar {
 public:
  // Throws c10::Error when a stream of the device is lazy now, and c10::IndexError (hal's HAL_OUT_OF_RANGE) when there is no such device. Since 0.2.
  explicit BackendRegistrar(std::unique_ptr<BackendImplInterface> backend, int32_t device = 0);
  // Waits for the device. While one of its streams is lazy the backend stays, for the rest of the process, with a warning.
  ~BackendRegistrar();
  BackendRegistrar(const BackendRegistrar &) = delete;
  BackendRegistrar &operator=(const BackendRegistrar &) = delete;

  // What it has done. Since 0.2.
  hal_compiler_info_t info() const;

 private:
  std::unique_ptr<BackendImplInterface> backend_;
  int32_t device_;
};

}  // namespace torch_backend
