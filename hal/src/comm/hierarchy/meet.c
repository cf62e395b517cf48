/* meet.c: finds which ranks are on one host, and joins them.
 *
 * Each rank stores its identity, with the number of a memory file. A rank belongs to the host of the lowest rank in the
 * same pid namespace of the same system whose memory file it can open. All ranks read what each rank has found, and so
 * compute the same hosts. If the join of a host is refused, each of its ranks becomes a host. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host_malloc.h"
#include "base/text.h"
#include "comm/hierarchy/internal.h"
#include "comm/shm/shm.h"
#include "comm/shm/system.h"

enum { PROBE = 4096, NONCE = 16, HOST = 96 };
static const int64_t glance_ns = 1000 * 1000;

typedef struct identity_s {
  uint32_t version; /* first field in every version */
  int32_t size;
  int32_t pid, file; /* of a memory file with the nonce; -1 = none */
  uint32_t user;
  uint32_t reserved;
  uint64_t pids; /* the pid namespace */
  int64_t start; /* of the process */
  uint8_t nonce[NONCE];
  char host[HOST]; /* the system's boot, and what a test adds */
} identity_t;

static int64_t left_of(int64_t deadline_ns) {
  const int64_t left = deadline_ns - hal_clock_ns();
  return left > 0 ? left : 0;
}

/* ---- values of all ranks ---- */

/* Rank 0 reads the values of all ranks. */
static hal_status_t collect(const hal_comm_hosts_t *config, const hal_hier_store_t *store, const hal_comm_store_t *get,
                            const char *phase, int64_t deadline_ns, size_t bytes, unsigned char *all) {
  char missing[HAL_HIER_TEXT / 2] = "", key[HAL_HIER_KEY];
  int count = 0;
  for (int32_t rank = 0; rank < config->size; rank++) {
    size_t length = 0;
    const int64_t left = left_of(deadline_ns);
    snprintf(key, sizeof key, "%s/hosts/%s/%d", store->name, phase, (int)rank);
    const hal_status_t status =
        hal_shm_store_get(get, key, left > glance_ns ? left : glance_ns, all + (size_t)rank * bytes, bytes, &length);
    if (status == HAL_NOT_READY) {
      hal_text_append(missing, sizeof missing, "%s%d", count++ ? ", " : "", (int)rank);
      continue;
    }
    HAL_RETURN_IF_ERROR(status);
    if (length != bytes)
      return hal_error_set(HAL_INCOMPATIBLE,
                           "rank %d has another version of the transport between hosts; install one version of "
                           "torch_backend",
                           (int)rank);
  }
  if (!count) return HAL_OK;
  return hal_error_set(HAL_NOT_READY, "rank%s %s did not join within %.3f s; start %s, or increase the timeout",
                       count == 1 ? "" : "s", missing, (double)config->timeout_ns / 1e9, count == 1 ? "it" : "them");
}

hal_status_t hal_hier_meet_share(const hal_comm_hosts_t *config, const hal_hier_store_t *store, const char *phase,
                                 int64_t deadline_ns, const void *own, size_t bytes, void *all) {
  hal_hier_guard_t guard = {.store = store};
  const hal_comm_store_t get = hal_hier_guarded(&guard);
  const size_t total = (size_t)config->size * bytes;
  char key[HAL_HIER_KEY];
  size_t length = 0;
  snprintf(key, sizeof key, "%s/%d", phase, (int)config->rank);
  HAL_RETURN_IF_ERROR(hal_hier_store_set(store, key, own, bytes));
  snprintf(key, sizeof key, "%s/all", phase);
  if (!config->rank) {
    HAL_RETURN_IF_ERROR(collect(config, store, &get, phase, deadline_ns, bytes, all));
    return hal_hier_store_set(store, key, all, total);
  }
  /* Rank 0 has the list of missing ranks, so its message has priority. */
  const int64_t left =
      left_of(deadline_ns) + (config->timeout_ns / 10 < 1000000000 ? config->timeout_ns / 10 : 1000000000);
  snprintf(key, sizeof key, "%s/hosts/%s/all", store->name, phase);
  const hal_status_t status = hal_shm_store_get(&get, key, left, all, total, &length);
  if (status == HAL_NOT_READY)
    return hal_error_set(HAL_NOT_READY, "rank 0 did not join within %.3f s; start it, or increase the timeout",
                         (double)config->timeout_ns / 1e9);
  HAL_RETURN_IF_ERROR(status);
  if (length == total) return HAL_OK;
  return hal_error_set(HAL_INVALID_ARGUMENT,
                       "rank 0 has a size of %zu, rank %d one of %d; use the same size on all ranks", length / bytes,
                       (int)config->rank, (int)config->size);
}

/* ---- identities ---- */

static void read_host(const char *forged, char *out) {
  FILE *const file = fopen("/proc/sys/kernel/random/boot_id", "re");
  char boot[64] = "";
  if (file && !fgets(boot, sizeof boot, file)) boot[0] = '\0';
  if (file) fclose(file);
  boot[strcspn(boot, "\n")] = '\0';
  snprintf(out, HOST, "%s%s", boot, forged ? forged : "");
}

static void identify(const hal_comm_hosts_t *config, const char *forged, identity_t *own, int *out_file) {
  *own = (identity_t){.version = HAL_HIER_VERSION, .size = config->size, .file = -1, .user = (uint32_t)geteuid()};
  own->pid = hal_shm_own_pid();
  own->start = own->pid > 0 ? hal_shm_process_start(own->pid) : -1;
  own->pids = hal_shm_pid_namespace();
  read_host(forged, own->host);
  /* Without a file this rank is its own host. */
  if (hal_shm_random(own->nonce, NONCE) || config->flags & HAL_COMM_HOSTS_FLAT) return;
  const int file = hal_shm_file_create(PROBE);
  unsigned char *const memory = file >= 0 ? hal_shm_map(file, PROBE) : NULL;
  if (memory) {
    memcpy(memory, own->nonce, NONCE);
    munmap(memory, PROBE);
    own->file = file;
    *out_file = file;
  } else if (file >= 0) {
    close(file);
  }
}

/* Returns whether the memory of another rank can be opened, and its process seen. */
static int can_open(const identity_t *own, const identity_t *other) {
  if (own->file < 0 || other->file < 0 || !own->host[0] || strncmp(own->host, other->host, HOST) != 0) return 0;
  if (!own->pids || own->pids != other->pids || own->user != other->user) return 0;
  if (other->start <= 0 || hal_shm_process_start(other->pid) != other->start) return 0;
  const int file = hal_shm_file_open(other->pid, other->file, PROBE);
  unsigned char *const memory = file >= 0 ? hal_shm_map(file, PROBE) : NULL;
  const int is_it = memory && memcmp(memory, other->nonce, NONCE) == 0;
  if (memory) munmap(memory, PROBE);
  if (file >= 0) close(file);
  return is_it;
}

static hal_status_t check_identities(const hal_comm_hosts_t *config, const identity_t *own, const identity_t *all) {
  for (int32_t rank = 0; rank < config->size; rank++) {
    if (all[rank].version != HAL_HIER_VERSION)
      return hal_error_set(HAL_INCOMPATIBLE,
                           "rank %d has version %u of the transport between hosts, rank %d version %u; install one "
                           "version of torch_backend",
                           (int)rank, (unsigned)all[rank].version, (int)config->rank, (unsigned)HAL_HIER_VERSION);
    if (all[rank].size != config->size)
      return hal_error_set(HAL_INVALID_ARGUMENT,
                           "rank %d has a size of %d, rank %d one of %d; use the same size on all ranks", (int)rank,
                           (int)all[rank].size, (int)config->rank, (int)config->size);
  }
  if (memcmp(own->nonce, all[config->rank].nonce, NONCE) != 0)
    return hal_error_set(HAL_INVALID_ARGUMENT, "two processes joined as rank %d; use a different rank in each process",
                         (int)config->rank);
  return HAL_OK;
}

/* Fills in the leader of each rank: the leader that the rank has found, if that leader agrees. */
static hal_status_t find_leaders(const hal_comm_hosts_t *config, const hal_hier_store_t *store, int64_t deadline_ns,
                                 const identity_t *own, const identity_t *all, int32_t *leaders, int32_t *members,
                                 int32_t *last) {
  int32_t found = 0;
  while (found < config->rank && !can_open(own, &all[found])) found++;
  HAL_RETURN_IF_ERROR(hal_hier_meet_share(config, store, "seen", deadline_ns, &found, sizeof found, leaders));
  for (int32_t rank = 0; rank < config->size; rank++) {
    const int32_t leader = leaders[rank];
    const int follows = leader >= 0 && leader < rank && leaders[leader] == leader;
    members[rank] = 1;
    last[rank] = rank;
    if (!follows) leaders[rank] = rank;
    if (!follows) continue;
    /* Shared memory has a limit: the next rank begins another host. */
    if (members[leader]++ % HAL_COMM_SHM_MAX_RANKS == 0) last[leader] = rank;
    leaders[rank] = last[leader];
  }
  return HAL_OK;
}

/* ---- hosts ---- */

static hal_status_t join_host(const hal_hier_store_t *store, int64_t deadline_ns, const hal_hier_layout_t *layout,
                              hal_comm_transport_t *inner) {
  hal_hier_guard_t guard = {.store = store};
  const hal_comm_store_t guarded = hal_hier_guarded(&guard);
  char name[HAL_HIER_KEY];
  if (layout->locals == 1) return HAL_OK;
  snprintf(name, sizeof name, "%s/host%d", store->name, (int)hal_hier_rank(layout, layout->host, 0));
  const int64_t left = left_of(deadline_ns);
  return hal_comm_shm_create(&guarded, name, layout->local, layout->locals, left > glance_ns ? left : glance_ns, inner);
}

/* Joins the hosts. `*out_again`: a host was refused, and `leaders` has changed. */
static hal_status_t join_hosts(const hal_comm_hosts_t *config, const hal_hier_store_t *store, int64_t deadline_ns,
                               const hal_hier_layout_t *layout, int32_t *leaders, int32_t *refused,
                               hal_comm_transport_t *inner, int *out_again) {
  const hal_status_t status = join_host(store, deadline_ns, layout, inner);
  const int32_t own = status == HAL_UNIMPLEMENTED;
  if (status && !own) return status;
  HAL_RETURN_IF_ERROR(hal_hier_meet_share(config, store, "joined", deadline_ns, &own, sizeof own, refused));
  for (int32_t rank = 0; rank < config->size; rank++)
    if (refused[rank]) refused[leaders[rank]] = *out_again = 1;
  for (int32_t rank = config->size; rank-- > 0;)
    if (refused[leaders[rank]]) leaders[rank] = rank;
  return HAL_OK;
}

static hal_status_t meet(const hal_comm_hosts_t *config, const hal_hier_store_t *store, const char *forged_host,
                         int64_t deadline_ns, hal_hier_layout_t *layout, hal_comm_transport_t *inner, identity_t *all,
                         int32_t *numbers, int *file) {
  int32_t *const leaders = numbers, *const scratch = numbers + config->size;
  identity_t own;
  int again = 0;
  identify(config, forged_host, &own, file);
  HAL_RETURN_IF_ERROR(hal_hier_meet_share(config, store, "who", deadline_ns, &own, sizeof own, all));
  HAL_RETURN_IF_ERROR(check_identities(config, &own, all));
  HAL_RETURN_IF_ERROR(find_leaders(config, store, deadline_ns, &own, all, leaders, scratch, scratch + config->size));
  HAL_RETURN_IF_ERROR(hal_hier_layout_make(layout, config->rank, config->size, leaders));
  HAL_RETURN_IF_ERROR(join_hosts(config, store, deadline_ns, layout, leaders, scratch, inner, &again));
  if (!again) return HAL_OK;
  hal_hier_layout_free(layout);
  HAL_RETURN_IF_ERROR(hal_hier_layout_make(layout, config->rank, config->size, leaders));
  if (layout->locals > 1 || !inner->run) return HAL_OK;
  inner->destroy(inner->context);
  memset(inner, 0, sizeof *inner);
  return HAL_OK;
}

hal_status_t hal_hier_meet(const hal_comm_hosts_t *config, const hal_hier_store_t *store, const char *forged_host,
                           int64_t deadline_ns, hal_hier_layout_t *layout, hal_comm_transport_t *inner) {
  identity_t *const all = hal_calloc((size_t)config->size, sizeof *all);
  int32_t *const numbers = hal_calloc(3 * (size_t)config->size, sizeof *numbers);
  int file = -1;
  hal_status_t status = HAL_OK;
  if (!all || !numbers)
    status = hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for a group of %d ranks", (int)config->size);
  else
    status = meet(config, store, forged_host, deadline_ns, layout, inner, all, numbers, &file);
  if (file >= 0) close(file);
  hal_free(numbers);
  hal_free(all);
  return status;
}
