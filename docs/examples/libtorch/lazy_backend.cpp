// A vendor's compiler for lazy programs, in C++. It lowers add, multiply and negate of float32 vectors to a list of
// steps, and executes the list on the host, in the order of the stream. A real compiler generates code for the device.
// It needs a device whose memory the host may read, such as `fake`.
#include <ATen/ATen.h>
#include <hal/lazy.h>
#include <hal/status.h>
#include <torch_backend/torch_backend.h>

#include <cstring>
#include <functional>
#include <iostream>
#include <vector>

namespace vendor {

// One element-wise operator: which buffers, and on how many elements.
struct Step {
  char kind;
  uint32_t a, b, result, node;
  int64_t count;
};

class Program : public torch_backend::Computation {
 public:
  explicit Program(std::vector<Step> steps) : steps_(std::move(steps)) {}

  void Execute(const hal_ir_run_t &run) override {
    auto *work = new std::function<void()>([this, buffers = addresses(run), alphas = numbers(run)] {
      for (size_t s = 0; s < steps_.size(); ++s) {
        const Step &step = steps_[s];
        const float *const a = buffers[step.a], *const b = buffers[step.b];
        for (int64_t i = 0; i < step.count; ++i)
          buffers[step.result][i] = step.kind == '-' ? -a[i] : step.kind == '*' ? a[i] * b[i] : a[i] + alphas[s] * b[i];
      }
    });
    const auto call = [](void *data) {
      const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()> *>(data));
      (*owned)();
    };
    if (hal_stream_host_call(run.stream, call, work) != HAL_OK) throw std::runtime_error(hal_error_message());
  }

  std::string ToString() const override { return std::to_string(steps_.size()) + " steps"; }

 private:
  std::vector<float *> addresses(const hal_ir_run_t &run) const {
    std::vector<float *> result;
    for (const Step &step : steps_)
      for (const uint32_t buffer : {step.a, step.b, step.result}) {
        if (result.size() <= buffer) result.resize(buffer + 1);
        result[buffer] = static_cast<float *>(run.buffers[buffer]);
      }
    return result;
  }

  // The numbers of this run: a changing learning rate compiles nothing.
  std::vector<float> numbers(const hal_ir_run_t &run) const {
    std::vector<float> result;
    for (const Step &step : steps_) {
      const hal_op_call_t &call = *run.calls[step.node];
      const hal_value_t *const alpha = call.arg_count > 2 ? &call.args[2] : nullptr;
      result.push_back(!alpha                           ? 1.0f
                       : alpha->tag == HAL_VALUE_DOUBLE ? float(alpha->u.d)
                       : alpha->tag == HAL_VALUE_INT    ? float(alpha->u.i)
                                                        : 1.0f);
    }
    return result;
  }

  std::vector<Step> steps_;
};

class Context : public torch_backend::LoweringContext {
 public:
  using LoweringContext::LoweringContext;
  std::unique_ptr<torch_backend::Computation> Build() override { return std::make_unique<Program>(std::move(steps)); }
  std::vector<Step> steps;
};

class Lowering : public torch_backend::NodeLowering {
 public:
  bool Supports(const char *name, const hal_op_call_t &call) const override {
    return (call.flags & HAL_CALL_DENSE) && kind_of(name) && call.results[0]->dtype == HAL_FLOAT32 &&
           call.args[0].tag == HAL_VALUE_TENSOR && (kind_of(name) == '-' || call.args[1].tag == HAL_VALUE_TENSOR);
  }

  bool Lower(const hal_ir_node_t &node, torch_backend::LoweringContext &context) override {
    int64_t count = 1;
    const hal_tensor_t &result = *node.writes[0].tensor;
    for (int32_t d = 0; d < result.ndim; ++d) count *= result.sizes[d];
    for (uint32_t k = 0; k < node.read_count; ++k)
      if (hal_ir_read(&node, k)->offset) return false;  // parts of buffers are left to the device's kernels
    if (node.writes[0].offset || count == 0) return false;
    auto &steps = static_cast<Context &>(context).steps;
    const hal_ir_t &ir = context.ir();
    const auto number = static_cast<uint32_t>(
        (reinterpret_cast<const char *>(&node) - reinterpret_cast<const char *>(ir.nodes)) / ir.node_size);
    steps.push_back({kind_of(node.name), node.reads[0].buffer, hal_ir_read(&node, node.read_count - 1)->buffer,
                     node.writes[0].buffer, number, count});
    return true;
  }

 private:
  static char kind_of(const char *name) {
    return !std::strcmp(name, "add.Tensor")   ? '+'
           : !std::strcmp(name, "mul.Tensor") ? '*'
           : !std::strcmp(name, "neg")        ? '-'
                                              : 0;
  }
};

class Backend : public torch_backend::BackendImplInterface {
 public:
  const char *Name() const override { return "abacus"; }
  torch_backend::NodeLowering &GetNodeLowering() override { return lowering_; }
  std::unique_ptr<torch_backend::LoweringContext> CreateLoweringContext(const hal_ir_t &ir) override {
    return std::make_unique<Context>(ir);
  }

 private:
  Lowering lowering_;
};

}  // namespace vendor

int main(int argc, char **argv) {
  torch_backend::open(argc > 1 ? argv[1] : "fake");
  const torch_backend::BackendRegistrar registrar(std::make_unique<vendor::Backend>());
  const at::Tensor host = at::arange(1000, at::kFloat), x = host.to(torch_backend::kDeviceType);
  for (int step = 0; step < 3; ++step) {
    hal_lazy_t *lazy = nullptr;
    if (hal_lazy_begin(nullptr, nullptr, &lazy) != HAL_OK) return 1;
    const at::Tensor y = at::neg(at::mul(at::add(x, x, step), x)).sigmoid();  // sigmoid is the device's
    if (hal_lazy_end(lazy) != HAL_OK) return 1;
    if (!at::allclose(y.cpu(), at::neg(at::mul(at::add(host, host, step), host)).sigmoid())) return 1;
  }
  const hal_compiler_info_t info = registrar.info();
  std::cout << info.compiled << " graph compiled, " << info.executed << " programs of " << info.operators
            << " operators executed\n";
  return info.compiled == 1 && info.executed == 3 ? 0 : 1;
}
