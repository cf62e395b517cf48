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

  // Returns the number of the line that calls torch now: in Python the innermost one outside of torch's own files, in
  // the backward pass that of the forward operator; 0 = unknown. Acquires the GIL if Python code is running, so the
  // caller must not hold a lock that a thread with the GIL waits for.
  uint64_t here();

  // Returns "file.py:17" for a number that was returned. Does not acquire the GIL.
  std::string text(uint64_t line) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace torch_backend
