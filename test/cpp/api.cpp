// api.cpp: the C++ API on two fake devices, from the installed headers. test/python/package/test_cpp_api.py builds and
// runs it.
#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <gtest/gtest.h>
#include <hal/lazy.h>
#include <torch_backend/torch_backend.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tb = torch_backend;

namespace {

at::Tensor ones(c10::DeviceIndex device, int64_t n = 1 << 20) {
  return at::ones({n}, at::TensorOptions().device(c10::Device(tb::kDeviceType, device)));
}

TEST(Device, CountAndCurrent) {
  EXPECT_TRUE(tb::is_available());
  ASSERT_EQ(tb::device_count(), 2);
  EXPECT_EQ(tb::current_device(), 0);
  tb::set_device(1);
  EXPECT_EQ(tb::exchange_device(0), 1);
  EXPECT_EQ(tb::maybe_exchange_device(-1), -1);
  EXPECT_EQ(tb::current_device(), 0);
}

TEST(Device, IndexOutOfRangeIsNamed) {
  try {
    tb::set_device(7);
    FAIL() << "no exception";
  } catch (const c10::Error &error) {
    EXPECT_NE(std::string(error.what()).find("7"), std::string::npos) << error.what();
  }
  EXPECT_EQ(tb::current_device(), 0);
  EXPECT_THROW(tb::device_properties(2), c10::Error);
}

TEST(Device, MinusOneIsTheCurrentOneAndOtherNegativesAreRefused) {
  tb::set_device(1);
  EXPECT_EQ(tb::get_current_stream(-1).device_index(), 1);
  tb::synchronize(-1);
  tb::set_device(0);
  EXPECT_THROW(tb::get_current_stream(-2), c10::Error);
  EXPECT_THROW(tb::get_default_stream(-3), c10::Error);
  EXPECT_THROW(tb::device_properties(-2), c10::Error);
  EXPECT_THROW(tb::memory_allocated(-2), c10::Error);
  EXPECT_THROW(tb::synchronize(-128), c10::Error);
}

TEST(Device, PropertiesAndType) {
  EXPECT_EQ(c10::Device("fake:1"), c10::Device(tb::kDeviceType, 1));
  const tb::DeviceProperties properties = tb::device_properties(1);
  EXPECT_FALSE(properties.name.empty());
  EXPECT_GT(properties.total_memory, 0u);
  EXPECT_GT(properties.multi_processor_count, 0u);
}

TEST(Device, CurrentDeviceBelongsToTheThread) {
  tb::set_device(1);
  c10::DeviceIndex seen = -1;
  std::thread([&] { seen = tb::current_device(); }).join();
  EXPECT_EQ(seen, 0);
  tb::set_device(0);
}

TEST(Stream, PoolDefaultAndCurrent) {
  const tb::Stream standard = tb::get_default_stream();
  EXPECT_EQ(standard.id(), 0);
  EXPECT_EQ(tb::get_current_stream(), standard);
  const tb::Stream stream = tb::get_stream_from_pool(-1, 1);
  EXPECT_EQ(stream.device_index(), 1);
  EXPECT_EQ(stream.priority(), -1);
  EXPECT_NE(stream, tb::get_default_stream(1));
  tb::set_current_stream(stream);
  EXPECT_EQ(tb::get_current_stream(1), stream);
  EXPECT_EQ(tb::get_current_stream(0), standard);
  tb::set_current_stream(tb::get_default_stream(1));
  EXPECT_EQ(tb::Stream(stream.unwrap()), stream);
  EXPECT_THROW(tb::Stream(c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU))), c10::Error);
}

TEST(Stream, SynchronizeWaitsForTheWork) {
  const tb::Stream stream = tb::get_stream_from_pool();
  at::Tensor x;
  {
    const tb::StreamGuard guard(stream);
    x = ones(0);
    for (int i = 0; i < 8; i++) x = x + x;
  }
  stream.synchronize();
  EXPECT_TRUE(stream.query());
  EXPECT_TRUE(stream.synchronize_for(1000000000));
  EXPECT_EQ(x.cpu()[0].item<float>(), 256.0f);
}

TEST(Event, OrdersStreamsOfTwoDevices) {
  const tb::Stream first = tb::get_stream_from_pool(0, 0), second = tb::get_stream_from_pool(0, 1);
  tb::Event event;
  EXPECT_FALSE(event.is_created());
  EXPECT_TRUE(event.query());
  EXPECT_THROW(event.device(), c10::Error);
  event.block(second);
  at::Tensor x;
  {
    const tb::StreamGuard guard(first);
    x = ones(0) * 3;
    event.record();
  }
  EXPECT_TRUE(event.is_created());
  EXPECT_EQ(event.device(), c10::Device(tb::kDeviceType, 0));
  event.block(second);
  at::Tensor y;
  {
    const tb::StreamGuard guard(second);
    y = x.to(c10::Device(tb::kDeviceType, 1)) + 1;
  }
  second.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_EQ(y.cpu()[-1].item<float>(), 4.0f);
  EXPECT_THROW(event.record(second), c10::Error);
}

TEST(Event, TimesTheWorkBetween) {
  tb::Event start(true), end(true), untimed;
  EXPECT_THROW(start.elapsed_time(end), c10::Error);
  start.record();
  at::Tensor x = ones(0);
  for (int i = 0; i < 16; i++) x = x + x;
  end.record();
  end.synchronize();
  EXPECT_GT(start.elapsed_time(end), 0.0);
  EXPECT_LT(end.elapsed_time(start), 0.0);
  untimed.record();
  untimed.synchronize();
  EXPECT_THROW(start.elapsed_time(untimed), c10::Error);
  tb::Event moved = std::move(start);
  EXPECT_TRUE(moved.is_created());
  moved.record_once(tb::get_default_stream());
}

TEST(Guard, RestoresAfterAnException) {
  try {
    const tb::DeviceGuard guard(1);
    EXPECT_EQ(tb::current_device(), 1);
    EXPECT_EQ(guard.original_device().index(), 0);
    throw std::runtime_error("on purpose");
  } catch (const std::runtime_error &) {
  }
  EXPECT_EQ(tb::current_device(), 0);
  EXPECT_THROW(tb::DeviceGuard(c10::Device(c10::kCPU)), c10::Error);
  EXPECT_THROW(tb::DeviceGuard(c10::DeviceIndex{9}), c10::Error);
}

TEST(Guard, OptionalOnes) {
  {
    tb::OptionalDeviceGuard guard;
    EXPECT_FALSE(guard.original_device());
    guard.set_index(1);
    EXPECT_EQ(tb::current_device(), 1);
    EXPECT_EQ(guard.original_device()->index(), 0);
  }
  EXPECT_EQ(tb::current_device(), 0);
  const tb::Stream stream = tb::get_stream_from_pool(0, 1);
  {
    tb::OptionalStreamGuard guard(std::nullopt);
    EXPECT_EQ(tb::current_device(), 0);
    guard.reset_stream(stream);
    EXPECT_EQ(tb::current_device(), 1);
    EXPECT_EQ(tb::get_current_stream(), stream);
  }
  EXPECT_EQ(tb::get_current_stream(1), tb::get_default_stream(1));
  EXPECT_EQ(tb::current_device(), 0);
}

TEST(Guard, SeveralStreams) {
  const tb::Stream a = tb::get_stream_from_pool(0, 0), b = tb::get_stream_from_pool(0, 1);
  {
    const tb::MultiStreamGuard guard({a, b});
    EXPECT_EQ(tb::get_current_stream(0), a);
    EXPECT_EQ(tb::get_current_stream(1), b);
    EXPECT_EQ(tb::current_device(), 0);
  }
  EXPECT_EQ(tb::get_current_stream(0), tb::get_default_stream(0));
  EXPECT_EQ(tb::get_current_stream(1), tb::get_default_stream(1));
  const tb::Stream c = tb::get_stream_from_pool(0, 0);
  EXPECT_THROW(tb::MultiStreamGuard({a, c}), c10::Error);
  EXPECT_EQ(tb::get_current_stream(0), tb::get_default_stream(0));
}

TEST(Allocator, RawMemoryIsCountedAndReturned) {
  const size_t before = tb::memory_allocated();
  void *ptr = tb::raw_alloc(1 << 20);
  ASSERT_NE(ptr, nullptr);
  EXPECT_GE(tb::memory_allocated(), before + (1 << 20));
  EXPECT_GE(tb::memory_reserved(), tb::memory_allocated());
  tb::raw_delete(ptr);
  EXPECT_EQ(tb::memory_allocated(), before);
  EXPECT_THROW(tb::raw_delete(ptr), c10::Error);
  EXPECT_EQ(tb::raw_alloc(0), nullptr);
  tb::raw_delete(nullptr);
  void *other = tb::raw_alloc_with_stream(64, tb::get_stream_from_pool(0, 1));
  EXPECT_EQ(tb::memory_allocated(), before);
  EXPECT_GT(tb::memory_allocated(1), 0u);
  tb::raw_delete(other);
}

TEST(Allocator, LimitsAndStatistics) {
  const auto [free, total] = tb::mem_get_info();
  EXPECT_LE(free, total);
  EXPECT_THROW(tb::set_memory_fraction(0.0), c10::ValueError);
  EXPECT_THROW(tb::set_memory_fraction(1.5), c10::ValueError);
  tb::empty_cache();
  tb::set_memory_fraction(1e-3);
  EXPECT_THROW(tb::raw_alloc(total / 2), c10::OutOfMemoryError);
  tb::set_memory_fraction(1.0);
  EXPECT_EQ(tb::get_allocator(), c10::GetAllocator(tb::kDeviceType));
  EXPECT_GE(tb::device_stats().num_ooms, 1);
  tb::reset_peak_stats();
  tb::reset_accumulated_stats();
  EXPECT_EQ(tb::device_stats().num_ooms, 0);
}

TEST(Allocator, ReleasedMemoryWaitsForARecordedStream) {
  const tb::Stream stream = tb::get_stream_from_pool();
  at::Tensor x = ones(0), y;
  tb::Event ready;
  ready.record();
  ready.block(stream);
  {
    const tb::StreamGuard guard(stream);
    y = x * 2;
  }
  tb::record_stream(x.storage().data_ptr(), stream);
  x.reset();
  at::Tensor z = ones(0) * 100;  // must not reuse the memory that `stream` still reads
  stream.synchronize();
  EXPECT_EQ(y.cpu().max().item<float>(), 2.0f);
}

struct Context final : c10::GatheredContext {};

// The functions of at::HostAllocator since torch 2.14 for history and snapshots.
TEST(Allocator, HistoryOfPinnedMemory) {
  const auto record = [](auto *allocator) {
    if constexpr (!requires { allocator->get_traces(); }) {
      GTEST_SKIP() << "at::HostAllocator has no history before torch 2.14";
    } else {
      using c10::CachingDeviceAllocator::RecordContext;
      using Entry = c10::CachingDeviceAllocator::TraceEntry;
      allocator->empty_cache();
      const size_t before = allocator->get_segments().size();
      EXPECT_FALSE(allocator->is_history_enabled());
      allocator->record_history(
          true, []() -> std::shared_ptr<c10::GatheredContext> { return std::make_shared<Context>(); }, 100,
          RecordContext::ALL, true);
      EXPECT_TRUE(allocator->is_history_enabled());
      const c10::DataPtr kept = allocator->allocate(5000);
      tb::set_device(1);
      const auto address = reinterpret_cast<size_t>(allocator->allocate(3 << 20).get());  // freed at once
      tb::set_device(0);
      const auto segments = allocator->get_segments();
      EXPECT_EQ(segments.size(), before + 2);
      for (const auto &segment : segments) {
        if (segment.address == reinterpret_cast<size_t>(kept.get())) {
          EXPECT_TRUE(segment.allocated && segment.active && segment.context_when_allocated);
          EXPECT_EQ(segment.size, 8192u);
        } else if (segment.address == address) {
          EXPECT_FALSE(segment.allocated || segment.active || segment.context_when_allocated);
          EXPECT_EQ(segment.size, size_t{3} << 20);
        }
      }
      std::vector<Entry::Action> actions;
      for (const Entry &entry : allocator->get_traces()) {
        actions.push_back(entry.action_);
        EXPECT_EQ(entry.device_, -1);
        EXPECT_EQ(entry.addr_, actions.size() > 2 ? address : reinterpret_cast<size_t>(kept.get()));
        EXPECT_NE(dynamic_cast<Context *>(entry.context_.get()), nullptr);
        EXPECT_GT(entry.time_.t_, 1700000000000000) << "microseconds";
      }
      EXPECT_EQ(actions, (std::vector<Entry::Action>{Entry::SEGMENT_ALLOC, Entry::ALLOC, Entry::SEGMENT_ALLOC,
                                                     Entry::ALLOC, Entry::FREE_REQUESTED, Entry::FREE_COMPLETED}));
      allocator->record_history(false, nullptr, 0, RecordContext::NEVER, true);
      EXPECT_FALSE(allocator->is_history_enabled());
      EXPECT_TRUE(allocator->get_traces().empty());
    }
  };
  record(at::getHostAllocator(tb::kDeviceType));
}

TEST(Generator, SameSeedSameNumbers) {
  const auto options = at::TensorOptions().device(c10::Device(tb::kDeviceType, 0));
  tb::manual_seed_all(42);
  const at::Tensor a = at::rand({100}, options).cpu();
  tb::manual_seed_all(42);
  EXPECT_TRUE(at::equal(a, at::rand({100}, options).cpu()));
  at::Generator generator = tb::create_generator(0);
  generator.set_current_seed(42);
  EXPECT_TRUE(at::equal(a, at::rand({100}, generator, options).cpu()));
  EXPECT_EQ(tb::get_default_generator(1).device(), c10::Device(tb::kDeviceType, 1));
}

TEST(Generator, ReservedBlocksAreNotDrawnAgain) {
  at::Generator generator = tb::create_generator(0);
  generator.set_current_seed(7);
  const tb::PhiloxSeed first = tb::reserve_random_blocks(generator, 10),
                       second = tb::reserve_random_blocks(generator, 1);
  EXPECT_EQ(first.seed, 7u);
  EXPECT_GE(second.offset, first.offset + 10);
  EXPECT_THROW(tb::reserve_random_blocks(at::Generator(), 1), c10::Error);
}

// ---- compilers of lazy work ----

// Accepts nothing; counts the existing objects.
class Idle : public tb::BackendImplInterface, public tb::NodeLowering {
 public:
  explicit Idle(const char *name) : name_(name) { ++alive; }
  ~Idle() override { --alive; }
  const char *Name() const override { return name_; }
  tb::NodeLowering &GetNodeLowering() override { return *this; }
  std::unique_ptr<tb::LoweringContext> CreateLoweringContext(const hal_ir_t &) override { return nullptr; }
  bool Supports(const char *, const hal_op_call_t &) const override {
    last = name_;
    return false;
  }
  bool Lower(const hal_ir_node_t &, tb::LoweringContext &) override { return false; }

  static inline int alive = 0;
  static inline std::string last;

 private:
  const char *name_;
};

// The backend that is queried while the device's stream is lazy.
std::string queried() {
  hal_lazy_t *lazy = nullptr;
  const at::Tensor x = at::ones({4}, tb::kDeviceType);
  Idle::last = "none";
  EXPECT_EQ(hal_lazy_begin(nullptr, nullptr, &lazy), HAL_OK);
  const at::Tensor y = x.neg();
  EXPECT_EQ(hal_lazy_end(lazy), HAL_OK);
  return Idle::last;
}

TEST(BackendRegistrar, TheLastOneStaysWhenTheOneBeforeEnds) {
  auto registrar = std::make_unique<tb::BackendRegistrar>(std::make_unique<Idle>("first"));
  EXPECT_EQ(queried(), "first");
  // created before the first ends
  registrar = std::make_unique<tb::BackendRegistrar>(std::make_unique<Idle>("second"));
  EXPECT_EQ(queried(), "second");
  EXPECT_EQ(Idle::alive, 1);
  registrar.reset();
  EXPECT_EQ(queried(), "none");
  EXPECT_EQ(Idle::alive, 0);
}

}  // namespace

int main(int argc, char **argv) {
  ::testing::InitGoogleTest(&argc, argv);
  tb::open("fake");
  return RUN_ALL_TESTS();
}
