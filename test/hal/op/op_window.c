/* op_window.c: max pooling, averages, padding, unfolding and folding, and sparse maps along a dimension, compared
   with loops in plain C. */
#include "op_testing.h"

static const int64_t in[] = {2, 3, 5, 6, 7}, size[] = {2, 3, 2}, step[] = {2, 1, 3}, pad[] = {1, 1, 0},
                     dilation[] = {1, 2, 1};

static int64_t windows(int d) { return (in[2 + d] + 2 * pad[d] - dilation[d] * (size[d] - 1) - 1) / step[d] + 1; }

Test(op_window, max_pool_finds_the_first_largest_and_its_place_and_hands_the_gradient_back) {
  open_device();
  const int64_t out[] = {in[0], in[1], windows(0), windows(1), windows(2)};
  for (enum layout layout = CONTIGUOUS; layout < BROADCAST_ALL; layout++) {
    tensor_t *a = tensor_new(HAL_FLOAT64, 5, in, layout), *v = tensor_new(HAL_FLOAT64, 5, out, layout);
    tensor_t *q = tensor_new(HAL_INT64, 5, out, layout), *g = tensor_new(HAL_FLOAT64, 5, in, layout);
    tensor_randomize(a, 3);
    for (int64_t k = 0; k < a->storage; k++) { /* a Python test covers NaN; here comparisons are plain */
      double *x = (double *)(void *)a->host + k;
      if (*x != *x) *x = 0.25;
    }
    tensor_upload(a);
    const hal_value_t args[] = {of_tensor(a), of_list(size, 3), of_list(step, 3), of_list(pad, 3),
                                of_list(dilation, 3)};
    must(run_two("max_pool3d_with_indices", args, 5, v, q));
    tensor_download(v), tensor_download(q);
    double *sums = calloc((size_t)a->numel, sizeof *sums);
    for (int64_t k = 0; k < v->numel; k++) {
      const int64_t x0 = k % out[4], y0 = k / out[4] % out[3], z0 = k / out[4] / out[3] % out[2];
      const int64_t c = k / out[4] / out[3] / out[2] % out[1], n = k / out[4] / out[3] / out[2] / out[1];
      long double best = -INFINITY;
      int64_t place = -1;
      for (int64_t w = 0; w < size[0] * size[1] * size[2]; w++) {
        const int64_t z = z0 * step[0] - pad[0] + w / size[2] / size[1] * dilation[0];
        const int64_t y = y0 * step[1] - pad[1] + w / size[2] % size[1] * dilation[1],
                      x = x0 * step[2] - pad[2] + w % size[2];
        if (z < 0 || z >= in[2] || y < 0 || y >= in[3] || x < 0 || x >= in[4]) continue;
        const long double value = tensor_get(a, at5(in, n, c, z, y, x)).f;
        if (value > best || place < 0) best = value, place = (z * in[3] + y) * in[4] + x;
      }
      cr_assert_eq(tensor_get(v, k).f, best);
      cr_assert_eq(tensor_get(q, k).i, place);
      sums[(n * in[1] + c) * in[2] * in[3] * in[4] + place] += 1 + (double)(k % 5);
    }
    for (int64_t k = 0; k < v->numel; k++) ((double *)(void *)v->host)[tensor_place(v, k)] = 1 + (double)(k % 5);
    tensor_upload(v);
    const hal_value_t back[] = {of_tensor(v),     of_tensor(q),    of_list(size, 3),
                                of_list(step, 3), of_list(pad, 3), of_list(dilation, 3)};
    must(run("max_pool3d_with_indices_backward", back, 6, g, 0));
    tensor_download(g);
    for (int64_t k = 0; k < g->numel; k++) cr_assert_eq(tensor_get(g, k).f, sums[k]);
    free(sums), tensor_free(a), tensor_free(v), tensor_free(q), tensor_free(g);
  }
}

Test(op_window, unfolding_and_folding_are_transposed) {
  open_device();
  const int64_t count[] = {windows(0), windows(1), windows(2)}, places = size[0] * size[1] * size[2];
  const int64_t sizes[] = {in[0], in[1] * places, count[0] * count[1] * count[2]};
  tensor_t *a = tensor_new(HAL_FLOAT64, 5, in, REVERSED), *m = tensor_new(HAL_FLOAT64, 3, sizes, CONTIGUOUS);
  tensor_t *r = tensor_new(HAL_FLOAT64, 5, in, PADDED);
  for (int64_t k = 0; k < a->storage; k++) ((double *)(void *)a->host)[k] = (double)(k + 1);
  tensor_upload(a);
  const hal_value_t args[] = {of_tensor(a),         of_list(count, 3), of_list(size, 3),
                              of_list(dilation, 3), of_list(pad, 3),   of_list(step, 3)};
  must(run("im2col.windows", args, 6, m, 0));
  tensor_download(m);
  double *sums = calloc((size_t)a->numel, sizeof *sums);
  for (int64_t k = 0; k < m->numel; k++) {
    const int64_t column = k % sizes[2], row = k / sizes[2] % sizes[1], n = k / sizes[2] / sizes[1], w = row % places;
    const int64_t z = column / count[2] / count[1] * step[0] - pad[0] + w / size[2] / size[1] * dilation[0];
    const int64_t y = column / count[2] % count[1] * step[1] - pad[1] + w / size[2] % size[1] * dilation[1];
    const int64_t x = column % count[2] * step[2] - pad[2] + w % size[2] * dilation[2];
    const int inside = z >= 0 && z < in[2] && y >= 0 && y < in[3] && x >= 0 && x < in[4];
    const int64_t from = inside ? at5(in, n, row / places, z, y, x) : 0;
    cr_assert_eq(tensor_get(m, k).f, inside ? tensor_get(a, from).f : 0);
    if (inside) sums[from] += (double)(k % 11);
    ((double *)(void *)m->host)[k] = (double)(k % 11);
  }
  tensor_upload(m);
  const hal_value_t back[] = {of_tensor(m),         of_list(count, 3), of_list(size, 3),
                              of_list(dilation, 3), of_list(pad, 3),   of_list(step, 3)};
  must(run("col2im.windows", back, 6, r, 0));
  tensor_download(r);
  for (int64_t k = 0; k < r->numel; k++) cr_assert_eq(tensor_get(r, k).f, sums[k]);
  const int64_t wrong[] = {1, 2, 3};
  const hal_value_t other[] = {of_tensor(m),         of_list(wrong, 3), of_list(size, 3),
                               of_list(dilation, 3), of_list(pad, 3),   of_list(step, 3)};
  cr_assert_eq(run("col2im.windows", other, 6, r, 0), HAL_INVALID_ARGUMENT);
  const int64_t zero[] = {0, 1, 1};
  const hal_value_t empty[] = {of_tensor(m),         of_list(count, 3), of_list(zero, 3),
                               of_list(dilation, 3), of_list(pad, 3),   of_list(step, 3)};
  cr_assert_eq(run("col2im.windows", empty, 6, r, 0), HAL_INVALID_ARGUMENT);
  free(sums), tensor_free(a), tensor_free(m), tensor_free(r);
}

Test(op_window, a_sparse_map_sums_in_order_along_any_dimension_of_any_layout) {
  open_device();
  enum { OUT = 4, TERMS = 7 };
  static const int64_t starts[OUT + 1] = {0, 2, 2, 6, 7}, indices[TERMS] = {4, 0, 1, 1, 3, 2, 4};
  static const float weights[TERMS] = {0.5f, -1, 3, 0.25f, 1, 2, -4};
  const int64_t starts_size = OUT + 1, terms = TERMS, shape[] = {3, 5, 70};
  tensor_t *s = tensor_new(HAL_INT64, 1, &starts_size, CONTIGUOUS), *i = tensor_new(HAL_INT64, 1, &terms, CONTIGUOUS);
  tensor_t *w = tensor_new(HAL_FLOAT32, 1, &terms, CONTIGUOUS);
  memcpy(s->host, starts, sizeof starts), memcpy(i->host, indices, sizeof indices),
      memcpy(w->host, weights, sizeof weights);
  tensor_upload(s), tensor_upload(i), tensor_upload(w);
  for (int dim = 0; dim < 3; dim++)
    for (enum layout layout = CONTIGUOUS; layout < BROADCAST_ALL; layout++) {
      int64_t from[3] = {shape[0], shape[1], shape[2]}, to[3] = {shape[0], shape[1], shape[2]};
      from[dim] = 5, to[dim] = OUT;
      tensor_t *a = tensor_new(HAL_FLOAT32, 3, from, layout), *r = tensor_new(HAL_FLOAT32, 3, to, layout);
      for (int64_t k = 0; k < a->storage; k++) ((float *)(void *)a->host)[k] = (float)(k % 101) / 4;
      tensor_upload(a);
      const hal_value_t args[] = {of_tensor(a), of_tensor(s), of_tensor(i), of_tensor(w), of_int(dim)};
      must(run("resample", args, 5, r, 0));
      tensor_download(r);
      for (int64_t k = 0; k < r->numel; k++) {
        int64_t at[3] = {k / to[2] / to[1], k / to[2] % to[1], k % to[2]};
        const int64_t o = at[dim];
        float sum = 0;
        for (int64_t t = starts[o]; t < starts[o + 1]; t++) {
          at[dim] = indices[t];
          sum += weights[t] * (float)tensor_get(a, (at[0] * from[1] + at[1]) * from[2] + at[2]).f;
        }
        cr_assert_eq(tensor_get(r, k).f, sum);
      }
      tensor_free(a), tensor_free(r);
    }
  const int64_t too_few[] = {3, 5, 69};
  tensor_t *a = tensor_new(HAL_FLOAT32, 3, too_few, CONTIGUOUS), *r = tensor_new(HAL_FLOAT32, 3, shape, CONTIGUOUS);
  const hal_value_t args[] = {of_tensor(a), of_tensor(s), of_tensor(i), of_tensor(w), of_int(1)};
  cr_assert_eq(run("resample", args, 5, r, 0), HAL_INVALID_ARGUMENT);
  tensor_free(a), tensor_free(r), tensor_free(s), tensor_free(i), tensor_free(w);
}

/* The input position that position `o` of a padded dimension repeats. */
static int64_t repeated(int64_t o, int64_t before, int64_t size, int reflects) {
  int64_t i = o - before;
  if (!reflects) return i < 0 ? 0 : i >= size ? size - 1 : i;
  if (i < 0) i = -i;
  return i >= size ? 2 * (size - 1) - i : i;
}

static void pad_and_back(const char *op, const char *backward, int reflects, enum layout layout,
                         const int64_t *widths) {
  const int64_t from[] = {2, 70, 5, 6};
  const int64_t to[] = {2, 70, from[2] + widths[2] + widths[3], from[3] + widths[0] + widths[1]};
  tensor_t *a = tensor_new(HAL_FLOAT64, 4, from, layout), *r = tensor_new(HAL_FLOAT64, 4, to, layout);
  tensor_t *g = tensor_new(HAL_FLOAT64, 4, from, layout);
  double *sums = calloc((size_t)a->numel, sizeof *sums);
  for (int64_t k = 0; k < a->storage; k++) ((double *)(void *)a->host)[k] = (double)k;
  tensor_upload(a);
  const hal_value_t args[] = {of_tensor(a), of_list(widths, 4)};
  must(run(op, args, 2, r, 0));
  tensor_download(r);
  for (int64_t k = 0; k < r->numel; k++) {
    const int64_t x = repeated(k % to[3], widths[0], from[3], reflects);
    const int64_t y = repeated(k / to[3] % to[2], widths[2], from[2], reflects);
    const int64_t place = (k / to[3] / to[2] * from[2] + y) * from[3] + x;
    cr_assert_eq(tensor_get(r, k).f, tensor_get(a, place).f);
    sums[place] += (double)(k % 13);
    ((double *)(void *)r->host)[tensor_place(r, k)] = (double)(k % 13);
  }
  tensor_upload(r);
  const hal_value_t back[] = {of_tensor(r), of_tensor(a), of_list(widths, 4)};
  must(run(backward, back, 3, g, 0));
  tensor_download(g);
  for (int64_t k = 0; k < g->numel; k++) cr_assert_eq(tensor_get(g, k).f, sums[k]);
  free(sums), tensor_free(a), tensor_free(r), tensor_free(g);
}

Test(op_window, padding_repeats_places_and_hands_back_the_sum_of_what_repeats_them) {
  open_device();
  static const int64_t widths[][4] = {{2, 3, 1, 4}, {-2, 3, 4, -3}, {5, 5, 4, 4}, {0, 0, -1, -1}};
  for (enum layout layout = CONTIGUOUS; layout < BROADCAST_ALL; layout++)
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
      pad_and_back("reflection_pad2d", "reflection_pad2d_backward", 1, layout, widths[i]);
      pad_and_back("replication_pad2d", "replication_pad2d_backward", 0, layout, widths[i]);
    }
  const int64_t from[] = {1, 1, 4, 4}, to[] = {1, 1, 4, 9}, wide[] = {5, 0, 0, 0}, other[] = {1, 1, 0, 0};
  tensor_t *a = tensor_new(HAL_FLOAT64, 4, from, CONTIGUOUS), *r = tensor_new(HAL_FLOAT64, 4, to, CONTIGUOUS);
  const hal_value_t mirror[] = {of_tensor(a), of_list(wide, 4)}, misfit[] = {of_tensor(a), of_list(other, 4)};
  const hal_value_t few[] = {of_tensor(a), of_list(wide, 2)};
  cr_assert_eq(run("reflection_pad2d", mirror, 2, r, 0), HAL_INVALID_ARGUMENT);
  must(run("replication_pad2d", mirror, 2, r, 0));
  cr_assert_eq(run("replication_pad2d", misfit, 2, r, 0), HAL_INVALID_ARGUMENT);
  cr_assert_eq(run("replication_pad2d", few, 2, r, 0), HAL_INVALID_ARGUMENT);
  tensor_free(a), tensor_free(r);
}

Test(op_window, averages_of_windows_are_sums_of_places_and_hand_back_their_share) {
  open_device();
  static const int64_t from[] = {3, 70, 7, 9}, to[] = {3, 70, 4, 4}, sides[] = {3, 4}, steps[] = {2, 2},
                       pads[] = {1, 1};
  for (enum layout layout = CONTIGUOUS; layout < BROADCAST_ALL; layout++) {
    tensor_t *a = tensor_new(HAL_FLOAT64, 4, from, layout), *r = tensor_new(HAL_FLOAT64, 4, to, layout);
    tensor_t *g = tensor_new(HAL_FLOAT64, 4, from, layout);
    double *sums = calloc((size_t)a->numel, sizeof *sums);
    for (int64_t k = 0; k < a->storage; k++) ((double *)(void *)a->host)[k] = (double)(k % 64);
    tensor_upload(a);
    const hal_value_t args[] = {of_tensor(a), of_list(sides, 2), of_list(steps, 2), of_list(pads, 2),
                                of_int(0),    of_int(0),         of_int(8)}; /* a divisor of 8: bits are exact */
    must(run("avg_pool2d", args, 7, r, 0));
    tensor_download(r);
    for (int64_t k = 0; k < r->numel; k++) {
      double sum = 0;
      for (int64_t w = 0; w < sides[0] * sides[1]; w++) {
        const int64_t y = k / to[3] % to[2] * 2 - 1 + w / sides[1], x = k % to[3] * 2 - 1 + w % sides[1];
        if (y < 0 || y >= from[2] || x < 0 || x >= from[3]) continue;
        const int64_t place = (k / to[3] / to[2] * from[2] + y) * from[3] + x;
        sum += (double)tensor_get(a, place).f;
        sums[place] += (double)(k % 13);
      }
      cr_assert_eq(tensor_get(r, k).f, sum / 8);
    }
    for (int64_t k = 0; k < r->numel; k++) ((double *)(void *)r->host)[tensor_place(r, k)] = (double)(k % 13);
    tensor_upload(r);
    const hal_value_t back[] = {of_tensor(r),     of_tensor(a), of_list(sides, 2), of_list(steps, 2),
                                of_list(pads, 2), of_int(0),    of_int(0),         of_int(8)};
    must(run("avg_pool2d_backward", back, 8, g, 0));
    tensor_download(g);
    for (int64_t k = 0; k < g->numel; k++) cr_assert_eq(tensor_get(g, k).f, sums[k] / 8);
    free(sums), tensor_free(a), tensor_free(r), tensor_free(g);
  }
  const int64_t flat[] = {7};
  tensor_t *a = tensor_new(HAL_FLOAT64, 1, flat, CONTIGUOUS), *r = tensor_new(HAL_FLOAT64, 1, flat, CONTIGUOUS);
  const hal_value_t args[] = {of_tensor(a), of_list(sides, 2), of_list(steps, 2), of_list(pads, 2),
                              of_int(0),    of_int(0),         of_int(8)};
  cr_assert_eq(run("avg_pool2d", args, 7, r, 0), HAL_INVALID_ARGUMENT);
  tensor_free(a), tensor_free(r);
}
