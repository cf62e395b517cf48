/* comm.c: the description of a library for collectives, ids, creation, and flags. */
#include <dirent.h>
#include <stdio.h>

#include "crew.h"
#include "hal/status.h"

enum { IDS = 64, TIMEOUTS = 4 };

static const uint64_t floats = HAL_DTYPE_BIT(HAL_FLOAT16) | HAL_DTYPE_BIT(HAL_BFLOAT16) | HAL_DTYPE_BIT(HAL_FLOAT32) |
                               HAL_DTYPE_BIT(HAL_FLOAT64) | HAL_DTYPE_BIT(HAL_FLOAT8_E5M2) |
                               HAL_DTYPE_BIT(HAL_FLOAT8_E4M3FN) | HAL_DTYPE_BIT(HAL_FLOAT8_E5M2FNUZ) |
                               HAL_DTYPE_BIT(HAL_FLOAT8_E4M3FNUZ),
                      complexes =
                          HAL_DTYPE_BIT(HAL_COMPLEX32) | HAL_DTYPE_BIT(HAL_COMPLEX64) | HAL_DTYPE_BIT(HAL_COMPLEX128);

/* ---- comm_info ---- */

static hal_comm_info_t ask(cts_t *t) {
  hal_comm_info_t info = {.struct_size = HAL_STRUCT_SIZE(hal_comm_info_t, name)};
  const hal_status_t status = cts_comm_info(t, t->device, &info);
  if (status == HAL_UNAVAILABLE || status == HAL_UNIMPLEMENTED)
    cts_skip(t, "comm_info returned %s: %s", hal_status_name(status), hal_error_message());
  cts_expect_ok(t, HAL_SLOT_comm_info, status);
  return info;
}

static void check_reductions(cts_t *t, const hal_comm_info_t *info) {
  static const uint32_t bits[] = {HAL_REDUCE_BAND, HAL_REDUCE_BOR, HAL_REDUCE_BXOR};
  const uint64_t *const of = info->reduce_dtypes;
  CTS_CHECK(t, !(of[HAL_REDUCE_AVG] & ~(floats | complexes)), "comm_info lists AVG for integers or bool: 0x%llx",
            (unsigned long long)of[HAL_REDUCE_AVG]);
  CTS_CHECK(t, !(of[HAL_REDUCE_PREMUL_SUM] & ~floats), "comm_info lists PREMUL_SUM for other than floats: 0x%llx",
            (unsigned long long)of[HAL_REDUCE_PREMUL_SUM]);
  for (int i = 0; i < 3; i++)
    CTS_CHECK(t, !(of[bits[i]] & (floats | complexes)), "comm_info lists bitwise reduction %u for floats: 0x%llx",
              (unsigned)bits[i], (unsigned long long)of[bits[i]]);
  CTS_CHECK(t, !((of[HAL_REDUCE_MIN] | of[HAL_REDUCE_MAX]) & complexes),
            "comm_info lists MIN or MAX for complex numbers");
}

void cts_case_comm_info(cts_t *t) {
  hal_comm_info_t info = ask(t), brief;
  CTS_CHECK(t, info.struct_size == HAL_STRUCT_SIZE(hal_comm_info_t, name), "comm_info changed struct_size to %zu",
            info.struct_size);
  CTS_CHECK(t, memchr(info.name, 0, sizeof info.name) && info.name[0], "comm_info returned no name of the library");
  CTS_CHECK(t, info.id_bytes >= 1 && info.id_bytes <= HAL_COMM_ID_BYTES, "comm_info: an id has %u bytes",
            (unsigned)info.id_bytes);
  CTS_CHECK(t, info.max_ranks == 0 || info.max_ranks >= 2, "comm_info: a communicator has at most %u ranks",
            (unsigned)info.max_ranks);
  CTS_CHECK(t, info.ops, "comm_info lists no operator");
  const uint64_t reducing =
      UINT64_C(1) << HAL_COMM_ALL_REDUCE | UINT64_C(1) << HAL_COMM_REDUCE | UINT64_C(1) << HAL_COMM_REDUCE_SCATTER;
  CTS_CHECK(t, !(info.ops & reducing) || info.reduce_dtypes[HAL_REDUCE_SUM],
            "comm_info lists operators that reduce, and no dtype that can be summed");
  CTS_CHECK(t, !(info.ops & ~reducing & ~(UINT64_C(1) << HAL_COMM_BARRIER)) || info.copy_dtypes,
            "comm_info lists operators that copy, and no dtype for them");
  check_reductions(t, &info);
  CTS_CHECK(t, !(info.flags & HAL_COMM_CAN_SPLIT) || CTS_PROVIDES(t, comm_split), "CAN_SPLIT without comm_split");
  CTS_CHECK(t, !(info.flags & HAL_COMM_CAN_SHRINK) || CTS_PROVIDES(t, comm_shrink), "CAN_SHRINK without comm_shrink");
  CTS_CHECK(t, !(info.flags & HAL_COMM_CAN_REGISTER) || CTS_PROVIDES(t, comm_register),
            "CAN_REGISTER without comm_register");
  CTS_JUDGE(t, comm_info, "The host sets `out_info->struct_size`");
  memset(&brief, 0xA5, sizeof brief);
  brief.struct_size = HAL_STRUCT_SIZE(hal_comm_info_t, ops);
  CTS_OK(t, comm_info, t->device, &brief);
  CTS_CHECK(t, brief.id_bytes == info.id_bytes && brief.ops == info.ops,
            "comm_info of a short struct returned other values");
  for (size_t i = HAL_STRUCT_SIZE(hal_comm_info_t, ops); i < sizeof brief; i++)
    CTS_CHECK(t, ((uint8_t *)&brief)[i] == 0xA5, "comm_info wrote byte %zu of a struct of %zu bytes", i,
              HAL_STRUCT_SIZE(hal_comm_info_t, ops));
  cts_row(t, "figure", "library for collectives", "%.31s, version %u", info.name, (unsigned)info.version);
}

/* ---- ids ---- */

void cts_case_comm_unique_id(cts_t *t) {
  const hal_comm_info_t info = ask(t);
  uint8_t *const ids = cts_host(t, (size_t)IDS * HAL_COMM_ID_BYTES), *const room = cts_host(t, HAL_COMM_ID_BYTES);
  size_t size = 0;
  for (int i = 0; i < IDS; i++) {
    uint8_t *const id = ids + (size_t)i * HAL_COMM_ID_BYTES;
    CTS_OK(t, comm_unique_id, t->device, 0, id, HAL_COMM_ID_BYTES, &size);
    CTS_CHECK(t, size >= 1 && size <= info.id_bytes, "an id of %zu bytes, comm_info reported %u", size,
              (unsigned)info.id_bytes);
    for (int j = 0; j < i; j++)
      CTS_CHECK(t, memcmp(id, ids + (size_t)j * HAL_COMM_ID_BYTES, size) != 0, "ids %d and %d are the same", j, i);
  }
  memset(room, 0xA5, HAL_COMM_ID_BYTES);
  for (size_t bytes = 0; bytes < size; bytes += size - 1 ? size - 1 : 1) {
    size_t reported = 0;
    CTS_OK(t, comm_unique_id, t->device, 0, bytes ? room : NULL, bytes, &reported);
    CTS_CHECK(t, reported == size, "an id of %zu bytes: a buffer of %zu bytes returned %zu bytes", size, bytes,
              reported);
    for (size_t i = 0; i < HAL_COMM_ID_BYTES; i++)
      CTS_CHECK(t, room[i] == 0xA5, "an id of %zu bytes was written to a buffer of %zu", size, bytes);
  }
}

/* ---- creation ---- */

/* All ranks on the device of rank 0. */
static void create_on_one(cts_crew_t *crew) {
  hal_plugin_comm_t *comm = NULL;
  if (!crew->rank) atomic_store(&crew->board->words[0], crew->device);
  cts_comm_id(crew);
  const int32_t device = atomic_load(&crew->board->words[0]);
  const hal_comm_desc_t desc = cts_comm_desc(crew, 20 * CTS_SECOND);
  cts_crew_limit(crew, 40 * CTS_SECOND, "comm_create of ranks that share a device did not return");
  CTS_STATUS(crew->t, HAL_INVALID_ARGUMENT, comm_create, device, &desc, &comm);
  cts_crew_no_limit(crew);
}

static void create(cts_crew_t *crew) {
  hal_plugin_comm_t *comm = NULL;
  for (int i = 0; i < 3; i++) {
    comm = cts_comm(crew);
    const hal_comm_state_t state = cts_comm_state(crew, comm);
    CTS_CHECK(crew->t, state.state == HAL_COMM_READY && !state.error, "state %u, error %d after comm_create",
              (unsigned)state.state, (int)state.error);
    cts_comm_end(crew, comm);
  }
  CTS_JUDGE(crew->t, comm_create, "an id of another library");
  const size_t sizes[] = {0, 1, crew->board->id_size - 1};
  for (int i = 0; i < 3; i++) {
    cts_comm_id(crew); /* with all its bytes it would be valid */
    hal_comm_desc_t desc = cts_comm_desc(crew, CTS_SECOND);
    desc.id_size = sizes[i];
    if (desc.id_size == crew->board->id_size) continue;
    cts_crew_limit(crew, 30 * CTS_SECOND, "comm_create with an id of another size did not return");
    CTS_STATUS(crew->t, HAL_INVALID_ARGUMENT, comm_create, crew->device, &desc, &comm);
    cts_crew_no_limit(crew);
  }
  if (!(crew->info.flags & HAL_COMM_CAN_SHARE_DEVICE)) create_on_one(crew);
}
void cts_case_comm_create(cts_t *t) { cts_crew(t, 2, 3, HAL_SLOT_comm_create, create); }

static int count_entries(const char *path) {
  DIR *const folder = opendir(path);
  int count = 0;
  while (folder && readdir(folder)) count++;
  if (folder) closedir(folder);
  return count;
}

static void check_missing(cts_crew_t *crew, int64_t timeout) {
  hal_plugin_comm_t *comm = NULL;
  const hal_comm_desc_t desc = cts_comm_desc(crew, timeout);
  const int64_t begin = cts_now_ns();
  cts_crew_limit(crew, 2 * timeout + 8 * CTS_SECOND,
                 "comm_create of a communicator with a missing rank did not return");
  CTS_STATUS(crew->t, HAL_NOT_READY, comm_create, crew->device, &desc, &comm);
  cts_crew_no_limit(crew);
  CTS_CHECK(crew->t, cts_now_ns() - begin >= timeout / 2, "comm_create with a time of %.3f s returned after %.3f s",
            (double)timeout * 1e-9, (double)(cts_now_ns() - begin) * 1e-9);
}

/* Nothing remains allocated after a rank whose creation fails. */
static void miss(cts_crew_t *crew) {
  int files = 0, threads = 0;
  for (int i = 0; i < TIMEOUTS; i++) {
    cts_comm_id(crew);
    if (crew->rank) check_missing(crew, i ? CTS_SECOND / 5 : CTS_SECOND);
    cts_crew_meet(crew);
    for (int j = 0; j < 30; j++) cts_nap(); /* for threads that end */
    if (!i) files = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
  }
  for (int j = 0; j < 500 && count_entries("/proc/self/task") > threads; j++) cts_nap();
  if (crew->rank) {
    CTS_CHECK(crew->t, count_entries("/proc/self/fd") <= files, "%d descriptors are left of %d creations that failed",
              count_entries("/proc/self/fd") - files, TIMEOUTS - 1);
    CTS_CHECK(crew->t, count_entries("/proc/self/task") <= threads, "%d threads are left of %d creations that failed",
              count_entries("/proc/self/task") - threads, TIMEOUTS - 1);
  }
  cts_comm_end(crew, cts_comm(crew));
}
void cts_case_comm_missing(cts_t *t) { cts_crew(t, 2, 3, HAL_SLOT_comm_create, miss); }

/* ---- creation that does not wait ---- */

static hal_comm_state_t follow(cts_crew_t *crew, hal_plugin_comm_t *comm) {
  hal_comm_state_t state = cts_comm_state(crew, comm);
  cts_crew_limit(crew, 60 * CTS_SECOND, "comm_query returns CREATING for a minute, and all ranks have come");
  while (state.state == HAL_COMM_CREATING) cts_nap(), state = cts_comm_state(crew, comm);
  cts_crew_no_limit(crew);
  return state;
}

static void create_later(cts_crew_t *crew) {
  hal_plugin_comm_t *comm = NULL;
  cts_crew_needs(crew, HAL_COMM_CAN_NONBLOCKING, "HAL_COMM_CAN_NONBLOCKING");
  cts_comm_id(crew);
  hal_comm_desc_t desc = cts_comm_desc(crew, 60 * CTS_SECOND);
  desc.flags = HAL_COMM_NONBLOCKING;
  if (crew->rank) cts_crew_meet(crew); /* rank 0 is first, and has queried it */
  cts_crew_limit(crew, 20 * CTS_SECOND, "comm_create with HAL_COMM_NONBLOCKING waited for the other ranks");
  CTS_OK(crew->t, comm_create, crew->device, &desc, &comm);
  if (!crew->rank) {
    CTS_JUDGE(crew->t, comm_query, "Reports a communicator's state without waiting");
    cts_crew_limit(crew, 20 * CTS_SECOND, "comm_query waited for ranks that were missing");
    for (int i = 0; i < 20; i++, cts_nap()) {
      const hal_comm_state_t state = cts_comm_state(crew, comm);
      CTS_CHECK(crew->t, state.state == HAL_COMM_CREATING, "state %u of a communicator whose other ranks are missing",
                (unsigned)state.state);
    }
    cts_crew_no_limit(crew);
    cts_crew_meet(crew);
  }
  const hal_comm_state_t state = follow(crew, comm);
  CTS_CHECK(crew->t, state.state == HAL_COMM_READY, "state %u, error %d, when all ranks had come: %s",
            (unsigned)state.state, (int)state.error, state.message);
  cts_comm_end(crew, comm);
  CTS_JUDGE(crew->t, comm_create, "ranks are missing after");
  cts_comm_id(crew);
  if (!crew->rank) return;
  desc = cts_comm_desc(crew, CTS_SECOND / 2);
  desc.flags = HAL_COMM_NONBLOCKING;
  CTS_OK(crew->t, comm_create, crew->device, &desc, &comm);
  for (int i = 0; i < 2; i++) {
    const hal_comm_state_t failed = follow(crew, comm);
    CTS_CHECK(crew->t, failed.state == HAL_COMM_FAILED && failed.error == HAL_NOT_READY,
              "state %u, error %d of a communicator whose time to be created is over", (unsigned)failed.state,
              (int)failed.error);
    CTS_JUDGE(crew->t, comm_query, "A failure is reported each time");
  }
  CTS_OK(crew->t, comm_destroy, comm, CTS_SECOND);
}
void cts_case_comm_nonblocking(cts_t *t) { cts_crew(t, 2, 2, HAL_SLOT_comm_create, create_later); }

/* ---- flags ---- */

static hal_status_t id_with(cts_t *t, uint32_t flags) {
  uint8_t *const id = cts_host(t, HAL_COMM_ID_BYTES);
  size_t size = 0;
  return cts_comm_unique_id(t, t->device, flags, id, HAL_COMM_ID_BYTES, &size);
}
void cts_case_flags_comm_unique_id(cts_t *t) {
  ask(t);
  cts_refuses_flags(t, 0, id_with);
}

static hal_plugin_comm_t *alone; /* a communicator of one rank */
static void *memory;
static hal_status_t create_with(cts_t *t, uint32_t flags) {
  uint8_t *const id = cts_host(t, HAL_COMM_ID_BYTES);
  size_t size = 0;
  CTS_OK(t, comm_unique_id, t->device, 0, id, HAL_COMM_ID_BYTES, &size);
  const hal_comm_desc_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_comm_desc_t, name),
                                .id = id,
                                .id_size = size,
                                .size = 1,
                                .flags = flags,
                                .timeout_ns = 20 * CTS_SECOND,
                                .name = "alone"};
  return cts_comm_create(t, t->device, &desc, &alone);
}
void cts_case_flags_comm_create(cts_t *t) {
  const hal_comm_info_t info = ask(t);
  cts_refuses_flags(t,
                    (info.flags & HAL_COMM_CAN_NONBLOCKING ? HAL_COMM_NONBLOCKING : 0) |
                        (info.flags & HAL_COMM_CAN_DETERMINISTIC ? HAL_COMM_DETERMINISTIC : 0),
                    create_with);
}
static hal_status_t register_with(cts_t *t, uint32_t flags) {
  hal_plugin_comm_memory_t *registered = NULL;
  return cts_comm_register(t, alone, memory, 4096, flags, &registered);
}
void cts_case_flags_comm_register(cts_t *t) {
  ask(t);
  memory = cts_alloc(t, 4096);
  CTS_CHECK(t, create_with(t, 0) == HAL_OK, "no communicator of one rank: %s", hal_error_message());
  cts_refuses_flags(t, HAL_COMM_REGISTER_SYMMETRIC, register_with);
  CTS_OK(t, comm_destroy, alone, 20 * CTS_SECOND);
}
static hal_status_t shrink_with(cts_t *t, uint32_t flags) {
  hal_plugin_comm_t *less = NULL;
  const hal_comm_desc_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_comm_desc_t, name), .timeout_ns = CTS_SECOND};
  return cts_comm_shrink(t, alone, NULL, 0, flags, &desc, &less);
}
void cts_case_flags_comm_shrink(cts_t *t) {
  if (!(ask(t).flags & HAL_COMM_CAN_SHRINK)) cts_skip(t, "the library does not have HAL_COMM_CAN_SHRINK");
  CTS_CHECK(t, create_with(t, 0) == HAL_OK, "no communicator of one rank: %s", hal_error_message());
  cts_refuses_flags(t, HAL_COMM_SHRINK_ABORT, shrink_with);
  CTS_OK(t, comm_destroy, alone, 20 * CTS_SECOND);
}
