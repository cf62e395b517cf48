// given_event.h: passes an existing event of the HAL to a c10 event, instead of one that its first record creates.
#pragma once

#include <utility>

#include "hal/hal.h"

namespace torch_backend {

// While an object exists, the calling thread's next record of a c10 event without an event of the HAL takes the given
// one and records nothing. An event that is not taken is destroyed. Not nested.
class GivenEvent {
 public:
  explicit GivenEvent(hal_event_t *event) { given() = event; }
  GivenEvent(const GivenEvent &) = delete;
  GivenEvent &operator=(const GivenEvent &) = delete;
  ~GivenEvent() { hal_event_destroy(take()); }

  // Releases the thread's event; nullptr = there is none.
  static hal_event_t *take() { return std::exchange(given(), nullptr); }

 private:
  static hal_event_t *&given();
};

}  // namespace torch_backend
