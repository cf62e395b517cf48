/* crew.h: the ranks of a case, which are processes, or threads if the library connects threads only, and the
 * communicators between them. Private to hal/cts. */
#ifndef HAL_CTS_CREW_H_
#define HAL_CTS_CREW_H_

#include <sys/types.h>

#include "cts.h"

enum { CTS_CREW_MOST = 5, CTS_CREW_WORDS = 16 };
#define CTS_SECOND INT64_C(1000000000)

/* Memory that all ranks of a case share. */
typedef struct cts_board_s {
  atomic_int turn;                  /* the rank that may load the plugin */
  atomic_int size;                  /* 0 until rank 0 has determined it; -1: the ranks are threads of rank 0 */
  atomic_uint come[2], round;       /* of cts_crew_meet */
  atomic_int words[CTS_CREW_WORDS]; /* for the case */
  uint8_t id[HAL_COMM_ID_BYTES];
  size_t id_size;
} cts_board_t;

typedef struct cts_crew_s {
  cts_t *t;
  int32_t rank, size, device; /* device: of this rank */
  hal_comm_info_t info;
  cts_board_t *board;
  _Atomic int64_t limit_end; /* of cts_crew_limit; 0 = none */
  char limit_what[160];
} cts_crew_t;

/* Runs `body` in `most` processes, or in `least` if the device's library needs a device for each rank and there are too
 * few: each loads the plugin and has a rank and a device. With HAL_COMM_WITHIN_PROCESS the ranks are threads of one
 * process; so what a body shares between its own threads is _Thread_local, not static. Skips the case if the plugin
 * does not provide `slot`, if its library does not run here, or if there are fewer devices than `least`. For cases of
 * CTS_UNLOADED. A finding in any rank ends all. */
void cts_crew(cts_t *t, int least, int most, uint32_t slot, void (*body)(cts_crew_t *crew));
/* Returns when all ranks have called it. */
void cts_crew_meet(cts_crew_t *crew);
/* Skips the case if the ranks have no processes of their own. */
void cts_crew_needs_processes(cts_crew_t *crew);
/* Rank 0 expects the end of this rank's process; called there before the process ends. */
void cts_crew_lose(cts_crew_t *crew, int rank);
/* Ends the case, in any process, if this thread has not returned within the time: for calls that may hang. */
void cts_crew_limit(cts_crew_t *crew, int64_t limit_ns, const char *what);
void cts_crew_no_limit(cts_crew_t *crew);
/* Skips the case, on all ranks, if the library lacks one of these flags. */
void cts_crew_needs(cts_crew_t *crew, uint32_t flags, const char *what);
int cts_crew_has_op(const cts_crew_t *crew, uint32_t op);

/* ---- communicators ---- */
/* Creates a new id in board->id, on all ranks. */
void cts_comm_id(cts_crew_t *crew);
/* Returns the description of this rank in a communicator with that id. */
hal_comm_desc_t cts_comm_desc(const cts_crew_t *crew, int64_t timeout_ns);
/* Returns a communicator of all ranks that is ready. */
hal_plugin_comm_t *cts_comm(cts_crew_t *crew);
void cts_comm_end(cts_crew_t *crew, hal_plugin_comm_t *comm);
hal_comm_state_t cts_comm_state(cts_crew_t *crew, hal_plugin_comm_t *comm);
hal_status_t cts_comm_try(cts_crew_t *crew, hal_plugin_comm_t *comm, hal_plugin_stream_t *stream,
                          hal_collective_t call);
/* Queues one collective, which must succeed. Sets struct_size. */
void cts_comm_queue(cts_crew_t *crew, hal_plugin_comm_t *comm, hal_plugin_stream_t *stream, hal_collective_t call);

/* Fills memory of the rank's device, which is also that of crew->t. */
void cts_crew_fill(cts_crew_t *crew, void *device_ptr, uint8_t byte, size_t size);

#endif /* HAL_CTS_CREW_H_ */
