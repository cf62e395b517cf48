/* packed.c: the suite's kernels in a dialect of the vendor's, from a pack next to the plugin. */
#include "hal/host_memory.h"
#include "kernel.h"
#include "op/pack.h"

/* Returns a module of a pack in memory that is never freed; NULL = the pack has none for the device. */
static void *load(const cts_t *t, hal_pack_t *pack, int with_doubles, size_t *out_size) {
  const cts_language_t *language = cts_languages;
  while (language->dialect && strcmp(language->dialect, pack->header.source) != 0) language++;
  if (!language->dialect || !cts_takes_dialect(t, pack->header.dialect)) return NULL;
  const char *const text = with_doubles ? language->doubles : language->source;
  const hal_hash_t key = hal_pack_key(language->dialect, "", with_doubles, text, strlen(text));
  return hal_pack_load(pack, &key, out_size);
}

int cts_unpack(cts_t *t, int with_doubles, hal_module_desc_t *out_desc) {
  static char dialect[HAL_PACK_DIALECT];
  hal_packs_t *const packs = hal_packs_open(t->path);
  out_desc->data = NULL;
  for (hal_pack_t *pack = hal_packs_first(packs); pack && !out_desc->data; pack = pack->next) {
    out_desc->data = load(t, pack, with_doubles, &out_desc->size);
    memcpy(dialect, pack->header.dialect, sizeof dialect);
  }
  hal_packs_close(packs);
  out_desc->dialect = dialect;
  return out_desc->data != NULL;
}
