// kernel.cpp: see kernel.h. A launch parses its arguments by a string of one letter each, so that it need not determine
// types.
#include "kernel.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "core/status.h"
#include "hal/kernel.h"

namespace py = pybind11;

namespace torch_backend {
namespace {

constexpr size_t kMostArguments = 64;  // of 16 bytes at most: below OpenCL's 1024 bytes of arguments

union Value {
  void *address;
  int64_t integer;
  double number;
  float single;
  std::array<char, 16> bytes;  // of a tensor's element
};

// A kernel and its signature. `arguments`: p = a tensor of the device, v = the element of a tensor on the host, i = an
// int64, d = a float64, f = a float32. A kernel that reports errors receives the address of the stream's error record
// as its last argument.
class Kernel {
 public:
  Kernel(int32_t device, const std::string &name, const std::string &text, std::string arguments, bool groups,
         bool reports)
      : device_(device), name_(name), arguments_(std::move(arguments)), groups_(groups), reports_(reports) {
    TORCH_CHECK_VALUE(arguments_.size() < kMostArguments, "kernel '", name, "' has ", arguments_.size(),
                      " arguments; launches take at most ", kMostArguments - 1, ", fuse fewer operators");
    TORCH_CHECK_VALUE(arguments_.find_first_not_of("pvidf") == std::string::npos, "kernel '", name,
                      "': its arguments are described by p, v, i, d and f, not by '", arguments_, "'");
    py::gil_scoped_release no_gil;
    check(hal_kernel_compile(device, name.c_str(), text.c_str(), &kernel_));
  }

  // Launches over `units` items or groups, on the current stream.
  void launch(uint64_t units, const py::args &args) const {
    std::array<Value, kMostArguments> values;
    std::array<hal_arg_t, kMostArguments> list;
    const size_t count = arguments_.size();
    TORCH_CHECK_TYPE(args.size() == count, "kernel '", name_, "' takes ", count, " arguments, but ", args.size(),
                     " were given");
    for (size_t i = 0; i < count; ++i) list[i] = read(i, PyTuple_GET_ITEM(args.ptr(), i), &values[i]);
    if (units == 0) return;
    if (reports_) {
      check(hal_kernel_report_address(device_, nullptr, &values[count].address));
      list[count] = {&values[count], sizeof(void *), HAL_ARG_POINTER};
    }
    py::gil_scoped_release no_gil;
    check_work(groups_ ? hal_kernel_launch_groups(kernel_, nullptr, units, list.data(), count + reports_)
                       : hal_kernel_launch_items(kernel_, nullptr, units, list.data(), count + reports_));
    if (reports_) check_work(hal_kernel_report_launched(device_, nullptr));
  }

 private:
  hal_arg_t read(size_t i, PyObject *given, Value *value) const {
    switch (arguments_[i]) {
      case 'i':
        value->integer = integer_of(given);
        return {value, sizeof(int64_t), HAL_ARG_VALUE};
      case 'd':
        value->number = PyFloat_AsDouble(given);
        if (PyErr_Occurred()) throw py::error_already_set();
        return {value, sizeof(double), HAL_ARG_VALUE};
      case 'f':
        value->single = static_cast<float>(PyFloat_AsDouble(given));
        if (PyErr_Occurred()) throw py::error_already_set();
        return {value, sizeof(float), HAL_ARG_VALUE};
      default:
        return read_tensor(i, given, value);
    }
  }

  static int64_t integer_of(PyObject *given) {
    const int64_t value = PyLong_AsLongLong(given);
    if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
    return value;
  }

  hal_arg_t read_tensor(size_t i, PyObject *given, Value *value) const {
    TORCH_CHECK_TYPE(THPVariable_Check(given), "argument ", i, " of kernel '", name_, "' must be a tensor, not ",
                     Py_TYPE(given)->tp_name);
    const at::Tensor &tensor = THPVariable_Unpack(given);
    if (arguments_[i] == 'v') {
      TORCH_CHECK_VALUE(tensor.is_cpu() && tensor.numel() == 1, "argument ", i, " of kernel '", name_,
                        "' must be a tensor of one element on the CPU, but it has ", tensor.numel(), " on ",
                        tensor.device());
      const size_t size = tensor.element_size();
      std::memcpy(value, tensor.const_data_ptr(), size);
      return {value, static_cast<uint32_t>(size), HAL_ARG_VALUE};
    }
    TORCH_CHECK_VALUE(
        tensor.device() == c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device_)),
        "argument ", i, " of kernel '", name_, "' must be on device ", device_, ", but it is on ", tensor.device());
    value->address = tensor.data_ptr();
    return {value, sizeof(void *), HAL_ARG_POINTER};
  }

  int32_t device_;
  std::string name_, arguments_;
  bool groups_, reports_;
  hal_kernel_t *kernel_ = nullptr;  // exists as long as the device
};

// Errors of torch become Python exceptions.
std::unique_ptr<Kernel> compile(int32_t device, const std::string &name, const std::string &text,
                                const std::string &arguments, bool groups, bool reports) {
  return std::make_unique<Kernel>(device, name, text, arguments, groups, reports);
}

void launch(const Kernel &kernel, uint64_t units, const py::args &args) { kernel.launch(units, args); }

}  // namespace

void bind_kernels(py::module_ &module) {
  py::class_<Kernel>(module, "Kernel")
      .def(py::init(torch::wrap_pybind_function(&compile)), py::arg("device"), py::arg("name"), py::arg("text"),
           py::arg("arguments"), py::arg("groups") = false, py::arg("reports") = false)
      .def("launch", torch::wrap_pybind_function(&launch));
}

}  // namespace torch_backend
