"""The device's threads for inductor's C++ kernels, in place of OpenMP's.

OpenMP's threads belong to the thread that calls a kernel, wait actively for milliseconds after each loop and take the
cores from the device's own threads. A plugin with the extension "hal.host_parallel" (hal/plugin_records.h)
computes the loops with the threads that also compute its operators. GCC translates "omp parallel" and "omp for" to
calls of a few functions, and a kernel's file defines them itself.
"""

from __future__ import annotations

import ctypes
import functools
import re

from torch._inductor import cpp_builder, exc

from torch_backend import _C, backend

# Parts of a loop for each thread: a thread that starts late then does less.
_PARTS_PER_THREAD = 4

PREFIX = "#include <torch/csrc/inductor/cpp_prefix.h>\n"
_PRAGMA = re.compile(r"^\s*#pragma omp (.*?)\s*$", re.MULTILINE)
# A part of a loop must not wait for another one, as "barrier" and "single" do.
_PARALLEL = "#pragma omp parallel "
_KNOWN_PRAGMA = re.compile(r"parallel num_threads\(\d+\)|for( collapse\(\d+\))?|simd( simdlen\(\d+\))?")

# Written after each loop: reports a check that has failed in it.
END_LOOP = "hal_end_loop();"

_DEFINITIONS = r"""
// Converts a mask of 4 or 8 bytes an element to bools, and bools to a mask. With ATen's conversions, kernels that store
// masks take 3 to 8 times as long, and those that read them up to 7 times.
#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
template <typename T, int N>
struct at::vec::VecMaskTo<bool, 1, T, N, std::enable_if_t<sizeof(T) == 4 || sizeof(T) == 8>> {
  static inline VecMask<bool, 1> apply(const VecMask<T, N> &mask) {
    using bits_t = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    constexpr int size = VectorizedN<T, N>::size();
    static_assert(size <= Vectorized<bool>::size());
    __at_align__ bits_t bits[size];
    __at_align__ bool result[Vectorized<bool>::size()] = {};
    VectorizedN<T, N>(mask).store(bits);
    for (int i = 0; i < size; i++) result[i] = bits[i] != 0;
    return Vectorized<bool>::loadu(result);
  }
};
template <> template <>
inline at::vec::VecMask<float, 1> at::vec::VecMask<float, 1>::from<const bool>(const bool *bools, int count) {
  constexpr int size = Vectorized<float>::size();
  typedef int8_t bytes_t __attribute__((vector_size(size)));
  typedef int32_t words_t __attribute__((vector_size(4 * size)));
  bytes_t bytes{};
  if (C10_LIKELY(count == size)) memcpy(&bytes, bools, size);
  else memcpy(&bytes, bools, count);
  const words_t mask = __builtin_convertvector(bytes, words_t) != 0;
  return c10::bit_cast<Vectorized<float>>(mask);
}
template <> template <>
inline at::vec::VecMask<float, 1> at::vec::VecMask<float, 1>::from<const bool>(const bool *bools) {
  return from(bools, Vectorized<float>::size());
}
#endif
// The device's threads compute the parts of a loop. An exception must not leave a loop, nor GOMP_parallel: a failed
// check leaves its part by longjmp (the memory of local buffers is not freed), and the code after the loop throws.
#include <setjmp.h>
#include <stdexcept>
namespace {
struct hal_loop { void (*body)(void *); void *data; int count; std::atomic<const char *> failure; };
struct hal_part { hal_loop *loop; int index; jmp_buf end; };
void (*hal_run)(void (*)(void *, uint64_t), void *, uint64_t);
thread_local hal_part *hal_current;
thread_local const char *hal_failure;
void hal_end_loop() {
  if (C10_LIKELY(!hal_failure)) return;
  const char *const failure = hal_failure;
  hal_failure = nullptr;
  throw std::runtime_error(failure);
}
void hal_run_part(void *data, uint64_t index) {
  hal_part part;
  part.loop = static_cast<hal_loop *>(data);
  part.index = (int)index;
  hal_current = &part;
  if (!setjmp(part.end)) part.loop->body(part.loop->data);
  hal_current = nullptr;
}
[[noreturn]] void hal_fail(const char *message) {
  if (!hal_current) throw std::runtime_error(message);
  hal_current->loop->failure.store(message);
  longjmp(hal_current->end, 1);
}
inline const char *hal_text() { return "a check failed"; }
template <class... Rest> const char *hal_text(const char *text, const Rest &...) { return text; }
}  // namespace
#undef TORCH_CHECK
#define TORCH_CHECK(condition, ...) do { if (C10_UNLIKELY(!(condition))) hal_fail(hal_text(__VA_ARGS__)); } while (0)
#define HAL_HIDDEN __attribute__((visibility("hidden")))
extern "C" {
HAL_HIDDEN void GOMP_parallel(void (*body)(void *), void *data, unsigned count, unsigned) {
  hal_loop loop{body, data, (int)count, {nullptr}};
  if (hal_run) hal_run(hal_run_part, &loop, count);
  else for (unsigned i = 0; i < count; i++) hal_run_part(&loop, i);
  hal_failure = loop.failure.load();
}
HAL_HIDDEN void GOMP_barrier() {}
HAL_HIDDEN int omp_get_thread_num() noexcept { return hal_current ? hal_current->index : 0; }
HAL_HIDDEN int omp_get_num_threads() noexcept { return hal_current ? hal_current->loop->count : 1; }
__attribute__((visibility("default"))) void torch_backend_use_threads(void (*run)(void (*)(void *, uint64_t), void *, uint64_t)) {
  hal_run = run;
}
}
"""


@functools.cache
def threads() -> int:
    """Returns how many threads of the device compute kernels on the host; 0 if a device does not offer its threads, or if
    the compiler is not GCC. Starts the devices.
    """
    try:
        if not cpp_builder.is_gcc():
            return 0
    except exc.InvalidCxxCompiler:  # code from a cache needs none
        return 0
    return min((_C.host_threads(index)[1] for index in range(backend.device_count())), default=0)


def parts() -> int:
    """Returns into how many parts a loop is split."""
    return 1 if threads() == 1 else threads() * _PARTS_PER_THREAD


def use(source: str) -> str | None:
    """Returns the source of a kernel with the definitions; None if its loops need OpenMP, or are those of a template of
    torch, after which no failed check would be reported.
    """
    known = all(_KNOWN_PRAGMA.fullmatch(pragma) for pragma in _PRAGMA.findall(source))
    reported = source.count(_PARALLEL) == source.count(END_LOOP)
    return source.replace(PREFIX, PREFIX + _DEFINITIONS, 1) if known and reported and PREFIX in source else None


def without(source: str) -> str:
    """Returns the source of a kernel whose loops need OpenMP."""
    return source.replace(END_LOOP, "")


def attach(library: ctypes.CDLL) -> None:
    """Makes a loaded kernel use the device's threads."""
    library.torch_backend_use_threads(_run())


@functools.cache
def _run():
    return ctypes.c_void_p(_C.host_threads(0)[0])
