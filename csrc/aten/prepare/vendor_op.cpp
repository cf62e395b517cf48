// vendor_op.cpp: see vendor_op.h.
#include "aten/prepare/vendor_op.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <exception>

namespace torch_backend {

// ---- arguments of ATen's meta functions ----

namespace argument_types {

at::Tensor meta_of(const at::Tensor &tensor) {
  if (!tensor.defined() || tensor.device().type() != kDevice) return tensor;
  return at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

std::vector<at::Tensor> meta_of(const at::ITensorListRef &list) {
  std::vector<at::Tensor> metas;
  for (const at::Tensor &tensor : list) metas.push_back(meta_of(tensor));
  return metas;
}

c10::List<std::optional<at::Tensor>> meta_of(const c10::List<std::optional<at::Tensor>> &list) {
  c10::List<std::optional<at::Tensor>> metas;
  for (const std::optional<at::Tensor> tensor : list) {
    const bool masks =
        tensor && tensor->defined() && (tensor->scalar_type() == at::kBool || tensor->scalar_type() == at::kByte);
    TORCH_CHECK_NOT_IMPLEMENTED(!masks, "the number of elements that a mask selects is unknown without its elements");
    metas.push_back(meta_of(tensor));
  }
  return metas;
}

bool give(Call &call, uint32_t op, size_t &tensors, const at::Tensor &tensor) {
  const size_t index = tensors++;
  if (index >= rule_of(op).operands)
    call.none();
  else if (index > 0 && c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false))
    call.index(tensor);
  else
    call.in(tensor);
  return true;
}

}  // namespace argument_types

bool run_kernel(uint32_t op, c10::ArrayRef<Argument> arguments, const Outputs &outputs, size_t count) {
  const at::Tensor &result = outputs[0];
  const auto &first = *static_cast<const at::Tensor *>(arguments[0].argument);
  if (first.scalar_type() != result.scalar_type()) return false;  // the CPU's function reports the error
  Call call(op, result);
  bool possible = call.possible(), wanted = false;
  size_t tensors = 0;
  for (const Argument &each : arguments) possible = possible && each.type->put(call, op, tensors, each.argument);
  for (size_t i = 0; possible && i < count; i++) {
    const at::Tensor &each = outputs[static_cast<int64_t>(i)];
    wanted = wanted || each.numel() > 0;
    (i > 0 && each.scalar_type() == at::kLong) ? call.indices(each) : call.out(each);
  }
  return possible && (!wanted || call.run());
}

namespace {

ResultShape shape_of(const at::Tensor &result) {
  if (!result.defined()) return {};
  return {at::DimVector(result.sizes()), at::DimVector(result.strides()), result.scalar_type()};
}

// Calls ATen's meta function of the functional overload with the shapes of these arguments. Some meta functions in
// Python refuse arguments that the operator accepts, such as masked_fill a complex number without an imaginary part:
// then the shapes are unknown, and the implementation that runs in place of the vendor's reports an error if there is
// one.
std::shared_ptr<const ResultShapes> call_meta(const AtenOp &functional, c10::ArrayRef<Argument> arguments) {
  auto found = std::make_shared<ResultShapes>();
  ResultShapes &shapes = *found;
  shapes.is_determined = true;
  torch::jit::Stack stack;
  try {
    for (const Argument &each : arguments) each.type->push_meta(stack, each.argument);
    functional.handle().redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  } catch (const std::exception &) {
    return found;
  }
  shapes.is_known = true;
  for (const c10::IValue &result : stack) {
    if (result.isTensorList())
      for (const at::Tensor &tensor : result.toTensorVector()) shapes.results.push_back(shape_of(tensor));
    else
      shapes.results.push_back(result.isTensor() ? shape_of(result.toTensor()) : ResultShape());
  }
  return found;
}

// Adds a passed result to what a decline may depend on. Returns false if that is not enough: an operand may share
// memory with the result, which a temporary replaces then (fill). Only those of dense results have the same strides.
bool add_given(MetaKey &key, const at::Tensor &result) {
  key.add_result(result);
  return !result.defined() || result.is_non_overlapping_and_dense();
}

// What is remembered of a call, with the arguments of the functional overload. `given`: results that the caller has
// passed, if they are not among the arguments. Such a call shares no declines with others.
class RememberedCall {
 public:
  RememberedCall(const AtenOp &functional, c10::ArrayRef<Argument> arguments, c10::ArrayRef<at::Tensor> given = {})
      : functional_(&functional), arguments_(arguments), key_(functional) {
    find(given);
  }
  // With the arguments of the frozen list and all results: there are no shapes to remember.
  RememberedCall(uint32_t op, c10::ArrayRef<Argument> arguments, c10::ArrayRef<at::Tensor> results)
      : arguments_(arguments), key_(op) {
    find(results);
  }

  // Returns whether the device's plugin declines the call, with new results or in place.
  bool is_declined(c10::DeviceIndex device, bool in_place = false) const {
    return shapes_ && is_usual_ && (shapes_->declined.load(std::memory_order_relaxed) & bit(device, in_place)) != 0;
  }
  // Remembers that the plugin has declined the call, if it declines all calls like it: always for their dtypes
  // (`supported` is false), else by the operator's flag.
  void note_decline(const VendorCall &call, bool supported, c10::DeviceIndex device, bool in_place = false) {
    if (!(supported ? call.declines_alike() : call.is_possible())) return;
    if (!bit(device, in_place) || !key_.is_complete() || !is_usual_) return;
    if (!shapes_) remember(std::make_shared<const ResultShapes>());
    shapes_->declined.fetch_or(bit(device, in_place), std::memory_order_relaxed);
  }

  // Returns the shapes of the results. Only with a functional overload.
  const ResultShapes &shapes() {
    if (C10_LIKELY(shapes_ && shapes_->is_determined)) return *shapes_;
    const uint64_t declined = shapes_ ? shapes_->declined.load(std::memory_order_relaxed) : 0;
    remember(call_meta(*functional_, arguments_));
    shapes_->declined.fetch_or(declined, std::memory_order_relaxed);
    return *shapes_;
  }

 private:
  void find(c10::ArrayRef<at::Tensor> given) {
    for (const Argument &each : arguments_) each.type->add_to_key(key_, each.argument);
    for (const at::Tensor &result : given) is_usual_ = add_given(key_, result) && is_usual_;
    if (C10_LIKELY(key_.is_complete())) shapes_ = remembered_shapes(key_);
  }
  // The bits of calls in place are the upper half.
  uint64_t bit(c10::DeviceIndex device, bool in_place) const {
    return key_.is_aligned() && device < 32 ? UINT64_C(1) << (device + (in_place ? 32 : 0)) : 0;
  }
  void remember(std::shared_ptr<const ResultShapes> shapes) {
    shapes_ = std::move(shapes);
    if (key_.is_complete()) remember_shapes(key_, shapes_);
  }

  const AtenOp *functional_ = nullptr;
  const c10::ArrayRef<Argument> arguments_;
  MetaKey key_;
  bool is_usual_ = true;  // passed results are dense; declines of other calls are not remembered, but shapes are
  std::shared_ptr<const ResultShapes> shapes_;
};

// Allocates results on the device with the shapes that ATen's meta function determines; returns false if there is none.
bool allocate_results(const ResultShapes &shapes, c10::DeviceIndex device, Results &results) {
  for (const ResultShape &shape : shapes.results)
    results.push_back(shape.dtype == c10::ScalarType::Undefined
                          ? at::Tensor()
                          : make_empty_strided(shape.sizes, shape.strides, shape.dtype, device));
  return shapes.is_known;
}

// Resizes passed results (out=, in index). Returns false if the plugin cannot fill them.
bool fit(const ResultShapes &shapes, c10::ArrayRef<at::Tensor> given) {
  if (!shapes.is_known || shapes.results.size() != given.size()) return false;
  for (size_t i = 0; i < given.size(); i++)
    if (shapes.results[i].dtype != given[i].scalar_type()) return false;
  for (size_t i = 0; i < given.size(); i++) at::native::resize_output(given[i], shapes.results[i].sizes);
  return true;
}

// Adds the arguments in the order of the frozen list. Returns false if they cannot be passed to the plugin.
bool shown(VendorCall &call, const VendorOp &op, c10::ArrayRef<Argument> arguments) {
  for (const uint8_t index : op.order) arguments[index].type->show(call, arguments[index].argument);
  return call.is_supported(op.number);
}

// Fills results that the caller has passed; the arguments are those of the functional overload. `in_place`: the results
// are among them.
bool fill_given(const VendorOp &op, c10::DeviceIndex device, c10::ArrayRef<Argument> shown_arguments,
                c10::ArrayRef<Argument> arguments, const Results &filled, bool in_place) {
  RememberedCall remembered(*op.functional, arguments, in_place ? c10::ArrayRef<at::Tensor>() : filled);
  if (remembered.is_declined(device, in_place)) return false;
  VendorCall call;
  const bool supported = shown(call, op, shown_arguments);
  if (supported && !fit(remembered.shapes(), filled)) return false;
  if (supported && fill(call, op.number, filled)) return true;
  remembered.note_decline(call, supported, device, in_place);
  return false;
}

// Calls the plugin with new results, whose shapes ATen's meta function determines; `further` are the arguments that are
// results, too.
bool run_new(const VendorOp &op, c10::DeviceIndex device, c10::ArrayRef<Argument> arguments, const Results &further,
             Results &results) {
  RememberedCall remembered(*op.functional, arguments);
  if (remembered.is_declined(device)) return false;
  VendorCall call;
  const bool supported = shown(call, op, arguments);
  if (supported) {
    if (!allocate_results(remembered.shapes(), device, results)) return false;
    for (const at::Tensor &result : results) call.add_result(result);
    for (const at::Tensor &result : further) call.add_result(result);
    if (C10_LIKELY(call.run(op.number))) return true;
  }
  remembered.note_decline(call, supported, device);
  return false;
}

}  // namespace

bool fill(VendorCall &call, uint32_t op, c10::ArrayRef<at::Tensor> results) {
  Results written;
  for (const at::Tensor &result : results) {
    written.push_back(result.defined() && call.reads(result) ? at::empty_like(result) : result);
    call.add_result(written.back());
  }
  if (!call.run(op)) return false;
  for (size_t i = 0; i < results.size(); i++)
    if (!written[i].is_same(results[i])) results[i].copy_(written[i]);
  return true;
}

namespace {
// Returns whether all results are defined. A function that creates results leaves them undefined if the call is
// invalid.
bool are_made(c10::ArrayRef<at::Tensor> results) {
  return std::any_of(results.begin(), results.end(), [](const at::Tensor &each) { return each.defined(); });
}
// Returns whether the results that the caller has passed have the dtypes of the created ones.
bool are_alike(const Results &made, const Outputs &outputs) {
  for (size_t i = 0; i < made.size(); i++)
    if (outputs.given(i) && made[i].defined() && outputs.given(i)->scalar_type() != made[i].scalar_type()) return false;
  return true;
}

// Returns filled results as those of the call; out= is resized to their layout.
void give(Outputs &outputs, Results &filled) {
  for (size_t i = 0; i < filled.size(); i++) {
    const auto at = static_cast<int64_t>(i);
    if (outputs.given(i)) outputs.set(at, filled[i].sizes(), filled[i].strides(), filled[i].options());
    outputs.put(at, std::move(filled[i]));
  }
}

thread_local uint32_t vendor_answered = kNoOp;  // the operator for which a function has called the vendor successfully

}  // namespace

bool call_vendor_op(uint32_t op, c10::ArrayRef<Argument> arguments, c10::ArrayRef<at::Tensor> results,
                    PhiloxState philox) {
  std::optional<RememberedCall> remembered;  // not of random numbers, whose state differs in each call
  const auto made = std::find_if(results.begin(), results.end(), [](const at::Tensor &each) { return each.defined(); });
  const c10::DeviceIndex device = made == results.end() ? c10::DeviceIndex(0) : made->device().index();
  if (made != results.end() && !philox.seed && !philox.offset && !philox.state)
    remembered.emplace(op, arguments, results);
  if (remembered && remembered->is_declined(device)) return false;
  VendorCall call;
  for (const Argument &each : arguments) each.type->show(call, each.argument);
  call.set_state(philox);
  const bool supported = call.is_supported(op);
  if (supported && fill(call, op, results)) {
    vendor_answered = op;
    return true;
  }
  if (remembered) remembered->note_decline(call, supported, device);
  return false;
}

void count_composed_call(uint32_t op) {
  if (std::exchange(vendor_answered, kNoOp) != op) count_composed(op);
}

bool call_vendor_op(const VendorOp &op, c10::DeviceIndex device, c10::ArrayRef<Argument> arguments, Results &results) {
  Results written;
  for (const uint8_t index : op.mutated) arguments[index].type->list(written, arguments[index].argument);
  if (op.kind == OverloadKind::kMakes && results.empty()) return run_new(op, device, arguments, written, results);
  if (op.kind == OverloadKind::kInplace || op.kind == OverloadKind::kOut) {
    const bool in_place = op.kind == OverloadKind::kInplace;
    const size_t inputs = arguments.size() - (in_place ? 0 : written.size());
    return fill_given(op, device, arguments, arguments.slice(0, inputs), written, in_place);
  }
  VendorCall call;
  if (!shown(call, op, arguments)) return false;
  if (!results.empty() && !are_made(results)) return false;
  for (const at::Tensor &result : results) call.add_result(result);
  for (const at::Tensor &result : written) call.add_result(result);
  if (C10_LIKELY(call.run(op.number))) return true;
  if (call.declines_alike() && op.kind == OverloadKind::kMakes)
    RememberedCall(*op.functional, arguments).note_decline(call, true, device);
  return false;
}

bool is_declined(const VendorOp &op, c10::DeviceIndex device, c10::ArrayRef<Argument> arguments) {
  return RememberedCall(*op.functional, arguments).is_declined(device);
}

bool fill_outputs(const VendorOp &op, c10::ArrayRef<Argument> arguments, Outputs &outputs, size_t count) {
  Results filled, given;
  for (size_t i = 0; i < count; i++) filled.push_back(outputs[static_cast<int64_t>(i)]);
  for (size_t i = 0; i < count; i++)
    if (outputs.given(i)) given.push_back(*outputs.given(i));
  const c10::DeviceIndex device = filled[0].device().index();
  RememberedCall remembered(*op.functional, arguments, given);
  if (remembered.is_declined(device)) return false;
  VendorCall call;
  const bool supported = shown(call, op, arguments);
  if (supported && fill(call, op.number, filled)) return true;
  remembered.note_decline(call, supported, device);
  return false;
}

bool fill_made(const VendorOp &op, c10::DeviceIndex device, c10::ArrayRef<Argument> arguments, Outputs &outputs,
               Results made) {
  VendorCall call;
  if (!shown(call, op, arguments) || !are_made(made) || !are_alike(made, outputs)) return false;
  if (!fill(call, op.number, made)) {
    if (call.declines_alike()) RememberedCall(*op.functional, arguments).note_decline(call, true, device);
    return false;
  }
  give(outputs, made);
  return true;
}

bool make_outputs(const VendorOp &op, c10::DeviceIndex device, c10::ArrayRef<Argument> arguments, Outputs &outputs,
                  size_t count) {
  Results made;
  if (outputs.given(0)) {
    for (size_t i = 0; i < count; i++) made.push_back(outputs[static_cast<int64_t>(i)]);
    return fill_given(op, device, arguments, arguments, made, false);
  }
  if (!run_new(op, device, arguments, {}, made)) return false;
  give(outputs, made);
  return true;
}

}  // namespace torch_backend
