/* conv_unfold_cpu.h: the unfolded image in memory, for products on devices with few wide cores: conv_cpu.c multiplies it by gemm_cpu.h.
 * An item writes all places of a window in one channel, for PK_CPU_N windows that follow one another. */

#ifndef PK_CONV_WINDOWS_T_
#define PK_CONV_WINDOWS_T_
/* Where PK_CPU_N windows begin; a window that does not exist begins behind the image. */
typedef struct {
  pk_i64 z[PK_CPU_N], y[PK_CPU_N], x[PK_CPU_N];
  pk_i64 in_line; /* all exist and follow one another along the last dimension */
} pk_conv_windows_t;

PK_FN void pk_conv_find_windows(const pk_window_t *w, pk_i64 first, pk_conv_windows_t *out) {
  pk_u64 rest = (pk_u64)first;
  pk_i64 x = pk_window_digit(&rest, w->out[2]), y = pk_window_digit(&rest, w->out[1]), z = (pk_i64)rest;
  out->in_line = x + PK_CPU_N <= w->out[2];
  for (int e = 0; e < PK_CPU_N; e++) {
    out->z[e] = z < w->out[0] ? z * w->step[0] - w->pad[0] : w->in[0] + w->pad[0];
    out->y[e] = y * w->step[1] - w->pad[1];
    out->x[e] = x * w->step[2] - w->pad[2];
    if (++x < w->out[2]) continue;
    x = 0;
    if (++y < w->out[1]) continue;
    y = 0;
    z++;
  }
}
#endif

PK_KERNEL(PK_NAME(unfold), CONV_UNFOLD_ARGS) {
  PK_ITEM(i, n) {
    const pk_window_t w = s.window;
    pk_u64 rest = i;
    const pk_i64 c = pk_window_digit(&rest, w.channels), panel = pk_window_digit(&rest, panels), b = (pk_i64)rest;
    PK_GLOBAL T *q = to + b * to_image + panel * to_panel + c * pk_conv_places(&w) * to_row;
    PK_GLOBAL const T *from = image + b * s.image.batch + c * s.image.channel;
    pk_conv_windows_t at;
    pk_conv_find_windows(&w, panel * PK_CPU_N, &at);
    const pk_i64 span = (PK_CPU_N - 1) * w.step[2];
    for (pk_i64 kz = 0; kz < w.size[0]; kz++) {
      for (pk_i64 ky = 0; ky < w.size[1]; ky++) {
        const pk_i64 z0 = at.z[0] + kz * w.dilation[0], y0 = at.y[0] + ky * w.dilation[1];
        const int line = at.in_line && z0 >= 0 && z0 < w.in[0] && y0 >= 0 && y0 < w.in[1];
        for (pk_i64 kx = 0; kx < w.size[2]; kx++, q += to_row) {
          const pk_i64 x0 = at.x[0] + kx * w.dilation[2];
          if (line && x0 >= 0 && x0 + span < w.in[2]) {
            PK_GLOBAL const T *p = from + z0 * s.image.space[0] + y0 * s.image.space[1] + x0 * s.image.space[2];
            const pk_i64 step = w.step[2] * s.image.space[2];
            if (step == 1) {
              for (int e = 0; e < PK_CPU_N; e++) q[e] = p[e];
            } else {
              for (int e = 0; e < PK_CPU_N; e++) q[e] = p[e * step];
            }
            continue;
          }
          for (int e = 0; e < PK_CPU_N; e++) {
            const pk_i64 z = at.z[e] + kz * w.dilation[0], y = at.y[e] + ky * w.dilation[1],
                         x = at.x[e] + kx * w.dilation[2];
            const int inside = z >= 0 && z < w.in[0] && y >= 0 && y < w.in[1] && x >= 0 && x < w.in[2];
            q[e] = inside ? from[z * s.image.space[0] + y * s.image.space[1] + x * s.image.space[2]] : PK_C(0.0);
          }
        }
      }
    }
  }
}
