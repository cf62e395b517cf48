// event.h: markers in streams.
#pragma once

#include <cstdint>
#include <utility>

#include "stream.h"

struct hal_event_s;

namespace torch_backend {

// A marker in a stream, created by its first record. Movable, not copyable. Its destructor does not wait for the work.
class Event {
 public:
  // Creates an event; `timing` enables elapsed_time. Since 0.1.
  explicit Event(bool timing = false) noexcept : timing_(timing) {}
  ~Event();
  Event(Event &&other) noexcept : event_(std::exchange(other.event_, nullptr)), timing_(other.timing_) {}
  Event &operator=(Event &&other) noexcept {
    std::swap(event_, other.event_);
    std::swap(timing_, other.timing_);
    return *this;
  }
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;

  // Returns whether the event was recorded. Since 0.1.
  bool is_created() const noexcept { return event_ != nullptr; }
  // Returns the device of the event; throws c10::Error before the first record. Since 0.1.
  c10::Device device() const;

  // Records the work queued so far on the current stream; replaces an earlier record. Since 0.1.
  void record();
  // Records the work queued so far on a stream; replaces an earlier record. Throws c10::Error for a stream of another
  // device than before. Since 0.1.
  void record(const Stream &stream);
  // Records the event unless it was recorded before. Since 0.1.
  void record_once(const Stream &stream);
  // Makes later work of a stream, on any device, wait for the recorded work. Does nothing if it was never recorded.
  // Since 0.1.
  void block(const Stream &stream) const;
  // Returns whether the recorded work is done, without waiting. An event that was never recorded counts as done. Since
  // 0.1.
  bool query() const;
  // Waits until the recorded work is done. Since 0.1.
  void synchronize() const;
  // Returns the milliseconds from this event to `end`. Both must have timing, be recorded on one device, and be done.
  // Throws c10::Error otherwise. Since 0.1.
  double elapsed_time(const Event &end) const;

 private:
  hal_event_s *event_ = nullptr;
  bool timing_;
};

}  // namespace torch_backend
