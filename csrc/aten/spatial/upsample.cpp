// upsample.cpp: interpolation of images: nearest, linear, cubic, with and without antialiasing, forward and backward, as
// linear maps along each dimension. Source places and weights are those of ATen's own functions.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#define AT_PER_OPERATOR_HEADERS
#include <ATen/native/UpSample.h>

#include "aten/prepare/registered.h"
#include "aten/spatial/linear_map.h"

namespace torch_backend {
namespace {

enum class Kind { kNearest, kNearestExact, kLinear, kCubic, kLinearAntialias, kCubicAntialias };
using enum Kind;

// What the operators of this file are given besides the tensor, in any order.
struct Options {
  c10::IntArrayRef input_size;  // of backward
  bool align_corners = false;
  c10::SmallVector<std::optional<double>, 3> scales;

  void take(c10::IntArrayRef sizes) { input_size = sizes; }
  void take(bool align) { align_corners = align; }
  void take(std::optional<double> scale) { scales.push_back(scale); }
};

template <typename T>
void add_linear(LinearMap &map, int64_t o, int64_t in, int64_t out, bool align, T ratio) {
  int64_t first, second;
  T first_weight, second_weight;
  at::native::compute_source_index_and_lambda<T, T>(first, second, first_weight, second_weight, ratio, o, in, out,
                                                    align);
  map.add(first, first_weight);
  if (second_weight != 0) map.add(second, second_weight);
}

template <typename T>
void add_cubic(LinearMap &map, int64_t o, int64_t in, bool align, T ratio) {
  const T place = at::native::area_pixel_compute_source_index<T>(ratio, o, align, /*cubic=*/true);
  const T floor = std::floor(place);
  T weights[4];
  at::native::get_cubic_upsample_coefficients<T>(weights, place - floor);
  for (int64_t j = 0; j < 4; j++) {
    map.add(std::clamp<int64_t>(static_cast<int64_t>(floor) - 1 + j, 0, in - 1), weights[j]);
  }
}

// Keys' cubic kernel with a = -0.5, and the triangle.
template <typename T>
T antialias_filter(bool cubic, T x) {
  x = std::abs(x);
  if (!cubic) return x < 1 ? 1 - x : 0;
  if (x < 1) return at::native::cubic_convolution1<T>(x, T(-0.5));
  return x < 2 ? at::native::cubic_convolution2<T>(x, T(-0.5)) : 0;
}

// The filter is as wide as a result's pixel covers of the input.
template <typename T>
void add_antialiased(LinearMap &map, int64_t o, int64_t in, bool cubic, T ratio) {
  const T widening = std::max<T>(ratio, 1), support = (cubic ? 2 : 1) * widening;
  const T center = ratio * (static_cast<T>(o) + T(0.5));
  const int64_t begin = std::max<int64_t>(static_cast<int64_t>(center - support + T(0.5)), 0);
  const int64_t end = std::min<int64_t>(static_cast<int64_t>(center + support + T(0.5)), in);
  std::vector<T> weights;
  T total = 0;
  for (int64_t i = begin; i < end; i++) {
    weights.push_back(antialias_filter<T>(cubic, (static_cast<T>(i) - center + T(0.5)) / widening));
    total += weights.back();
  }
  for (int64_t i = begin; i < end; i++) {
    const T weight = weights[static_cast<size_t>(i - begin)];
    map.add(i, total != 0 ? weight / total : weight);
  }
}

template <typename T>
LinearMap interpolation(Kind kind, int64_t in, int64_t out, bool align, std::optional<double> scale) {
  LinearMap map(in);
  const T ratio = at::native::area_pixel_compute_scale<T>(in, out, align, scale);
  for (int64_t o = 0; o < out; o++) {
    switch (kind) {
      case Kind::kNearest:
        map.add(at::native::nearest_idx(o, in, out, scale), 1);
        break;
      case Kind::kNearestExact:
        map.add(at::native::nearest_exact_idx(o, in, out, scale), 1);
        break;
      case Kind::kLinear:
        add_linear<T>(map, o, in, out, align, ratio);
        break;
      case Kind::kCubic:
        add_cubic<T>(map, o, in, align, ratio);
        break;
      default:
        add_antialiased<T>(map, o, in, kind == Kind::kCubicAntialias, ratio);
    }
    map.end_row();
  }
  return map;
}

template <Kind kKind, bool kBackward>
struct Upsample {
  template <class... Rest>
  bool operator()(const Outputs &outputs, const at::Tensor &self, c10::IntArrayRef output_size,
                  const Rest &...rest) const {
    Options options;
    (options.take(rest), ...);
    const c10::IntArrayRef input_size = (kBackward ? options.input_size : self.sizes()).slice(2);
    if (!self.is_floating_point()) return false;
    const auto map = self.scalar_type() == at::kDouble ? interpolation<double> : interpolation<float>;
    const auto maps = maps_along(output_size.size(), input_size, output_size, [&](size_t d, int64_t in, int64_t out) {
      return map(kKind, in, out, options.align_corners, options.scales[d]);
    });
    return apply_maps(self, kBackward ? transposed(maps) : maps, outputs[0]);
  }
};

template <Kind kKind>
constexpr Upsample<kKind, false> upsample;
template <Kind kKind>
constexpr Upsample<kKind, true> upsample_backward;

}  // namespace
}  // namespace torch_backend

#include "aten/spatial/upsample.inc"  // registrations: `bodies` of codegen/ops.yaml
