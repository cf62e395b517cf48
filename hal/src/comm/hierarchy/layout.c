/* layout.c: hosts, their ranks and the columns. */
#include <string.h>

#include "base/host_malloc.h"
#include "base/text.h"
#include "comm/hierarchy/internal.h"

static void number(hal_hier_layout_t *layout, const int32_t *leaders) {
  int32_t count = 0;
  for (int32_t leader = 0; leader < layout->size; leader++) {
    if (leaders[leader] != leader) continue;
    layout->first[layout->hosts] = count;
    for (int32_t rank = leader; rank < layout->size; rank++) {
      if (leaders[rank] != leader) continue;
      layout->host_of[rank] = layout->hosts;
      layout->local_of[rank] = count - layout->first[layout->hosts];
      layout->order[count++] = rank;
    }
    layout->hosts++;
  }
  layout->first[layout->hosts] = count;
}

hal_status_t hal_hier_layout_make(hal_hier_layout_t *layout, int32_t rank, int32_t size, const int32_t *leaders) {
  const size_t ranks = (size_t)size;
  int32_t *const numbers = hal_calloc(4 * ranks + 1, sizeof *numbers);
  if (!numbers) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "out of host memory for the layout of %d ranks", size);
  *layout = (hal_hier_layout_t){.rank = rank, .size = size, .host_of = numbers};
  layout->local_of = numbers + ranks;
  layout->order = numbers + 2 * ranks;
  layout->first = numbers + 3 * ranks;
  number(layout, leaders);
  layout->host = layout->host_of[rank];
  layout->local = layout->local_of[rank];
  layout->locals = hal_hier_locals(layout, layout->host);
  layout->columns = HAL_HIER_COLUMNS;
  for (int32_t host = 0; host < layout->hosts; host++) {
    const int32_t locals = hal_hier_locals(layout, host);
    if (locals < layout->columns) layout->columns = locals;
    if (locals > layout->most) layout->most = locals;
  }
  return HAL_OK;
}

void hal_hier_layout_free(hal_hier_layout_t *layout) {
  hal_free(layout->host_of);
  memset(layout, 0, sizeof *layout);
}

void hal_hier_append_host(const hal_hier_layout_t *layout, int32_t host, char *text, size_t size) {
  const int32_t locals = hal_hier_locals(layout, host);
  for (int32_t local = 0; local < locals; local++)
    hal_text_append(text, size, "%s%d",
                    local        ? ", "
                    : locals > 1 ? "ranks "
                                 : "rank ",
                    (int)hal_hier_rank(layout, host, local));
}
