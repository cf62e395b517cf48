/* prelude.hpp: included before the CUDA C that the mock driver compiles for this machine: the language's keywords
 * and functions in C++. compile.c implements `__global__`, asm and `extern __shared__`. */
#define __CUDACC_RTC__ 1
#define __CUDACC__ 1
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static thread_local
#define CUDA_MOCK_FN static inline __attribute__((unused))

typedef decltype(sizeof(0)) size_t;
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x, y, z;
};
static thread_local uint3 threadIdx, blockIdx;
static thread_local dim3 blockDim, gridDim;
static const int warpSize = 32;

/* The threads of a block share one thread of the machine: changes by the others are restored. */
extern "C" void (*cuda_mock_yield)(void);
static thread_local void *cuda_mock_shared;
CUDA_MOCK_FN void __syncthreads() {
  const uint3 own = threadIdx;
  cuda_mock_yield();
  threadIdx = own;
}
/* The value of the thread `distance` positions further in the warp, or one's own. All threads of the block call it. */
template <typename T> CUDA_MOCK_FN T __shfl_down_sync(unsigned, T value, unsigned distance) {
  static thread_local T values[1024];
  const unsigned own = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  values[own] = value;
  __syncthreads();
  const T other = own % 32 + distance < 32 ? values[own + distance] : value;
  __syncthreads();
  return other;
}
CUDA_MOCK_FN void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
CUDA_MOCK_FN void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

extern "C" {
#define CUDA_MOCK_MATH_1(name)  \
  float name##f(float) noexcept;    \
  double name(double) noexcept;
#define CUDA_MOCK_MATH_2(name)      \
  float name##f(float, float) noexcept; \
  double name(double, double) noexcept;
CUDA_MOCK_MATH_1(fabs) CUDA_MOCK_MATH_1(sqrt) CUDA_MOCK_MATH_1(cbrt) CUDA_MOCK_MATH_1(floor)
CUDA_MOCK_MATH_1(ceil) CUDA_MOCK_MATH_1(trunc) CUDA_MOCK_MATH_1(rint) CUDA_MOCK_MATH_1(round)
CUDA_MOCK_MATH_1(nearbyint) CUDA_MOCK_MATH_1(exp) CUDA_MOCK_MATH_1(exp2) CUDA_MOCK_MATH_1(expm1)
CUDA_MOCK_MATH_1(log) CUDA_MOCK_MATH_1(log2) CUDA_MOCK_MATH_1(log10) CUDA_MOCK_MATH_1(log1p)
CUDA_MOCK_MATH_1(sin) CUDA_MOCK_MATH_1(cos) CUDA_MOCK_MATH_1(tan) CUDA_MOCK_MATH_1(asin)
CUDA_MOCK_MATH_1(acos) CUDA_MOCK_MATH_1(atan) CUDA_MOCK_MATH_1(sinh) CUDA_MOCK_MATH_1(cosh)
CUDA_MOCK_MATH_1(tanh) CUDA_MOCK_MATH_1(asinh) CUDA_MOCK_MATH_1(acosh) CUDA_MOCK_MATH_1(atanh)
CUDA_MOCK_MATH_1(erf) CUDA_MOCK_MATH_1(erfc) CUDA_MOCK_MATH_1(lgamma) CUDA_MOCK_MATH_1(tgamma)
CUDA_MOCK_MATH_1(logb)
CUDA_MOCK_MATH_2(atan2) CUDA_MOCK_MATH_2(pow) CUDA_MOCK_MATH_2(fmod) CUDA_MOCK_MATH_2(fmax)
CUDA_MOCK_MATH_2(fmin) CUDA_MOCK_MATH_2(copysign) CUDA_MOCK_MATH_2(hypot)
CUDA_MOCK_MATH_2(nextafter) CUDA_MOCK_MATH_2(remainder) CUDA_MOCK_MATH_2(fdim)
float fmaf(float, float, float) noexcept;
double fma(double, double, double) noexcept;
float ldexpf(float, int) noexcept;
double ldexp(double, int) noexcept;
float frexpf(float, int *) noexcept;
double frexp(double, int *) noexcept;
void *memcpy(void *, const void *, size_t) noexcept;
void *memset(void *, int, size_t) noexcept;
}
CUDA_MOCK_FN float rsqrtf(float x) { return 1.0f / sqrtf(x); }
CUDA_MOCK_FN double rsqrt(double x) { return 1.0 / sqrt(x); }
template <typename T> CUDA_MOCK_FN bool isnan(T x) { return __builtin_isnan(x); }
template <typename T> CUDA_MOCK_FN bool isinf(T x) { return __builtin_isinf(x); }
template <typename T> CUDA_MOCK_FN bool isfinite(T x) { return __builtin_isfinite(x); }
template <typename T> CUDA_MOCK_FN bool signbit(T x) { return __builtin_signbit(x); }
template <typename T> CUDA_MOCK_FN T min(T x, T y) { return y < x ? y : x; }
template <typename T> CUDA_MOCK_FN T max(T x, T y) { return x < y ? y : x; }

template <typename To, typename From> CUDA_MOCK_FN To cuda_mock_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "of one size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
CUDA_MOCK_FN unsigned __float_as_uint(float x) { return cuda_mock_bits<unsigned>(x); }
CUDA_MOCK_FN int __float_as_int(float x) { return cuda_mock_bits<int>(x); }
CUDA_MOCK_FN float __uint_as_float(unsigned x) { return cuda_mock_bits<float>(x); }
CUDA_MOCK_FN float __int_as_float(int x) { return cuda_mock_bits<float>(x); }
CUDA_MOCK_FN long long __double_as_longlong(double x) { return cuda_mock_bits<long long>(x); }
CUDA_MOCK_FN double __longlong_as_double(long long x) { return cuda_mock_bits<double>(x); }
CUDA_MOCK_FN unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((unsigned long long)x * y >> 32); }
CUDA_MOCK_FN unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}
/* Rounded separately: never fused with the next operation. */
CUDA_MOCK_FN float __fmul_rn(float x, float y) {
  volatile float product = x * y;
  return product;
}
CUDA_MOCK_FN float __fadd_rn(float x, float y) {
  volatile float sum = x + y;
  return sum;
}
CUDA_MOCK_FN double __dmul_rn(double x, double y) {
  volatile double product = x * y;
  return product;
}
CUDA_MOCK_FN float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }

template <typename T> CUDA_MOCK_FN T atomicCAS(T *address, T compare, T value) {
  __atomic_compare_exchange(address, &compare, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return compare;
}
template <typename T> CUDA_MOCK_FN T atomicExch(T *address, T value) {
  T old;
  __atomic_exchange(address, &value, &old, __ATOMIC_RELAXED);
  return old;
}
template <typename T, typename F> CUDA_MOCK_FN T cuda_mock_update(T *address, F next) {
  T old, wanted;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  do wanted = next(old);
  while (!__atomic_compare_exchange(address, &old, &wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}
template <typename T> struct cuda_mock_same {
  typedef T type;
};
template <typename T> CUDA_MOCK_FN T atomicAdd(T *address, typename cuda_mock_same<T>::type value) {
  return cuda_mock_update(address, [=](T old) { return (T)(old + value); });
}
template <typename T> CUDA_MOCK_FN T atomicMax(T *address, typename cuda_mock_same<T>::type value) {
  return cuda_mock_update(address, [=](T old) { return old < value ? value : old; });
}
template <typename T> CUDA_MOCK_FN T atomicMin(T *address, typename cuda_mock_same<T>::type value) {
  return cuda_mock_update(address, [=](T old) { return value < old ? value : old; });
}

CUDA_MOCK_FN size_t __cvta_generic_to_global(const void *p) { return (size_t)p; }

/* Instructions of PTX that sources name in asm: compile.c replaces them by calls. */
CUDA_MOCK_FN float cuda_mock_ptx_cvt_f32_f16(unsigned short bits) {
  return (float)cuda_mock_bits<_Float16>(bits);
}
CUDA_MOCK_FN unsigned short cuda_mock_ptx_cvt_rn_f16_f32(float x) {
  return cuda_mock_bits<unsigned short>((_Float16)x);
}
/* A device faults if 16 bytes do not begin at a multiple of 16. */
CUDA_MOCK_FN void cuda_mock_ptx_st_global_v4_b32(size_t address, unsigned x, unsigned y, unsigned z,
                                                         unsigned w) {
  const uint4 words = {x, y, z, w};
  if (address % 16) __builtin_trap();
  memcpy((void *)address, &words, sizeof words);
}

/* ---- how the driver calls kernels: module_image.h ---- */
struct cuda_mock_range {
  unsigned grid[3], block[3];
  void *shared;
  void (*fibres)(unsigned, void (*)(void *, unsigned), void *);
};
struct cuda_mock_kernel {
  const char *name;
  void (*run)(const cuda_mock_range *, void **);
  const unsigned *sizes;
  unsigned count;
};
struct cuda_mock_module {
  unsigned version, architecture;
  void (**yield)(void);
  const cuda_mock_kernel *kernels;
  unsigned count;
};

template <unsigned... I> struct cuda_mock_places {};
template <auto F> struct cuda_mock_entry;
template <typename... A, void (*F)(A...)> struct cuda_mock_entry<F> {
  static constexpr unsigned count = sizeof...(A);
  static constexpr unsigned sizes[count + 1] = {sizeof(A)..., 0};

  template <unsigned... I> static inline void call(void **arguments, cuda_mock_places<I...>) {
    (void)arguments;
    F(*(A *)arguments[I]...);
  }
  static inline void thread(void **arguments) { call(arguments, cuda_mock_places<__integer_pack(count)...>()); }

  /* A thread of a block as a fiber. */
  static void body(void *arguments, unsigned index) {
    threadIdx = {index % blockDim.x, index / blockDim.x % blockDim.y, index / blockDim.x / blockDim.y};
    thread((void **)arguments);
  }
  static inline void block(const cuda_mock_range *range, void **arguments) {
    if (range->fibres) return range->fibres(blockDim.x * blockDim.y * blockDim.z, body, arguments);
    for (unsigned z = 0; z < blockDim.z; z++)
      for (unsigned y = 0; y < blockDim.y; y++)
        for (unsigned x = 0; x < blockDim.x; x++) {
          threadIdx = {x, y, z};
          thread(arguments);
        }
  }
  static void run(const cuda_mock_range *range, void **arguments) {
    gridDim = {range->grid[0], range->grid[1], range->grid[2]};
    blockDim = {range->block[0], range->block[1], range->block[2]};
    cuda_mock_shared = range->shared;
    for (unsigned z = 0; z < gridDim.z; z++)
      for (unsigned y = 0; y < gridDim.y; y++)
        for (unsigned x = 0; x < gridDim.x; x++) {
          blockIdx = {x, y, z};
          block(range, arguments);
        }
  }
};
