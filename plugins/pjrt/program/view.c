/* view.c: views, which are buffers of the platform over memory of this process. A view has no content of its own, so a
 * stream keeps it after a run, for the next run that uses the same memory. The result of a run is the next view of the
 * memory that it was written to. A view of memory that was freed is used again only after that memory was allocated
 * again. */
#include <string.h>

#include "../pjrt.h"

enum { VIEWS = 1024 }; /* of a stream: more than the buffers of most training steps */

typedef struct view_s {
  void *data;
  int64_t count;
  int type;
  int32_t site;
  pjrt_buffer_t *buffer; /* NULL: none */
} view_t;

struct pjrt_views_s {
  view_t views[VIEWS];
};

/* Whether a view of the memory may be kept: the platform copies other memory. */
static int is_kept(const pjrt_span_t *span) {
  return span->count && !span->copied && (uintptr_t)span->data % PJRT_BUFFER_ALIGNMENT == 0;
}

static view_t *place_of(pjrt_views_t *views, const pjrt_span_t *span) {
  const uint64_t words = (uintptr_t)span->data / PJRT_BUFFER_ALIGNMENT + ((uint64_t)span->count << 20);
  return &views->views[(words * UINT64_C(0x9E3779B97F4A7C15)) >> 54]; /* Fibonacci hashing to 10 bits */
}

pjrt_views_t *pjrt_views_create(void) {
  pjrt_views_t *const views = hal_host->mem_alloc(sizeof *views, _Alignof(pjrt_views_t));
  if (views) memset(views, 0, sizeof *views);
  return views;
}

void pjrt_views_destroy(pjrt_views_t *views) {
  for (int i = 0; views && i < VIEWS; i++) pjrt_buffer_destroy(views->views[i].site, views->views[i].buffer);
  hal_host->mem_free(views);
}

hal_status_t pjrt_views_take(pjrt_views_t *views, const pjrt_span_t *span, int32_t site, pjrt_buffer_t **out_buffer,
                             pjrt_failure_t *failure) {
  view_t *const view = views && is_kept(span) ? place_of(views, span) : NULL;
  if (!view || !view->buffer || view->data != span->data || view->count != span->count || view->type != span->type ||
      view->site != site)
    return pjrt_buffer_over(span, site, out_buffer, failure);
  *out_buffer = view->buffer;
  view->buffer = NULL;
  return HAL_OK;
}

void pjrt_views_put(pjrt_views_t *views, const pjrt_span_t *span, int32_t site, pjrt_buffer_t *buffer) {
  if (!views || !is_kept(span)) {
    pjrt_buffer_destroy(site, buffer);
    return;
  }
  view_t *const view = place_of(views, span);
  pjrt_buffer_destroy(view->site, view->buffer);
  *view = (view_t){span->data, span->count, span->type, site, buffer};
}
