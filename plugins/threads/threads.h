/* threads.h: what the files of this plugin share. README.md tells how it works. */
#ifndef PLUGINS_THREADS_H_
#define PLUGINS_THREADS_H_

#include <hal/plugin.h>
#include <hal/plugin_flags.h>
#include <pthread.h>

enum { THREADS_DEVICES = 2, THREADS_ALIGNMENT = 256 };

/* ---- memory.c ---- */

/* Gives the place where the device's own threads reach a device address: the host's view of it is closed. NULL = not ours. */
void *threads_translate(const void *address);

/* Copies between any two places, now; `dst_device` and `src_device` as of memory_copy. */
hal_status_t threads_copy_now(void *dst, int32_t dst_device, const void *src, int32_t src_device, size_t size);

/* ---- stream.c ---- */

/* One piece of queued work: `run` gets the bytes that were queued with it. A failure stays with the stream until it is told. */
typedef hal_status_t (*threads_work_fn_t)(const void *arguments);

/* Queues work behind what the stream has, with a copy of `size` bytes at `arguments`; with a NULL stream it runs here and now.
 * `name` is a literal, for stream_error. */
hal_status_t threads_submit(hal_plugin_stream_t *stream, const char *name, threads_work_fn_t run, const void *arguments,
                            size_t size);

/* Waits until all streams of a device have done what they have now, and gives the first failure that nobody was told of. */
hal_status_t threads_drain(int32_t device);

/* ---- all ---- */
int64_t threads_now_ns(void);
hal_status_t threads_check_device(int32_t device);

#endif /* PLUGINS_THREADS_H_ */
