/* stream.h: in-order queues of work, from pools per device and priority, and the calling thread's current stream.
 *
 * Streams of the pools exist until the process ends, as in CUDA's c10 layer, so a stream id is always valid. The id of
 * a stream is unique within its device; id 0 is the default stream. It is created like any other stream if the plugin
 * has streams. */
#ifndef HAL_STREAM_H_
#define HAL_STREAM_H_

#include "hal/api.h"
#include "hal/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hal_stream_s hal_stream_t;
typedef struct hal_event_s hal_event_t;

/* Streams per device and priority in the pools; further requests are served round robin. The number is that of c10. */
#define HAL_STREAMS_PER_POOL 32
/* The highest id of a stream: the default stream, the two pools, and the streams that have one owner. */
#define HAL_MAX_STREAM_ID (7 * HAL_STREAMS_PER_POOL)

/* Returns the device's default stream; borrowed. Errors: as hal_device_ensure. Since 0.1. */
HAL_API hal_status_t hal_stream_default(int32_t device, hal_stream_t **out_stream);

/* Returns a stream from the pool. `priority` 0 is normal, -1 is high; other values are clamped to these. Borrowed.
 * Errors: as hal_device_ensure, HAL_RESOURCE_EXHAUSTED. Since 0.1. */
HAL_API hal_status_t hal_stream_acquire(int32_t device, int32_t priority, hal_stream_t **out_stream);

/* Returns a stream that no other caller gets, from this function or from hal_stream_acquire, until
 * hal_stream_give_back: for work that other streams' users must not see, such as recording a program. `priority` as
 * above. If all such streams of the priority have owners (32, or 128 of high priority), returns a shared one of the
 * pool and logs a line. Any thread. Errors: as hal_stream_acquire. Since 0.5. */
HAL_API hal_status_t hal_stream_take(int32_t device, int32_t priority, hal_stream_t **out_stream);

/* Ends the ownership; does nothing for a shared stream and for NULL. The stream remains for the next owner, because ids
 * are valid until the process ends; the caller has to wait for its work or to order the next owner's work after it. Any
 * thread. Since 0.5. */
HAL_API void hal_stream_give_back(hal_stream_t *stream);

/* Returns the stream with this id; borrowed. Errors: HAL_NOT_FOUND. Since 0.1. */
HAL_API hal_status_t hal_stream_from_id(int32_t device, int64_t id, hal_stream_t **out_stream);

/* Returns the calling thread's current stream of the device. Default: the default stream. Borrowed. Since 0.1. */
HAL_API hal_status_t hal_stream_current(int32_t device, hal_stream_t **out_stream);

/* Sets the calling thread's current stream of the stream's device and returns the previous one (`out_previous` may be
 * NULL). Since 0.1. */
HAL_API hal_status_t hal_stream_set_current(hal_stream_t *stream, hal_stream_t **out_previous);

/* Returns the id of a stream, unique on its device; 0 is the default stream. Since 0.1. */
HAL_API int64_t hal_stream_id(const hal_stream_t *stream);

/* Returns the device of a stream. Since 0.1. */
HAL_API int32_t hal_stream_device(const hal_stream_t *stream);

/* Returns the priority of a stream: 0 is normal, lower is more urgent. Since 0.1. */
HAL_API int32_t hal_stream_priority(const hal_stream_t *stream);

/* Waits until the work queued so far is done. Errors: an asynchronous failure of that work or of work it waited for,
 * reported once, with the operator. Since 0.1. */
HAL_API HAL_MUST_USE hal_status_t hal_stream_synchronize(hal_stream_t *stream);

/* Waits at most `timeout_ns` nanoseconds. Errors: HAL_NOT_READY; an asynchronous failure. Since 0.1. */
HAL_API HAL_MUST_USE hal_status_t hal_stream_synchronize_timeout(hal_stream_t *stream, int64_t timeout_ns);

/* Returns HAL_OK if the work queued so far is done, without waiting. Errors: HAL_NOT_READY; an asynchronous failure.
 * Since 0.1. */
HAL_API HAL_MUST_USE hal_status_t hal_stream_query(hal_stream_t *stream);

/* Makes later work wait for the event, of any device. If the work recorded by the event fails, the failure is reported
 * once, by the first of the two streams that is synchronized or queried. Since 0.1. */
HAL_API HAL_MUST_USE hal_status_t hal_stream_wait_event(hal_stream_t *stream, hal_event_t *event);

/* Calls `fn(user_data)` on some thread once the work queued so far is done; later work waits for it. `fn` must not call
 * the HAL (except hal_stream_fail), nor wait for another stream's function, because one thread may call the functions
 * of all streams. Errors: HAL_INVALID_ARGUMENT = no function. Since 0.1. */
HAL_API hal_status_t hal_stream_host_call(hal_stream_t *stream, hal_host_fn_t fn, void *user_data);

/* Calls a kernel that the host computes for the device: as hal_stream_host_call, and while a profile runs, the call is
 * a record of kind HAL_PROFILE_KERNEL with that name. `name` is copied, at most 95 bytes. Calls of a captured graph
 * have no records. Errors: HAL_INVALID_ARGUMENT = no name or no function; HAL_RESOURCE_EXHAUSTED = no memory for the
 * record. Since 0.5. */
HAL_API hal_status_t hal_stream_host_kernel(hal_stream_t *stream, const char *name, hal_host_fn_t fn, void *user_data);

/* Records that work of the stream has failed. A function of hal_stream_host_call may call it, as the only function of
 * the HAL; the failure is reported once, by the stream's next synchronization or query, as one of the device's work.
 * `message` is copied; NULL = a general text. HAL_OK and a NULL stream change nothing. Any thread. Since 0.5. */
HAL_API void hal_stream_fail(hal_stream_t *stream, hal_status_t status, const char *message);

/* Returns the vendor's own handle (a CUstream, a cl_command_queue), NULL if there is none; borrowed. Work that the
 * caller queues on it is in order with the stream's other work, and synchronization, queries and events of the stream
 * include it. This call flushes deferred work (lazy.h), but work on the handle does not: call it again before each use.
 * Since 0.1. */
HAL_API hal_status_t hal_stream_native(hal_stream_t *stream, void **out_native);

/* Sets the name of a stream (NULL: current), such as "data loader", for messages and, if the plugin supports it, for
 * the vendor's profilers. The name is copied; "" removes it. HAL_OK does not mean that a tool shows it. Errors:
 * HAL_INVALID_ARGUMENT = no name; the plugin's. Since 0.4. */
HAL_API hal_status_t hal_stream_set_name(hal_stream_t *stream, const char *name);

/* Returns whether the stream's work (NULL: current) is recorded or deferred (program.h, lazy.h): 1 or 0. If it is,
 * hal_memory_copy has read the bytes of pageable host memory when it returns. The call is one load. Since 0.2. */
HAL_API int32_t hal_stream_is_recorded(hal_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif /* HAL_STREAM_H_ */
