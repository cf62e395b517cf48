/* join.c: how the ranks of a communicator find its memory.
 *
 * Rank 0 creates the memory file and stores an offer with a new nonce. Each other rank opens the file through /proc and
 * stores its reply under the nonce. Rank 0 stores the verdict under the nonce, the same for all ranks.
 *
 * The store may have the keys of an earlier attempt. A rank does not reply to an offer that already has its verdict. No
 * rank reads the reply to an offer whose rank 0 has ended. In both cases a rank reads the offer again until its
 * deadline.
 *
 * Two ranks are on one host if one can open the file of the other; nothing else decides this. Finally each rank looks
 * for the processes of all others, because it has to detect their end. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/shm/internal.h"
#include "comm/shm/system.h"
#include "hal/log.h"

enum { KEY = 384, TEXT = 512 };
static const int64_t glance_ns = 1000 * 1000;      /* for keys that may be missing */
static const long stale_ns = 10 * 1000 * 1000;     /* until an offer of an earlier attempt is read again */
static const int64_t pause_ns = 100 * 1000 * 1000; /* between two reads of other keys */
static const int64_t report_ns = INT64_C(10) * 1000 * 1000 * 1000;

typedef struct offer_s {
  char magic[8];
  uint32_t version; /* first fields in every version, with `magic` */
  int32_t size, pid, file;
  int64_t start;
  uint8_t nonce[HAL_SHM_NONCE];
} offer_t;

/* A reply or a verdict. */
typedef struct word_s {
  int32_t code; /* hal_status_t */
  char text[TEXT];
} word_t;

static const char magic[8] = "HALSHM";

typedef struct join_s {
  hal_shm_t *shm;
  const hal_comm_store_t *store;
  const char *name;
  offer_t offer;                 /* own offer, or the last one that was read; version 0: none */
  int replied;                   /* this rank has replied to `offer`; else the offer is from an earlier attempt */
  int file;                      /* of rank 0 */
  int64_t start;                 /* of this process */
  int32_t pid;                   /* as /proc shows it */
  int64_t begun_ns, reported_ns; /* the time of the last report since the beginning; 0 = none */
} join_t;

static hal_status_t key_of(const join_t *join, const uint8_t *nonce, const char *last, char *out) {
  char digits[2 * HAL_SHM_NONCE + 2] = "";
  for (int i = 0; nonce && i < HAL_SHM_NONCE; i++) snprintf(digits + 2 * i, 3, "%02x", nonce[i]);
  const int length = snprintf(out, KEY, "%s/shm/%s%s%s", join->name, digits, nonce ? "/" : "", last);
  if (length > 0 && length < KEY) return HAL_OK;
  return hal_error_set(HAL_OUT_OF_RANGE, "the name of a communicator has %zu bytes, and at most %d are possible",
                       strlen(join->name), KEY - 64);
}

static int64_t left_of(const join_t *join) {
  const int64_t left = join->shm->deadline_ns - hal_clock_ns();
  return left > 0 ? left : 0;
}

/* Returns the time to wait for a key: at most until the deadline, and short enough to read other keys meanwhile. */
static int64_t wait_of(const join_t *join) {
  const int64_t left = left_of(join);
  return left < glance_ns ? glance_ns : left < pause_ns ? left : pause_ns;
}

/* Reads a key of this size. `*out_found` is 0 if the key is missing after the time, or has another content. */
static hal_status_t read_key(const join_t *join, const uint8_t *nonce, const char *last, int64_t timeout_ns, void *out,
                             size_t size, int *out_found) {
  char key[KEY];
  size_t length = 0;
  *out_found = 0;
  HAL_RETURN_IF_ERROR(key_of(join, nonce, last, key));
  const hal_status_t status = hal_shm_store_get(join->store, key, timeout_ns, out, size, &length);
  *out_found = !status && length == size;
  return status == HAL_NOT_READY ? HAL_OK : status;
}

static hal_status_t write_key(const join_t *join, const uint8_t *nonce, const char *last, const void *value,
                              size_t size) {
  char key[KEY];
  HAL_RETURN_IF_ERROR(key_of(join, nonce, last, key));
  return hal_shm_store_set(join->store, key, value, size);
}

static hal_status_t write_word(const join_t *join, const char *last, hal_status_t code, const char *text) {
  word_t word = {.code = code};
  snprintf(word.text, sizeof word.text, "%s", text);
  return write_key(join, join->offer.nonce, last, &word, sizeof word);
}

static hal_status_t fail_by_word(const word_t *word) { return hal_error_set(word->code, "%.*s", TEXT - 1, word->text); }

/* Claims the page of this rank. A second process of the rank finds it claimed, and fails the communicator for all. */
static hal_status_t take_page(join_t *join) {
  hal_shm_t *const shm = join->shm;
  hal_shm_rank_t *const page = hal_shm_page(shm, shm->rank);
  uint64_t incarnation = 0, none = 0;
  if (hal_shm_random(&incarnation, sizeof incarnation))
    return hal_error_set(HAL_UNAVAILABLE, "rank %d: the system has no random numbers: %s", (int)shm->rank,
                         strerror(errno));
  incarnation |= 1;
  if (!atomic_compare_exchange_strong(&page->incarnation, &none, incarnation)) {
    const hal_status_t status =
        hal_shm_fail(shm, HAL_INVALID_ARGUMENT,
                     "two processes joined as rank %d, of pid %d and %d; use a different rank in each process",
                     (int)shm->rank, (int)page->pid, (int)join->pid);
    hal_shm_segment_release(shm); /* this rank does not own its page */
    return status;
  }
  page->pid = join->pid;
  page->start = (uint64_t)join->start;
  page->pids = hal_shm_pid_namespace();
  atomic_store_explicit(&page->state, HAL_SHM_PRESENT, memory_order_release);
  return HAL_OK;
}

/* ---- rank 0 ---- */

/* Fails if a second rank 0 has made an offer under this name, unless its process has ended. */
static hal_status_t check_rival(join_t *join) {
  offer_t seen;
  int found;
  HAL_RETURN_IF_ERROR(read_key(join, NULL, "offer", glance_ns, &seen, sizeof seen, &found));
  if (!found || memcmp(seen.magic, magic, sizeof magic) != 0 ||
      memcmp(seen.nonce, join->offer.nonce, HAL_SHM_NONCE) == 0)
    return HAL_OK;
  if (seen.pid <= 0 || hal_shm_process_start(seen.pid) != seen.start) return HAL_OK;
  hal_shm_t other = {.rank = join->shm->rank, .size = seen.size, .name = ""};
  if (seen.size < 2 || seen.size > HAL_SHM_RANKS || hal_shm_segment_open(&other, seen.pid, seen.file, seen.nonce))
    return HAL_OK;
  snprintf(other.name, sizeof other.name, "%s", join->shm->name);
  const hal_status_t status =
      hal_shm_fail(&other, HAL_INVALID_ARGUMENT,
                   "two processes joined as rank 0, of pid %d and %d; use a different rank in each process, and a "
                   "different name for each communicator",
                   (int)seen.pid, (int)join->pid);
  hal_shm_segment_release(&other);
  return status;
}

/* Returns the error of a rank that the replies do not include: a rank of another size or version. */
static hal_status_t check_refusal(const join_t *join) {
  word_t word;
  int found;
  HAL_RETURN_IF_ERROR(read_key(join, join->offer.nonce, "refusal", glance_ns, &word, sizeof word, &found));
  return found && word.code ? fail_by_word(&word) : HAL_OK;
}

/* Writes the ranks as "1, 2". Returns their number. */
static int list_of(const join_t *join, hal_shm_set_t ranks, char list[TEXT / 2]) {
  int count = 0;
  *list = '\0';
  for (int32_t rank = 0; rank < join->shm->size; rank++)
    if (ranks & HAL_SHM_BIT(rank)) hal_text_append(list, TEXT / 2, "%s%d", count++ ? ", " : "", (int)rank);
  return count;
}

/* Logs which ranks a long join waits for: after 10 s or half of its time, and each time its duration has doubled. */
static void report(join_t *join, hal_shm_set_t ranks) {
  const int64_t half = join->shm->timeout_ns / 2, first = half < report_ns ? half : report_ns;
  const int64_t waited = hal_clock_ns() - join->begun_ns;
  char list[TEXT / 2];
  if (!ranks || !left_of(join) || waited < (join->reported_ns ? 2 * join->reported_ns : first)) return;
  join->reported_ns = waited;
  const int count = list_of(join, ranks, list);
  hal_log(HAL_LOG_WARNING, "communicator '%s': rank%s %s did not join yet; rank %d waits for %.3g s of %.3g s",
          join->shm->name, count == 1 ? "" : "s", list, (int)join->shm->rank, (double)waited / 1e9,
          (double)join->shm->timeout_ns / 1e9);
}

static hal_status_t missing(const join_t *join, hal_shm_set_t ranks, const char *what) {
  char list[TEXT / 2];
  const int count = list_of(join, ranks, list);
  return hal_error_set(HAL_NOT_READY, "rank%s %s did not %s within %.3f s; start %s, or increase the timeout",
                       count == 1 ? "" : "s", list, what, (double)join->shm->timeout_ns / 1e9,
                       count == 1 ? "it" : "them");
}

/* Reads all replies. Returns the first error among them. */
static hal_status_t collect(join_t *join) {
  hal_shm_set_t waiting = hal_shm_others(join->shm);
  hal_status_t first = HAL_OK;
  word_t refused = {0};
  while (waiting) {
    for (int32_t rank = 1; rank < join->shm->size; rank++) {
      char last[16];
      word_t word;
      int found;
      if (!(waiting & HAL_SHM_BIT(rank))) continue;
      snprintf(last, sizeof last, "%d", (int)rank);
      HAL_RETURN_IF_ERROR(read_key(join, join->offer.nonce, last, wait_of(join), &word, sizeof word, &found));
      if (!found) continue;
      waiting &= ~HAL_SHM_BIT(rank);
      if (word.code && !first) refused = word;
      if (word.code && !first) first = word.code;
    }
    HAL_RETURN_IF_ERROR(check_refusal(join));
    if (waiting) HAL_RETURN_IF_ERROR(check_rival(join));
    if (join->shm->header) HAL_RETURN_IF_ERROR(hal_shm_failed(join->shm));
    report(join, waiting);
    if (waiting && !left_of(join)) return missing(join, waiting, "join");
  }
  return first ? fail_by_word(&refused) : HAL_OK;
}

static hal_status_t make_offer(join_t *join) {
  hal_shm_t *const shm = join->shm;
  if (hal_shm_random(join->offer.nonce, HAL_SHM_NONCE))
    return hal_error_set(HAL_UNAVAILABLE, "rank 0: the system has no random numbers: %s", strerror(errno));
  HAL_RETURN_IF_ERROR(check_rival(join));
  const hal_status_t made = hal_shm_segment_create(shm, join->offer.nonce, &join->file);
  const hal_status_t taken = made ? made : take_page(join);
  memcpy(join->offer.magic, magic, sizeof magic);
  join->offer.version = HAL_SHM_VERSION;
  join->offer.size = shm->size;
  join->offer.pid = join->pid;
  join->offer.file = taken ? -1 : join->file;
  join->offer.start = join->start;
  word_t own = {.code = taken};
  if (taken) snprintf(own.text, sizeof own.text, "%s", hal_error_message());
  /* If there is no memory file, rank 0 makes the offer nevertheless, so that the others get the verdict. */
  HAL_RETURN_IF_ERROR(write_key(join, NULL, "offer", &join->offer, sizeof join->offer));
  return taken ? fail_by_word(&own) : HAL_OK;
}

static hal_status_t join_as_first(join_t *join) {
  hal_status_t status = make_offer(join);
  const int offered = join->offer.version != 0;
  if (!status) status = collect(join);
  if (!offered) return status;
  if (!status) return write_word(join, "verdict", HAL_OK, "");
  char text[TEXT];
  snprintf(text, sizeof text, "%s", hal_error_message());
  /* If the store fails, too, the others time out at their deadlines; the first failure is reported. */
  (void)write_word(join, "verdict", status, text);
  return hal_error_set(status, "%s", text);
}

/* ---- the other ranks ---- */

/* Opens the memory of rank 0. The reply of this rank contains the error. */
static hal_status_t accept_offer(join_t *join) {
  hal_shm_t *const shm = join->shm;
  const offer_t *const offer = &join->offer;
  if (offer->version != HAL_SHM_VERSION)
    return hal_error_set(
        HAL_INCOMPATIBLE,
        "rank 0 has version %u of the shared memory, rank %d version %u; install one version of torch_backend",
        (unsigned)offer->version, (int)shm->rank, (unsigned)HAL_SHM_VERSION);
  if (offer->size != shm->size)
    return hal_error_set(HAL_INVALID_ARGUMENT,
                         "rank 0 has a size of %d, rank %d one of %d; use the same size on all ranks", (int)offer->size,
                         (int)shm->rank, (int)shm->size);
  HAL_RETURN_IF_ERROR(hal_shm_segment_open(shm, offer->pid, offer->file, offer->nonce));
  return take_page(join);
}

static hal_status_t reply(join_t *join) {
  char last[16], text[TEXT] = "";
  const hal_status_t status = accept_offer(join);
  if (status) snprintf(text, sizeof text, "%s", hal_error_message());
  snprintf(last, sizeof last, "%d", (int)join->shm->rank);
  /* Rank 0 does not read the replies of ranks beyond its size. */
  if (status == HAL_INVALID_ARGUMENT || status == HAL_INCOMPATIBLE)
    HAL_RETURN_IF_ERROR(write_word(join, "refusal", status, text));
  return write_word(join, last, status, text);
}

static hal_status_t time_is_over(const join_t *join) {
  hal_shm_set_t absent = HAL_SHM_BIT(0);
  for (int32_t rank = 0; join->shm->header && rank < join->shm->size; rank++) {
    const uint32_t state = atomic_load_explicit(&hal_shm_page(join->shm, rank)->state, memory_order_acquire);
    absent = state != HAL_SHM_ABSENT ? absent & ~HAL_SHM_BIT(rank) : absent | HAL_SHM_BIT(rank);
  }
  return missing(join, absent ? absent : HAL_SHM_BIT(0), absent ? "join" : "complete the join");
}

/* A verdict that exists before this rank has replied belongs to an earlier attempt, or this rank is late. Late ranks
 * also return an error of the program while rank 0 runs. After all other errors, a new attempt may follow. */
static hal_status_t check_earlier(join_t *join, int *out_is_earlier) {
  word_t verdict;
  HAL_RETURN_IF_ERROR(
      read_key(join, join->offer.nonce, "verdict", glance_ns, &verdict, sizeof verdict, out_is_earlier));
  if (!*out_is_earlier || (verdict.code != HAL_INVALID_ARGUMENT && verdict.code != HAL_INCOMPATIBLE)) return HAL_OK;
  const int64_t start = join->offer.pid > 0 ? hal_shm_process_start(join->offer.pid) : 0;
  return start > 0 && start == join->offer.start ? fail_by_word(&verdict) : HAL_OK;
}

/* Reads the offer. A new offer replaces the mapping of the previous one, and this rank replies to it. */
static hal_status_t look_for_offer(join_t *join) {
  offer_t offer;
  int found, is_earlier;
  const int64_t time = join->offer.version ? glance_ns : wait_of(join);
  HAL_RETURN_IF_ERROR(read_key(join, NULL, "offer", time, &offer, sizeof offer, &found));
  if (!found || memcmp(offer.magic, magic, sizeof magic) != 0) return HAL_OK;
  if (join->offer.version && memcmp(offer.nonce, join->offer.nonce, HAL_SHM_NONCE) == 0) return HAL_OK;
  hal_shm_segment_release(join->shm);
  join->offer = offer;
  join->replied = 0;
  HAL_RETURN_IF_ERROR(check_earlier(join, &is_earlier));
  if (is_earlier) return HAL_OK;
  join->replied = 1;
  return reply(join);
}

static hal_status_t join_as_other(join_t *join) {
  for (;;) {
    word_t verdict;
    int found = 0;
    HAL_RETURN_IF_ERROR(look_for_offer(join));
    if (join->offer.version && !join->replied) nanosleep(&(struct timespec){.tv_nsec = stale_ns}, NULL);
    if (join->replied)
      HAL_RETURN_IF_ERROR(
          read_key(join, join->offer.nonce, "verdict", wait_of(join), &verdict, sizeof verdict, &found));
    if (found) return verdict.code ? fail_by_word(&verdict) : HAL_OK;
    if (join->shm->header) HAL_RETURN_IF_ERROR(hal_shm_failed(join->shm));
    if (!join->replied) report(join, HAL_SHM_BIT(0)); /* else rank 0 reports the ranks that are missing */
    if (!left_of(join)) return time_is_over(join);
  }
}

/* ---- all ranks ---- */

/* Looks for the processes of all other ranks, and waits until every rank has done so. */
static hal_status_t meet(join_t *join) {
  hal_shm_t *const shm = join->shm;
  if (!shm->header) return hal_error_set(HAL_INTERNAL, "the verdict is positive, and nothing is mapped");
  const uint64_t pids = hal_shm_page(shm, shm->rank)->pids;
  for (int32_t rank = 0; rank < shm->size; rank++) {
    const hal_shm_rank_t *const page = hal_shm_page(shm, rank);
    const int64_t start = hal_shm_process_start(page->pid);
    if (start >= 0 && (uint64_t)start == page->start) continue;
    /* In one pid namespace, a missing process has ended; the wait below, or the first call, detects this. */
    if (start < 0 || !pids || pids != page->pids) shm->unseen |= HAL_SHM_BIT(rank);
  }
  hal_shm_page(shm, shm->rank)->unseen = shm->unseen;
  hal_shm_set(shm, HAL_SHM_JOINED, 1);
  hal_shm_notify(shm);
  HAL_RETURN_IF_ERROR(hal_shm_wait_counter(shm, hal_shm_others(shm), HAL_SHM_JOINED, 1));
  for (int32_t rank = 0; rank < shm->size; rank++) {
    const uint64_t unseen = hal_shm_page(shm, rank)->unseen;
    if (!unseen) continue;
    return hal_shm_fail(
        shm, HAL_UNIMPLEMENTED,
        "rank %d cannot see the process of rank %d in /proc, and would not notice its end; use another transport",
        (int)rank, __builtin_ctzll(unseen));
  }
  if (!shm->rank) atomic_store_explicit(&shm->header->state, HAL_SHM_READY, memory_order_release);
  return HAL_OK;
}

hal_status_t hal_shm_join(hal_shm_t *shm, const hal_comm_store_t *store, const char *name) {
  join_t join = {.shm = shm, .store = store, .name = name, .file = -1, .pid = hal_shm_own_pid()};
  join.begun_ns = hal_clock_ns();
  join.start = join.pid > 0 ? hal_shm_process_start(join.pid) : -1;
  /* Without /proc the other ranks cannot see this process, and `meet` fails. */
  shm->running = HAL_SHM_JOIN;
  hal_status_t status = shm->rank ? join_as_other(&join) : join_as_first(&join);
  if (!status) status = meet(&join);
  if (join.file >= 0) close(join.file);
  shm->running = 0;
  return status;
}
