// event.cpp: events of the C++ API, implemented by the HAL.
#include "api/event.h"

#include "core/stream/stream.h"

namespace torch_backend {

Event::~Event() { hal_event_destroy(event_); }

c10::Device Event::device() const {
  TORCH_CHECK(event_ != nullptr, "the event has no device before its first record");
  return c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(hal_event_device(event_)));
}

void Event::record() { record(get_current_stream()); }

void Event::record(const Stream &stream) {
  hal_stream_t *target = to_hal(stream.unwrap());
  if (event_ == nullptr)
    check(hal_event_create(stream.device_index(), timing_ ? uint32_t{HAL_EVENT_TIMING} : 0, &event_));
  check(hal_event_record(event_, target));
}

void Event::record_once(const Stream &stream) {
  if (event_ == nullptr) record(stream);
}

void Event::block(const Stream &stream) const {
  if (event_ != nullptr) check_work(hal_stream_wait_event(to_hal(stream.unwrap()), event_));
}

bool Event::query() const { return event_ == nullptr || is_done(hal_event_query(event_)); }

void Event::synchronize() const {
  if (event_ != nullptr) check_work(hal_event_synchronize(event_));
}

double Event::elapsed_time(const Event &end) const {
  TORCH_CHECK(event_ != nullptr && end.event_ != nullptr,
              "elapsed_time requires two recorded events; record both first");
  int64_t nanoseconds = 0;
  check(hal_event_elapsed(event_, end.event_, &nanoseconds));
  return static_cast<double>(nanoseconds) / 1e6;
}

}  // namespace torch_backend
