/* threads.h: declarations shared by the files of this plugin. README.md describes how it works. */
#ifndef PLUGINS_THREADS_H_
#define PLUGINS_THREADS_H_

#include <hal/plugin.h>
#include <hal/plugin_flags.h>
#include <pthread.h>

enum { THREADS_DEVICES = 2, THREADS_ALIGNMENT = 256 };

/* ---- memory.c ---- */

/* Returns the address at which the device's threads access a device address, which the host's mapping does not allow.
 * NULL = not in a segment. */
void *threads_translate(const void *address);

/* Copies between any two addresses immediately; `dst_device` and `src_device` as in memory_copy. */
hal_status_t threads_copy_now(void *dst, int32_t dst_device, const void *src, int32_t src_device, size_t size);

/* ---- stream.c ---- */

/* One work item: `run` receives the bytes that were queued with it. The stream stores a failure until it is reported.
 * */
typedef hal_status_t (*threads_work_fn_t)(const void *arguments);

/* Queues work after the stream's work, with a copy of `size` bytes at `arguments`; with a NULL stream it runs
 * immediately. `name` is a string literal, for stream_error. */
hal_status_t threads_submit(hal_plugin_stream_t *stream, const char *name, threads_work_fn_t run, const void *arguments,
                            size_t size);

/* Waits until all streams of a device have done their current work, and returns the first failure that was not
 * reported. */
hal_status_t threads_drain(int32_t device);

/* ---- all ---- */
int64_t threads_now_ns(void);
hal_status_t threads_check_device(int32_t device);

#endif /* PLUGINS_THREADS_H_ */
