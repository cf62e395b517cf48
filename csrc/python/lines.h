// lines.h: the Python lines that operators are called from, as numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace torch_backend {

class Lines {
 public:
  Lines();
  ~Lines();

  // The number of the line that calls torch now: in Python the innermost one outside of torch's own files; in the backward pass that of the
  // forward operator; 0 = unknown. Takes the GIL where there is Python to be asked: not to be called with a lock that its holders wait for.
  uint64_t here();

  // "file.py:17", for a number that was given. Takes no GIL.
  std::string text(uint64_t line) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace torch_backend
