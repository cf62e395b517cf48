// external.cpp: see external.h.
#include "core/graph/external.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "core/status.h"

namespace torch_backend {
namespace {

using Events = std::vector<hal_event_t *>;

struct Uses {
  Events records, waits;
};

// All state has one lock, because events and programs are destroyed in any order. `any` avoids the lock if there is no
// external event.
struct Registry {
  std::atomic<bool> any{false};
  std::mutex mutex;
  std::set<hal_event_t *> events;
  std::map<const hal_program_t *, Uses> programs;
};

Registry &registry() {
  static auto *registry = new Registry;  // never destroyed, like all registries here
  return *registry;
}

void remove(Events &from, const hal_event_t *event) {
  from.erase(std::remove(from.begin(), from.end(), event), from.end());
}

bool note(hal_event_t *event, hal_stream_t *stream, Events Uses::*list) {
  Registry &known = registry();
  if (!known.any.load(std::memory_order_relaxed)) return false;
  const hal_program_t *const program = hal_program_of_stream(stream);
  const std::lock_guard<std::mutex> lock(known.mutex);
  if (program == nullptr || known.events.count(event) == 0) return false;
  (known.programs[program].*list).push_back(event);
  return true;
}

Events events_of(const hal_program_t *program, Events Uses::*list) {
  Registry &known = registry();
  if (!known.any.load(std::memory_order_relaxed)) return {};
  const std::lock_guard<std::mutex> lock(known.mutex);
  const auto found = known.programs.find(program);
  return found == known.programs.end() ? Events() : found->second.*list;
}

}  // namespace

void mark_external(hal_event_t *event) {
  Registry &known = registry();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.events.insert(event);
  known.any.store(true, std::memory_order_relaxed);
}

void forget_external(hal_event_t *event) noexcept {
  Registry &known = registry();
  if (!known.any.load(std::memory_order_relaxed)) return;
  const std::lock_guard<std::mutex> lock(known.mutex);
  if (known.events.erase(event) == 0) return;
  for (auto &[program, uses] : known.programs) {
    remove(uses.records, event);
    remove(uses.waits, event);
  }
}

bool capture_external_record(hal_event_t *event, hal_stream_t *stream) { return note(event, stream, &Uses::records); }
bool capture_external_wait(hal_event_t *event, hal_stream_t *stream) { return note(event, stream, &Uses::waits); }

void wait_for_external(const hal_program_t *program, hal_stream_t *stream) {
  for (hal_event_t *event : events_of(program, &Uses::waits)) check_work(hal_stream_wait_event(stream, event));
}

void record_external(const hal_program_t *program, hal_stream_t *stream) {
  for (hal_event_t *event : events_of(program, &Uses::records)) check(hal_event_record(event, stream));
}

void forget_external_of(const hal_program_t *program) {
  Registry &known = registry();
  if (!known.any.load(std::memory_order_relaxed)) return;
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.programs.erase(program);
}

}  // namespace torch_backend
