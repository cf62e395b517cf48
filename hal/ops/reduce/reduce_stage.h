/* reduce_stage.h: one stage of a reduction over one dimension, included by reduce.pk and reduce_pair.pk once for each
 * kind of source with
 *   PK_STAGE(v)       name of the kernel for variant v
 *   PK_S              type of a source element in memory
 *   PK_FIRST          1: the source's elements are operands, 0: accumulators
 *   PK_PAIRED         1: the stage reads a second tensor b and a number c of each output
 *   PK_TAKE(x, y, z)  an element's contribution, of type PK_A: x of a, y of b, z of c
 * and the macros of the instance that reduce.pk describes.
 *
 * Accuracy: no accumulator takes more than 64 elements or partial results one after the other, so the error of a
 * float32 sum grows as that of a pairwise sum, not with the number of elements.
 *
 * A unit of work is one chunk of one row (rows), or one chunk of PK_STRIP neighboring columns (cols). A group computes
 * `per_group` units: 1 on devices with many threads, enough for a thread's attention on a CPU. Operand 0 of `kept` is
 * the result, 1 is a, 2 b, 3 c. Chunk i of an output goes to place i after the output's first element. */
#if PK_PAIRED
#define PK_OPERANDS 4
#define PK_STAGE_ARGS REDUCE_PAIR_STAGE_ARGS
#define PK_NUMBER(place) (s.with_c ? c[place] : (PK_A)0)
#define PK_AT(i, k) PK_TAKE(PK_READ(p[i]), PK_READ(q[k]), z)
#else
#define PK_OPERANDS 2
#define PK_STAGE_ARGS REDUCE_STAGE_ARGS
#define PK_NUMBER(place) 0
#define PK_AT(i, k) PK_TAKE(PK_READ(p[i]), 0, 0)
#endif

#if PK_FIRST
#define PK_READ_SOURCE(x) PK_GET(x)
#else
#define PK_READ_SOURCE(x) (x)
#endif

/* Operands of rows and cols. PK_VIEW(p, source, n, buffer): the next n elements from `source` on, as p. PK_VIEW_4: four
 * lines of PK_STRIP elements, whose distance in p is PK_STEP(distance). The host converts half precision to float32 in
 * the buffer, which PK_ROOM declares (kernels/pk_widen.h). */
#if defined(PK_HOST) && PK_FIRST && defined(PK_RUNS)
#define PK_READ(x) (x)
#define PK_ROOM(room, count) \
  float room[count];         \
  const pk_half_runs_t *const room##_runs = pk_half_runs(PK_RUNS, 1);
#define PK_VIEW(p, source, n, room)                                \
  room##_runs->widen(room, (const pk_u16 *)(source), (pk_u64)(n)); \
  const float *const p = room;
#define PK_VIEW_4(p, source, distance, room)                                                              \
  for (int line = 0; line < 4; line++)                                                                    \
    room##_runs->widen(room + line * PK_STRIP, (const pk_u16 *)((source) + line * (distance)), PK_STRIP); \
  const float *const p = room;
#define PK_STEP(distance) PK_STRIP
#else
#define PK_READ(x) PK_READ_SOURCE(x)
#define PK_ROOM(room, count)
#define PK_VIEW(p, source, n, room) PK_GLOBAL const PK_S *p = (source);
#define PK_VIEW_4(p, source, distance, room) PK_GLOBAL const PK_S *p = (source);
#define PK_STEP(distance) (distance)
#endif

/* Writes an output or a chunk's partial result: finished unless `divisor` is negative, as an accumulator unless
 * `final`. */
#define PK_WRITE(place, x)                                           \
  {                                                                  \
    const PK_A pk_x = s.divisor < 0 ? (x) : PK_FINISH(x, s.divisor); \
    if (s.final)                                                     \
      result[place] = PK_PUT_R(pk_x);                                \
    else                                                             \
      ((PK_GLOBAL PK_A *)result)[place] = pk_x;                      \
  }

#if PK_PAIRED
#define PK_ROW_VIEW(block, end)         \
  PK_VIEW(p, p0 + (block), end, p_room) \
  PK_VIEW(q, q0 + (block), end, q_room)
#else
#define PK_ROW_VIEW(block, end) PK_VIEW(p, p0 + (block), end, p_room)
#endif
#define PK_ROW_AT(i) PK_AT(i, i)

/* Accumulates a row's items into y. With many threads elements are read in runs, whose numbers are combined as a
 * tree. */
#if PK_PAIRED || defined(PK_WIDE_CORES)
#define PK_ROW_SEGMENT PK_SEGMENT(PK_A, x, y, length, PK_INIT, PK_COMBINE, PK_ROW_VIEW, PK_ROW_AT)
#else
#define PK_LENGTH PK_RUN_LENGTH(sizeof(PK_S))
PK_RUN_TYPE(PK_S, PK_STAGE(rows_run), PK_LENGTH)
#define PK_ROW_MORE(v)                                 \
  {                                                    \
    PK_P(x, l) = PK_COMBINE(PK_P(x, l), v);            \
    if (++taken == 64) {                               \
      PK_P(y, l) = PK_COMBINE(PK_P(y, l), PK_P(x, l)); \
      PK_P(x, l) = PK_INIT;                            \
      taken = 0;                                       \
    }                                                  \
  }
#define PK_ROW_SEGMENT                                                                                  \
  int taken = 0; /* by x */                                                                             \
  PK_EACH(l) { PK_P(x, l) = PK_P(y, l) = PK_INIT; }                                                     \
  PK_RUN_ALONG(                                                                                         \
      l, k, p0, length, PK_LENGTH, 0,                                                                   \
      {                                                                                                 \
        const PK_STAGE(rows_run) run = PK_RUN_OF(PK_STAGE(rows_run), p0 + k, 0);                        \
        PK_A v[PK_LENGTH];                                                                              \
        PK_RUN_EACH(e, PK_LENGTH) v[e] = PK_TAKE(PK_READ(run.x[e]), 0, 0);                              \
        PK_UNROLLED for (int half_ = PK_LENGTH / 2; half_ > 0; half_ /= 2) PK_RUN_EACH(e, half_) v[e] = \
            PK_COMBINE(v[e], v[e + half_]);                                                             \
        PK_ROW_MORE(v[0])                                                                               \
      },                                                                                                \
      PK_ROW_MORE(PK_TAKE(PK_READ(p0[k]), 0, 0)))                                                       \
  PK_EACH(l) { PK_P(y, l) = PK_COMBINE(PK_P(y, l), PK_P(x, l)); }
#endif

/* The reduced dimension has stride 1 in a and b. */
PK_KERNEL(PK_STAGE(rows), PK_STAGE_ARGS) {
  PK_LOCAL_ARRAY(PK_A, t, PK_LSIZE);
  PK_GROUP(g) {
#ifndef PK_HOST
    PK_PRIV(PK_A, x);
#endif
    PK_PRIV(PK_A, y);
    PK_ROOM(p_room, 64 * PK_LSIZE)
#if PK_PAIRED
    PK_ROOM(q_room, 64 * PK_LSIZE)
#endif
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    (void)s0;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_u64 row = s.chunks == 1 ? u : u / (pk_u64)s.chunks;
      const pk_i64 part = (pk_i64)(u - row * (pk_u64)s.chunks);
      const pk_i64 length = s.n - part * s.chunk < s.chunk ? s.n - part * s.chunk : s.chunk;
      pk_i64 offset[PK_OPERANDS];
      pk_row_offsets(&kept, row, PK_OPERANDS, offset);
      PK_GLOBAL const PK_S *p0 = a + offset[1] + part * s.chunk;
#if PK_PAIRED
      PK_GLOBAL const PK_S *q0 = b + offset[2] + part * s.chunk;
      const PK_A z = PK_NUMBER(offset[3]);
#endif
#ifdef PK_HOST
      PK_SEGMENT_OF(PK_A, t, y, length, PK_INIT, PK_COMBINE, PK_ROW_VIEW, PK_ROW_AT)
#else
      PK_ROW_SEGMENT
      PK_EACH(l) { t[l] = PK_P(y, l); }
#endif
      PK_SYNC();
      PK_FOLD_ROW(t)
      PK_EACH(l) {
        if (l == 0) PK_WRITE(offset[0] + part, t[0])
      }
      PK_SYNC();
    }
  }
}

/* One step of four columns per item over up to four rows, and the transfer to the second level. */
#if PK_PAIRED
#define PK_STRIP_NUMBER(zw) const PK_A z = PK_P(zw, l);
#else
#define PK_STRIP_NUMBER(zw)
#endif
#define PK_STRIP_4(w, xw, zw)                                                                                 \
  {                                                                                                           \
    PK_STRIP_NUMBER(zw)                                                                                       \
    const pk_i64 k = (w)*PK_LSIZE + l;                                                                        \
    const PK_A v0 = PK_COMBINE(PK_AT(k, k), PK_AT(p_step + k, q_step + k));                                   \
    const PK_A v1 = PK_COMBINE(PK_AT(2 * p_step + k, 2 * q_step + k), PK_AT(3 * p_step + k, 3 * q_step + k)); \
    PK_P(xw, l) = PK_COMBINE(PK_P(xw, l), PK_COMBINE(v0, v1));                                                \
  }
#define PK_STRIP_1(w, xw, zw)                               \
  if ((w)*PK_LSIZE < width) {                               \
    PK_EACH(l) {                                            \
      const pk_i64 k = (w)*PK_LSIZE + l;                    \
      if (k < width) {                                      \
        PK_STRIP_NUMBER(zw)                                 \
        PK_P(xw, l) = PK_COMBINE(PK_P(xw, l), PK_AT(k, k)); \
      }                                                     \
    }                                                       \
  }
#define PK_STRIP_FLUSH(xw, yw)                        \
  PK_P(yw, l) = PK_COMBINE(PK_P(yw, l), PK_P(xw, l)); \
  PK_P(xw, l) = PK_INIT;
#define PK_STRIP_STORE(w, yw) \
  if ((w)*PK_LSIZE + l < width) PK_WRITE(place + ((w)*PK_LSIZE + l) * s.result_column, PK_P(yw, l))

/* A kept dimension of `columns` elements has stride 1 in a and b; the reduced one any stride. */
PK_KERNEL(PK_STAGE(cols), PK_STAGE_ARGS) {
  PK_GROUP(g) {
    PK_PRIV(PK_A, x0);
    PK_PRIV(PK_A, x1);
    PK_PRIV(PK_A, x2);
    PK_PRIV(PK_A, x3);
    PK_PRIV(PK_A, y0);
    PK_PRIV(PK_A, y1);
    PK_PRIV(PK_A, y2);
    PK_PRIV(PK_A, y3);
#if PK_PAIRED
    PK_PRIV(PK_A, z0);
    PK_PRIV(PK_A, z1);
    PK_PRIV(PK_A, z2);
    PK_PRIV(PK_A, z3);
#endif
    PK_ROOM(p_room, 4 * PK_STRIP)
    const pk_i64 p_step = PK_STEP(s.stride);
#if PK_PAIRED
    PK_ROOM(q_room, 4 * PK_STRIP)
    const pk_i64 q_step = PK_STEP(s.b_stride);
#endif
    const pk_u64 strips = (pk_u64)((s.columns + PK_STRIP - 1) / PK_STRIP);
    const pk_u64 last = (g + 1) * per_group < units ? (g + 1) * per_group : units;
    (void)s0;
    for (pk_u64 u = g * per_group; u < last; u++) {
      const pk_u64 output = u / strips, row = output / (pk_u64)s.chunks;
      const pk_i64 column = (pk_i64)(u - output * strips) * PK_STRIP, part = (pk_i64)(output - row * (pk_u64)s.chunks);
      const pk_i64 width = s.columns - column < PK_STRIP ? s.columns - column : PK_STRIP;
      const pk_i64 length = s.n - part * s.chunk < s.chunk ? s.n - part * s.chunk : s.chunk;
      pk_i64 offset[PK_OPERANDS];
      pk_row_offsets(&kept, row, PK_OPERANDS, offset);
      PK_GLOBAL const PK_S *p0 = a + offset[1] + part * s.chunk * s.stride + column;
      const pk_i64 place = offset[0] + part + column * s.result_column;
#if PK_PAIRED
      PK_GLOBAL const PK_S *q0 = b + offset[2] + part * s.chunk * s.b_stride + column;
      PK_EACH(l) {
        const pk_i64 at = offset[3] + column * s.c_column;
        PK_P(z0, l) = l < width ? PK_NUMBER(at + l * s.c_column) : (PK_A)0;
        PK_P(z1, l) = PK_LSIZE + l < width ? PK_NUMBER(at + (PK_LSIZE + l) * s.c_column) : (PK_A)0;
        PK_P(z2, l) = 2 * PK_LSIZE + l < width ? PK_NUMBER(at + (2 * PK_LSIZE + l) * s.c_column) : (PK_A)0;
        PK_P(z3, l) = 3 * PK_LSIZE + l < width ? PK_NUMBER(at + (3 * PK_LSIZE + l) * s.c_column) : (PK_A)0;
      }
#endif
      PK_EACH(l) {
        PK_P(x0, l) = PK_P(x1, l) = PK_P(x2, l) = PK_P(x3, l) = PK_INIT;
        PK_P(y0, l) = PK_P(y1, l) = PK_P(y2, l) = PK_P(y3, l) = PK_INIT;
      }
      for (pk_i64 block = 0; block < length; block += 64) {
        const pk_i64 end = block + 64 < length ? block + 64 : length;
        pk_i64 i = block;
        if (width == PK_STRIP) {
          for (; i + 4 <= end; i += 4) {
            PK_VIEW_4(p, p0 + i * s.stride, s.stride, p_room)
#if PK_PAIRED
            PK_VIEW_4(q, q0 + i * s.b_stride, s.b_stride, q_room)
#endif
            PK_EACH(l) { PK_STRIP_4(0, x0, z0) PK_STRIP_4(1, x1, z1) PK_STRIP_4(2, x2, z2) PK_STRIP_4(3, x3, z3) }
          }
        }
        for (; i < end; i++) {
          PK_VIEW(p, p0 + i * s.stride, width, p_room)
#if PK_PAIRED
          PK_VIEW(q, q0 + i * s.b_stride, width, q_room)
#endif
          PK_STRIP_1(0, x0, z0) PK_STRIP_1(1, x1, z1) PK_STRIP_1(2, x2, z2) PK_STRIP_1(3, x3, z3)
        }
        PK_EACH(l) { PK_STRIP_FLUSH(x0, y0) PK_STRIP_FLUSH(x1, y1) PK_STRIP_FLUSH(x2, y2) PK_STRIP_FLUSH(x3, y3) }
      }
      PK_EACH(l) { PK_STRIP_STORE(0, y0) PK_STRIP_STORE(1, y1) PK_STRIP_STORE(2, y2) PK_STRIP_STORE(3, y3) }
    }
  }
}
#undef PK_STRIP_NUMBER
#undef PK_STRIP_4
#undef PK_STRIP_1
#undef PK_STRIP_FLUSH
#undef PK_STRIP_STORE

#undef PK_READ
#define PK_READ(x) PK_READ_SOURCE(x)

/* Any strides: an item computes `per_group` outputs of `units`, each separately, in three levels of at most 64
 * steps. */
PK_KERNEL(PK_STAGE(strided), PK_STAGE_ARGS) {
  PK_ITEM(item, (units + per_group - 1) / per_group) {
    const pk_u64 last = (item + 1) * per_group < units ? (item + 1) * per_group : units;
    (void)s0;
    for (pk_u64 i = item * per_group; i < last; i++) {
      pk_i64 offset[PK_OPERANDS];
      pk_row_offsets(&kept, i, PK_OPERANDS, offset);
      PK_GLOBAL const PK_S *p = a + offset[1];
#if PK_PAIRED
      PK_GLOBAL const PK_S *q = b + offset[2];
      const PK_A z = PK_NUMBER(offset[3]);
#endif
      PK_A y2 = PK_INIT;
      for (pk_i64 outer = 0; outer < s.n; outer += 64 * 64) {
        const pk_i64 outer_end = outer + 64 * 64 < s.n ? outer + 64 * 64 : s.n;
        PK_A y = PK_INIT;
        for (pk_i64 inner = outer; inner < outer_end; inner += 64) {
          const pk_i64 end = inner + 64 < outer_end ? inner + 64 : outer_end;
          PK_A x = PK_INIT;
          for (pk_i64 j = inner; j < end; j++) x = PK_COMBINE(x, PK_AT(j * s.stride, j * s.b_stride));
          y = PK_COMBINE(y, x);
        }
        y2 = PK_COMBINE(y2, y);
      }
      PK_WRITE(offset[0], y2)
    }
  }
}
#undef PK_OPERANDS
#undef PK_STAGE_ARGS
#undef PK_NUMBER
#undef PK_AT
#undef PK_WRITE
#undef PK_READ_SOURCE
#undef PK_READ
#undef PK_ROOM
#undef PK_ROW_VIEW
#undef PK_ROW_AT
#undef PK_VIEW
#undef PK_VIEW_4
#undef PK_STEP
#undef PK_ROW_SEGMENT
#undef PK_ROW_MORE
#undef PK_LENGTH
