// graph.cpp: torch.accelerator.Graph, implemented by recorded programs. A capture is a recording of the current stream.
#include "core/graph/graph.h"

#include <ATen/core/GraphImplInterface.h>

#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/graph/external.h"
#include "core/pool/pool.h"
#include "core/status.h"
#include "core/stream/stream.h"
#include "hal/program.h"

namespace torch_backend {
namespace {

struct DestroyProgram {
  void operator()(hal_program_t *program) const { hal_program_destroy(program); }
};
using Program = std::unique_ptr<hal_program_t, DestroyProgram>;

// The error messages of operators that could not be captured, for active recordings. The HAL knows kernels and copies,
// not the operators that queued them.
class Refusals {
 public:
  void note(const hal_program_t *program, std::string message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    messages_[program] = std::move(message);
  }
  std::string take(const hal_program_t *program) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = messages_.extract(program);
    return found ? std::move(found.mapped()) : std::string();
  }

 private:
  std::mutex mutex_;
  std::map<const hal_program_t *, std::string> messages_;
};

Refusals &refusals() {
  static auto *refusals = new Refusals;
  return *refusals;
}

constexpr char kInvalidated[] = "the recording was invalidated: ";  // the beginning of the HAL's message

// Returns whether the operator's message is a more detailed cause of the HAL's error.
bool names_cause(const std::string &refused) {
  const std::string message = hal_error_message();
  return message.rfind(kInvalidated, 0) == 0 &&
         refused.find(message.substr(sizeof kInvalidated - 1)) != std::string::npos;
}

class Graph final : public at::GraphImplInterface {
 public:
  Graph() = default;
  ~Graph() override { reset(); }
  Graph(const Graph &) = delete;
  Graph &operator=(const Graph &) = delete;

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode) override {
    TORCH_CHECK(!program_, "This graph has captured already; call reset() to capture again.");
    hal_stream_t *stream = current_stream(-1);
    pool_id_ = pool;
    const Pool memory = take_pool(pool_id_, hal_stream_device(stream));
    has_pool_ = true;
    hal_program_desc_t desc{};
    desc.struct_size = sizeof desc;
    desc.pool = memory.get();
    desc.flags = debug_ ? HAL_PROGRAM_DESCRIBED : 0;
    hal_program_t *program = nullptr;
    const hal_status_t status = hal_program_begin(stream, &desc, &program);
    if (status != HAL_OK) drop_pool();
    check(status);
    program_.reset(program);
    capturing_ = true;
  }

  void capture_end() override {
    TORCH_CHECK(capturing_, "capture_end() was called on a graph that captures nothing; call capture_begin() before.");
    capturing_ = false;
    const hal_status_t status = hal_program_end(program_.get());
    const std::string refused = refusals().take(program_.get());
    if (status != HAL_OK) {
      forget_external_of(program_.get());
      program_.reset();  // it cannot run; the error message is stored for the thread
      drop_pool();
    }
    TORCH_CHECK(status != HAL_ABORTED || !names_cause(refused), kInvalidated, refused);
    check(status);
  }

  // A recorded program is ready to run, whether or not torch keeps the graph.
  void instantiate() override { check_captured("instantiate"); }

  void replay() override {
    check_captured("replay");
    hal_stream_t *const stream = current_stream(static_cast<c10::DeviceIndex>(hal_program_device(program_.get())));
    wait_for_external(program_.get(), stream);
    check_work(hal_program_run(program_.get(), stream));
    record_external(program_.get(), stream);
  }

  void reset() override {
    if (capturing_) refusals().take(program_.get());
    forget_external_of(program_.get());
    program_.reset();
    drop_pool();
    capturing_ = false;
  }

  at::MempoolId_t pool() const override {
    TORCH_CHECK(has_pool_, "pool() was called on a graph that has no capture; call capture_begin() before.");
    return pool_id_;
  }

  void enable_debug_mode() override { debug_ = true; }

  void debug_dump(const std::string &path) override {
    check_captured("debug_dump");
    TORCH_CHECK(debug_, "debug_dump() requires enable_debug_mode() before the capture.");
    size_t size = 0;
    check(hal_program_text(program_.get(), HAL_PROGRAM_DOT, nullptr, 0, &size));
    std::vector<char> text(size);
    check(hal_program_text(program_.get(), HAL_PROGRAM_DOT, text.data(), size, &size));
    std::ofstream file(path);
    file.write(text.data(), static_cast<std::streamsize>(size - 1));
    file.close();
    TORCH_CHECK(file, "debug_dump() cannot write '", path, "'");
  }

 private:
  void check_captured(const char *what) const {
    TORCH_CHECK(program_ && !capturing_, what,
                "() requires a graph that has captured: call capture_begin() and capture_end().");
  }
  void drop_pool() {
    if (has_pool_) leave_pool(pool_id_);
    has_pool_ = false;
  }

  bool capturing_ = false, debug_ = false, has_pool_ = false;
  at::MempoolId_t pool_id_{0, 0};
  Program program_;
};

}  // namespace

void refuse_in_capture(c10::DeviceIndex device, const std::function<std::string()> &message) {
  hal_program_t *const program = hal_program_of_stream(current_stream(device));
  if (C10_LIKELY(program == nullptr)) return;
  const std::string told = message();
  hal_program_refuse(program, told.c_str());
  TORCH_CHECK(false, told);
}

void note_refused(const std::string &message) {
  const hal_program_t *const program = hal_program_of_stream(current_stream(-1));
  const bool is_first = message.find("the recording was invalidated before") == std::string::npos;
  if (program && is_first) refusals().note(program, message);
}

void check_read(hal_status_t status, const char *called) {
  if (C10_LIKELY(status != HAL_FAILED_PRECONDITION) || hal_program_of_stream(current_stream(-1)) == nullptr)
    return check_work(status);
  const std::string message = std::string(called) + ": " + hal_error_message();
  note_refused(message);
  TORCH_CHECK(false, message);
}

void register_graphs() {
  const std::string name = c10::DeviceTypeName(kDevice, /*lower_case=*/false);  // the name that torch looks up
  if (at::GraphImplRegistry()->Has(name)) return;
  at::GraphImplRegistry()->Register(name, [](const at::GraphImplArgs &) -> std::unique_ptr<at::GraphImplInterface> {
    return std::make_unique<Graph>();
  });
}

}  // namespace torch_backend
