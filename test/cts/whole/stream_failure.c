/* stream_failure.c: failures of streams. The work of this plugin consists of host functions, which cannot fail
 * themselves: they store the failure here, and the stream's next synchronization or query reports it, once. */
#include <pthread.h>
#include <stdio.h>

#include "comm.h"

enum { FAILURES = 64 };
static struct {
  stream_t *stream; /* NULL: free */
  int32_t device;
  hal_status_t status;
  char text[COMM_TEXT];
} failures[FAILURES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The first failure of a stream is kept. */
void whole_stream_failed(int32_t device, stream_t *stream, hal_status_t status, const char *text) {
  int room = -1, known = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < FAILURES; i++) {
    known |= failures[i].stream == stream;
    if (!failures[i].stream) room = i;
  }
  if (!known && room >= 0) {
    failures[room].stream = stream, failures[room].device = device, failures[room].status = status;
    snprintf(failures[room].text, sizeof failures[room].text, "%s", text);
  }
  pthread_mutex_unlock(&lock);
}

static void forget(const stream_t *stream) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < FAILURES; i++)
    if (failures[i].stream == stream) failures[i].stream = NULL;
  pthread_mutex_unlock(&lock);
}

/* The failure of a stream or, if that is NULL and `device` is not -1, of any stream of the device. */
static hal_status_t take(int32_t device, const stream_t *stream) {
  hal_status_t status = HAL_OK;
  char text[COMM_TEXT];
  pthread_mutex_lock(&lock);
  for (int i = 0; i < FAILURES && !status; i++) {
    if (!failures[i].stream || (stream ? failures[i].stream != stream : failures[i].device != device)) continue;
    failures[i].stream = NULL, status = failures[i].status;
    memcpy(text, failures[i].text, sizeof text);
  }
  pthread_mutex_unlock(&lock);
  return status ? comm_refuse(status, "whole: work of the stream was ended: %s", text) : HAL_OK;
}

hal_status_t whole_stream_synchronize(stream_t *stream) {
  const hal_status_t status = whole_good.stream_synchronize(stream);
  return status ? status : take(-1, stream);
}

hal_status_t whole_stream_synchronize_timeout(stream_t *stream, int64_t timeout_ns) {
  const hal_status_t status = whole_good.stream_synchronize_timeout(stream, timeout_ns);
  return status ? status : take(-1, stream);
}

hal_status_t whole_stream_query(stream_t *stream) {
  const hal_status_t status = whole_good.stream_query(stream);
  return status ? status : take(-1, stream);
}

hal_status_t whole_device_synchronize(int32_t device) {
  const hal_status_t status = whole_good.device_synchronize(device);
  return status ? status : take(device, NULL);
}

/* A stream may have the address of one that ended with an unreported failure. */
hal_status_t whole_stream_create(int32_t device, const hal_stream_desc_t *desc, stream_t **out_stream) {
  const hal_status_t status = whole_good.stream_create(device, desc, out_stream);
  if (!status && *out_stream) forget(*out_stream);
  return status;
}
