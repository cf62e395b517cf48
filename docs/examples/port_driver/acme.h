/* acme.h: what the files of the plugin share. */
#ifndef PORT_DRIVER_ACME_H_
#define PORT_DRIVER_ACME_H_

#include <hal/plugin.h>
#include <hal/plugin_flags.h>

#include "driver.h"

/* A stream of the plugin is a queue of the driver. */
static inline driver_queue_t *acme_queue(hal_plugin_stream_t *stream) { return (driver_queue_t *)stream; }

/* Queues work on a stream; on the NULL stream it is finished on return. */
static inline hal_status_t acme_submit(hal_plugin_stream_t *stream, void (*run)(const void *), const void *arguments,
                                       size_t size) {
  if (!stream) return run(arguments), HAL_OK;
  if (driver_queue_push(acme_queue(stream), run, arguments, size)) return HAL_OK;
  return hal_host->error_set(HAL_RESOURCE_EXHAUSTED, 0, "acme: no host memory for a command");
}

#endif /* PORT_DRIVER_ACME_H_ */
