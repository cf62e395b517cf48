/* conv_direct.pk: convolutions with few channels per group, where a matrix product has nothing to reuse: each row of the result is
 * a sum of shifted rows, in a fixed order. Tensors are contiguous. The weight is (small channel, large channel of its group, window);
 * `w.channels` counts the large image's channels, `w.in` its places, `w.out` those of the small image, which has a place per window.
 *   small   the image of windows, from `bias` or 0 on. An item makes one row of it
 *   large   each place sums what the windows over it hand back; an item makes one row
 *   weight  an item sums one element of the weight's gradient: 16 partial sums per image, added up image by image, so that the
 *           rounding of a long sum stays small */
#include "pk_window.h"

PK_KERNEL_9(PK_NAME(small), PK_GLOBAL T *, small, PK_GLOBAL const T *, large, PK_GLOBAL const T *, weight,
            PK_GLOBAL const T *, bias, pk_i32, has_bias, pk_u64, n, pk_window_t, w, pk_i64, small_per_group, pk_i64,
            large_per_group) {
  PK_ITEM(r, n) {
    const pk_i64 small_channels = w.channels / large_per_group * small_per_group;
    pk_u64 rest = r;
    const pk_i64 y = pk_window_digit(&rest, w.out[1]), z = pk_window_digit(&rest, w.out[0]);
    const pk_i64 o = pk_window_digit(&rest, small_channels), batch = (pk_i64)rest;
    PK_GLOBAL T *x = small + (pk_i64)r * w.out[2];
    const T start = has_bias ? bias[o] : PK_C(0.0);
    PK_VECTOR_LOOP(j, (pk_u64)w.out[2]) { x[j] = start; }
    for (pk_i64 c = 0; c < large_per_group; c++) {
      const pk_i64 channel = batch * w.channels + o / small_per_group * large_per_group + c;
      PK_GLOBAL const T *factor = weight + (o * large_per_group + c) * w.size[0] * w.size[1] * w.size[2];
      for (pk_i64 kz = 0; kz < w.size[0]; kz++) {
        const pk_i64 iz = z * w.step[0] - w.pad[0] + kz * w.dilation[0];
        if (iz < 0 || iz >= w.in[0]) continue;
        for (pk_i64 ky = 0; ky < w.size[1]; ky++) {
          const pk_i64 iy = y * w.step[1] - w.pad[1] + ky * w.dilation[1];
          if (iy < 0 || iy >= w.in[1]) continue;
          PK_GLOBAL const T *line = large + ((channel * w.in[0] + iz) * w.in[1] + iy) * w.in[2];
          for (pk_i64 kx = 0; kx < w.size[2]; kx++) {
            const T f = factor[(kz * w.size[1] + ky) * w.size[2] + kx];
            pk_i64 begin, end;
            pk_window_reach(&w, 2, kx, &begin, &end);
            if (begin == end) continue;
            PK_GLOBAL const T *p = line + begin * w.step[2] - w.pad[2] + kx * w.dilation[2];
            PK_GLOBAL T *q = x + begin;
            if (w.step[2] == 1) {
              PK_VECTOR_LOOP(j, (pk_u64)(end - begin)) { q[j] += f * p[j]; }
            } else {
              for (pk_i64 j = 0; j < end - begin; j++) q[j] += f * p[j * w.step[2]];
            }
          }
        }
      }
    }
  }
}

PK_KERNEL_9(PK_NAME(large), PK_GLOBAL T *, large, PK_GLOBAL const T *, small, PK_GLOBAL const T *, weight,
            PK_GLOBAL const T *, bias, pk_i32, has_bias, pk_u64, n, pk_window_t, w, pk_i64, small_per_group, pk_i64,
            large_per_group) {
  PK_ITEM(r, n) {
    const pk_i64 small_channels = w.channels / large_per_group * small_per_group;
    pk_u64 rest = r;
    const pk_i64 y = pk_window_digit(&rest, w.in[1]), z = pk_window_digit(&rest, w.in[0]);
    const pk_i64 c = pk_window_digit(&rest, w.channels), batch = (pk_i64)rest;
    PK_GLOBAL T *x = large + (pk_i64)r * w.in[2];
    const T start = has_bias ? bias[c] : PK_C(0.0);
    PK_VECTOR_LOOP(j, (pk_u64)w.in[2]) { x[j] = start; }
    for (pk_i64 k = 0; k < small_per_group; k++) {
      const pk_i64 o = c / large_per_group * small_per_group + k;
      PK_GLOBAL const T *factor =
          weight + (o * large_per_group + c % large_per_group) * w.size[0] * w.size[1] * w.size[2];
      for (pk_i64 kz = 0; kz < w.size[0]; kz++) {
        const pk_i64 from_z = z + w.pad[0] - kz * w.dilation[0], oz = pk_window_down(from_z, w.step[0]);
        if (from_z < 0 || oz * w.step[0] != from_z || oz >= w.out[0]) continue;
        for (pk_i64 ky = 0; ky < w.size[1]; ky++) {
          const pk_i64 from_y = y + w.pad[1] - ky * w.dilation[1], oy = pk_window_down(from_y, w.step[1]);
          if (from_y < 0 || oy * w.step[1] != from_y || oy >= w.out[1]) continue;
          PK_GLOBAL const T *line = small + (((batch * small_channels + o) * w.out[0] + oz) * w.out[1] + oy) * w.out[2];
          for (pk_i64 kx = 0; kx < w.size[2]; kx++) {
            const T f = factor[(kz * w.size[1] + ky) * w.size[2] + kx];
            pk_i64 begin, end;
            pk_window_reach(&w, 2, kx, &begin, &end);
            if (begin == end) continue;
            PK_GLOBAL const T *p = line + begin;
            PK_GLOBAL T *q = x + begin * w.step[2] - w.pad[2] + kx * w.dilation[2];
            if (w.step[2] == 1) {
              PK_VECTOR_LOOP(j, (pk_u64)(end - begin)) { q[j] += f * p[j]; }
            } else {
              for (pk_i64 j = 0; j < end - begin; j++) q[j * w.step[2]] += f * p[j];
            }
          }
        }
      }
    }
  }
}

#define PK_SUMS 16
PK_KERNEL_8(PK_NAME(weight), PK_GLOBAL T *, weight, PK_GLOBAL const T *, large, PK_GLOBAL const T *, small, pk_u64, n,
            pk_window_t, w, pk_i64, batches, pk_i64, small_per_group, pk_i64, large_per_group) {
  PK_ITEM(r, n) {
    const pk_i64 small_channels = w.channels / large_per_group * small_per_group;
    pk_u64 rest = r;
    const pk_i64 kx = pk_window_digit(&rest, w.size[2]), ky = pk_window_digit(&rest, w.size[1]);
    const pk_i64 kz = pk_window_digit(&rest, w.size[0]), pair = (pk_i64)rest;
    const pk_i64 o = pair / large_per_group, c = o / small_per_group * large_per_group + pair % large_per_group;
    pk_i64 begin, end, y0, y1, z0, z1;
    pk_window_reach(&w, 2, kx, &begin, &end);
    pk_window_reach(&w, 1, ky, &y0, &y1);
    pk_window_reach(&w, 0, kz, &z0, &z1);
    T total = PK_C(0.0);
    for (pk_i64 batch = 0; batch < batches; batch++) {
      T sum[PK_SUMS];
      for (pk_i32 l = 0; l < PK_SUMS; l++) sum[l] = PK_C(0.0);
      pk_u32 next = 0; /* short rows fill all partial sums in turn */
      for (pk_i64 z = z0; z < z1; z++) {
        for (pk_i64 y = y0; y < y1; y++) {
          const pk_i64 iz = z * w.step[0] - w.pad[0] + kz * w.dilation[0],
                       iy = y * w.step[1] - w.pad[1] + ky * w.dilation[1];
          PK_GLOBAL const T *p = large + (((batch * w.channels + c) * w.in[0] + iz) * w.in[1] + iy) * w.in[2] -
                                 w.pad[2] + kx * w.dilation[2];
          PK_GLOBAL const T *q = small + (((batch * small_channels + o) * w.out[0] + z) * w.out[1] + y) * w.out[2];
          pk_i64 j = begin;
          if (w.step[2] == 1) {
            for (; j + PK_SUMS <= end; j += PK_SUMS) {
              for (pk_i32 l = 0; l < PK_SUMS; l++) sum[l] += p[j + l] * q[j + l];
            }
          }
          for (; j < end; j++) sum[next++ % PK_SUMS] += p[j * w.step[2]] * q[j];
        }
      }
      for (pk_i32 d = PK_SUMS / 2; d > 0; d >>= 1) {
        for (pk_i32 l = 0; l < d; l++) sum[l] += sum[l + d];
      }
      total += sum[0];
    }
    weight[r] = total;
  }
}
#undef PK_SUMS
