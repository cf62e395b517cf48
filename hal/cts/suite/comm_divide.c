/* comm_divide.c: communicators of a part of another one's ranks, and registered memory. */
#include <signal.h>
#include <stdio.h>

#include "crew.h"
#include "hal/status.h"

enum { ROUNDS = 6, SIZE = 1 << 16, LIMIT_S = 60 };

static hal_comm_desc_t describe(void) {
  return (hal_comm_desc_t){
      .struct_size = HAL_STRUCT_SIZE(hal_comm_desc_t, name), .timeout_ns = LIMIT_S * CTS_SECOND, .name = "part"};
}

/* The communicator has these ranks of the parent, in this order. */
static void check_ranks(cts_crew_t *crew, hal_plugin_comm_t *comm, const int *ranks, int count, const char *what) {
  int32_t *const got = (int32_t *)(void *)cts_host(crew->t, (size_t)(CTS_CREW_MOST + 1) * sizeof *got);
  int32_t *const send = cts_alloc(crew->t, sizeof *send), *const recv = cts_alloc(crew->t, 256);
  const int32_t own = crew->rank, none = -7;
  for (int i = 0; i <= CTS_CREW_MOST; i++) cts_put(crew->t, NULL, recv + i, &none, sizeof none);
  cts_put(crew->t, NULL, send, &own, sizeof own);
  cts_comm_queue(
      crew, comm, NULL,
      (hal_collective_t){.op = HAL_COMM_ALL_GATHER, .dtype = HAL_INT32, .count = 1, .send = send, .recv = recv});
  cts_get(crew->t, NULL, got, recv, (size_t)(CTS_CREW_MOST + 1) * sizeof *got);
  for (int i = 0; i <= CTS_CREW_MOST; i++)
    CTS_CHECK(crew->t, got[i] == (i < count ? ranks[i] : none), "%s: its rank %d is rank %d of the parent, not %d",
              what, i, (int)got[i], i < count ? ranks[i] : (int)none);
  cts_free(crew->t, send), cts_free(crew->t, recv);
}

static void check_parent(cts_crew_t *crew, hal_plugin_comm_t *comm, const char *what) {
  int ranks[CTS_CREW_MOST];
  for (int i = 0; i < crew->size; i++) ranks[i] = i;
  check_ranks(crew, comm, ranks, crew->size, what);
}

static void split_reversed(cts_crew_t *crew, hal_plugin_comm_t *parent) {
  static hal_plugin_comm_t *const garbage = (hal_plugin_comm_t *)(void *)&garbage;
  hal_plugin_comm_t *part = garbage;
  const hal_comm_desc_t desc = describe();
  const int out = crew->size - 1;
  int ranks[CTS_CREW_MOST];
  for (int i = 0; i < out; i++) ranks[i] = out - 1 - i;
  CTS_OK(crew->t, comm_split, parent, crew->rank == out ? -1 : 3, -crew->rank, &desc, &part);
  if (crew->rank == out) {
    CTS_JUDGE(crew->t, comm_split, "a color of -1 joins none");
    CTS_CHECK(crew->t, !part, "comm_split with color -1 returned a communicator");
    return;
  }
  CTS_CHECK(crew->t, part && part != garbage, "comm_split with color 3 returned no communicator");
  check_ranks(crew, part, ranks, out, "comm_split with keys against the order of the ranks");
  CTS_OK(crew->t, comm_destroy, part, LIMIT_S * CTS_SECOND);
}

static void split_in_two(cts_crew_t *crew, hal_plugin_comm_t *parent) {
  hal_plugin_comm_t *part = NULL;
  const hal_comm_desc_t desc = describe();
  int ranks[CTS_CREW_MOST], count = 0;
  for (int i = crew->rank % 2; i < crew->size; i += 2) ranks[count++] = i;
  CTS_OK(crew->t, comm_split, parent, crew->rank % 2, 0, &desc, &part);
  CTS_CHECK(crew->t, part, "comm_split with color %d returned no communicator", crew->rank % 2);
  check_parent(crew, parent, "the parent while a part of it exists");
  check_ranks(crew, part, ranks, count, "comm_split with equal keys");
  CTS_OK(crew->t, comm_destroy, part, LIMIT_S * CTS_SECOND);
}

static void split(cts_crew_t *crew) {
  cts_crew_needs(crew, HAL_COMM_CAN_SPLIT, "HAL_COMM_CAN_SPLIT");
  hal_plugin_comm_t *const parent = cts_comm(crew);
  for (int i = 0; i < ROUNDS; i++) {
    CTS_JUDGE(crew->t, comm_split, "Divides a communicator");
    (i % 2 ? split_in_two : split_reversed)(crew, parent);
  }
  CTS_JUDGE(crew->t, comm_split, "Divides a communicator");
  check_parent(crew, parent, "the parent after its parts");
  cts_comm_end(crew, parent);
}
void cts_case_comm_split(cts_t *t) { cts_crew(t, 2, 4, HAL_SLOT_comm_split, split); }

/* ---- shrink ---- */

/* The middle rank is killed; the others continue without it. */
static void shrink(cts_crew_t *crew) {
  hal_plugin_comm_t *less = NULL;
  const hal_comm_desc_t desc = describe();
  const int32_t lost = 1;
  const int ranks[] = {0, 2};
  cts_crew_needs(crew, HAL_COMM_CAN_SHRINK, "HAL_COMM_CAN_SHRINK");
  hal_plugin_comm_t *const parent = cts_comm(crew);
  check_parent(crew, parent, "a new communicator");
  if (!crew->rank) cts_crew_lose(crew, lost);
  cts_crew_meet(crew);
  if (crew->rank == lost) raise(SIGKILL);
  crew->size--;
  for (int i = 0; i < 100; i++) cts_nap();
  cts_crew_limit(crew, (LIMIT_S + 20) * CTS_SECOND, "comm_shrink without a rank that has ended does not return");
  CTS_OK(crew->t, comm_shrink, parent, &lost, 1, HAL_COMM_SHRINK_ABORT, &desc, &less);
  cts_crew_no_limit(crew);
  CTS_CHECK(crew->t, less, "comm_shrink returned HAL_OK and no communicator");
  CTS_JUDGE(crew->t, comm_shrink, "They keep their order");
  check_ranks(crew, less, ranks, 2, "comm_shrink without rank 1");
  CTS_OK(crew->t, comm_destroy, less, LIMIT_S * CTS_SECOND);
  CTS_OK(crew->t, comm_abort, parent, NULL);
  CTS_OK(crew->t, comm_destroy, parent, LIMIT_S * CTS_SECOND);
}
void cts_case_comm_shrink(cts_t *t) { cts_crew(t, 3, 3, HAL_SLOT_comm_shrink, shrink); }

/* ---- registered memory ---- */

static void use_registered(cts_crew_t *crew, hal_plugin_comm_t *comm, uint32_t flags) {
  uint8_t *const memory = cts_alloc(crew->t, SIZE);
  float *const values = (float *)(void *)cts_host(crew->t, SIZE);
  hal_plugin_comm_memory_t *registered = NULL;
  const size_t count = SIZE / 2 / sizeof(float);
  for (size_t i = 0; i < count; i++) values[i] = (float)(i % 100) + (float)crew->rank;
  cts_put(crew->t, NULL, memory, values, SIZE / 2);
  const hal_status_t status = cts_comm_register(crew->t, comm, memory, SIZE, flags, &registered);
  if (status == HAL_UNIMPLEMENTED && flags) return cts_free(crew->t, memory);
  cts_expect_ok(crew->t, HAL_SLOT_comm_register, status);
  for (int i = 0; i < 3; i++) /* into the second half, which keeps its content */
    cts_comm_queue(crew, comm, NULL,
                   (hal_collective_t){.op = HAL_COMM_ALL_REDUCE,
                                      .dtype = HAL_FLOAT32,
                                      .count = count,
                                      .send = memory,
                                      .recv = memory + SIZE / 2});
  cts_get(crew->t, NULL, values, memory + SIZE / 2, SIZE / 2);
  for (size_t i = 0; i < count; i++) {
    const float sum = (float)crew->size * (float)(i % 100) + (float)(crew->size * (crew->size - 1) / 2);
    CTS_CHECK(crew->t, values[i] == sum, "ALL_REDUCE in registered memory: element %zu is %g instead of %g", i,
              (double)values[i], (double)sum);
  }
  cts_crew_meet(crew);
  CTS_JUDGE(crew->t, comm_deregister, "Reverses comm_register");
  CTS_STATUS(crew->t, HAL_OK, comm_deregister, comm, registered);
  CTS_JUDGE(crew->t, comm_register, "Prepares device memory");
  cts_free(crew->t, memory);
}

static void registers(cts_crew_t *crew) {
  cts_crew_needs(crew, HAL_COMM_CAN_REGISTER, "HAL_COMM_CAN_REGISTER");
  if (!cts_crew_has_op(crew, HAL_COMM_ALL_REDUCE)) cts_skip(crew->t, "the library has no ALL_REDUCE");
  hal_plugin_comm_t *const comm = cts_comm(crew);
  for (int i = 0; i < ROUNDS; i++) use_registered(crew, comm, i % 2 ? HAL_COMM_REGISTER_SYMMETRIC : 0);
  cts_comm_end(crew, comm);
}
void cts_case_comm_registers(cts_t *t) { cts_crew(t, 2, 2, HAL_SLOT_comm_register, registers); }
