// given_event.h: how a c10 event comes to an event that the HAL has made already, in place of one that its first record makes.
#pragma once

#include <utility>

#include "hal/hal.h"

namespace torch_backend {

// While one lives, the calling thread's next record of a c10 event that has no event of ours takes the given one and records nothing. What
// nobody took is destroyed. Not nested.
class GivenEvent {
 public:
  explicit GivenEvent(hal_event_t *event) { given() = event; }
  GivenEvent(const GivenEvent &) = delete;
  GivenEvent &operator=(const GivenEvent &) = delete;
  ~GivenEvent() { hal_event_destroy(take()); }

  // Gives the thread's event away; nullptr = there is none.
  static hal_event_t *take() { return std::exchange(given(), nullptr); }

 private:
  static hal_event_t *&given();
};

}  // namespace torch_backend
