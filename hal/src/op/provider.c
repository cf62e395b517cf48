/* provider.c: portable kernels in the dialect that a device prefers. */
#define _POSIX_C_SOURCE 200809L
#include "op/provider.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status_internal.h"
#include "base/text.h"
#include "hal/log.h"
#include "op/source.h"
#include "op/table.h"
#include "plugin/search_path.h"

/* Must change when the content of the files changes its meaning. */
#define CACHE_VERSION "torch_backend kernels 1"

/* ---- dialects ---------------------------------------------------------------------------------------------------- */

static const char *const dialects[] = {"native", "opencl-c", "cuda-c"};

/* For programs' own kernels if the others are native. */
#define HOST_SOURCE "c"

/* Returns the first of the device's dialects for which there are portable kernels. */
static const char *best_dialect(const char *list) {
  for (const char *at = list; *at;) {
    const size_t size = strcspn(at, ",");
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++)
      if (strlen(dialects[i]) == size && memcmp(at, dialects[i], size) == 0) return dialects[i];
    at += size + (at[size] == ',');
  }
  return NULL;
}

/* HAL_CACHE_DIR; set and empty: no cache. Otherwise the user's cache folder. */
static void find_cache(hal_disk_cache_t *cache) {
  char root[PATH_MAX] = "";
  const char *const named = getenv("HAL_CACHE_DIR"), *const user = getenv("XDG_CACHE_HOME"),
                    *const home = getenv("HOME");
  if (hal_process_is_privileged()) {
    hal_disk_cache_init(cache, NULL, "kernels");
    return;
  }
  if (named)
    hal_text_append(root, sizeof root, "%s", named);
  else if (user && user[0] == '/')
    hal_text_append(root, sizeof root, "%s/torch_backend", user);
  else if (home && home[0] == '/')
    hal_text_append(root, sizeof root, "%s/.cache/torch_backend", home);
  hal_disk_cache_init(cache, root, "kernels");
}

/* Returns whether a device accepts modules of a pack. */
static int fits(const hal_provider_t *provider, const hal_pack_t *pack) {
  return provider->dialect && hal_text_lists(provider->device->info.dialects, pack->header.dialect) &&
         strcmp(pack->header.source, provider->dialect) == 0;
}

/* Opens the plugin's packs. A device without a supported dialect uses the dialect of the first pack whose modules it
 * accepts. */
static void find_packs(hal_provider_t *provider) {
  const char *const taken = provider->device->info.dialects;
  provider->packs = hal_packs_open(provider->device->plugin->path);
  for (const hal_pack_t *pack = hal_packs_first(provider->packs); pack && !provider->dialect; pack = pack->next)
    if (hal_text_lists(taken, pack->header.dialect)) provider->dialect = best_dialect(pack->header.source);
}

void hal_provider_init(hal_provider_t *provider, hal_device_t *device) {
  provider->device = device;
  provider->dialect = best_dialect(device->info.dialects);
  provider->compiles = provider->dialect != NULL;
  pthread_mutex_init(&provider->own_lock, NULL);
  if (!provider->dialect || strcmp(provider->dialect, "native") != 0) find_packs(provider);
  provider->native = provider->dialect && strcmp(provider->dialect, "native") == 0;
  provider->own = !provider->compiles                                  ? NULL
                  : !provider->native                                  ? provider->dialect
                  : hal_text_lists(device->info.dialects, HOST_SOURCE) ? HOST_SOURCE
                                                                       : NULL;
  provider->form = !(device->info.flags & HAL_DEVICE_CPU) ? HAL_FORM_SIMT
                   : provider->native                     ? HAL_FORM_HOST
                                                          : HAL_FORM_CPU_VECTOR;
  provider->binary = hal_text_lists(device->info.dialects, "binary");
  if (provider->dialect && !provider->native)
    find_cache(&provider->cache);
  else
    hal_disk_cache_init(&provider->cache, NULL, "");
}

void hal_provider_close(hal_provider_t *provider) {
  hal_plugin_t *const plugin = provider->device->plugin;
  for (uint32_t family = 0; family < HAL_OP_FAMILY_COUNT; family++)
    if (provider->modules[family]) HAL_CALL_QUIETLY(plugin, module_unload, provider->modules[family]);
  for (hal_provided_t *at = provider->provided, *next; at; at = next) {
    next = at->next;
    if (at->module) HAL_CALL_QUIETLY(plugin, module_unload, at->module);
    hal_free(at->own);
    hal_free(at);
  }
  hal_disk_cache_close(&provider->cache);
  hal_packs_close(provider->packs);
  pthread_mutex_destroy(&provider->own_lock);
}

/* Products and sums are fused only in kernels that request it (kernels/pk.h): OpenCL C has a pragma for that, CUDA C an
 * option, and the host's compiler the plugin's options. */
const char *hal_provider_options(const char *dialect, uint32_t form, const char *source) {
  if (strcmp(dialect, HOST_SOURCE) == 0) return "";
  if (strcmp(dialect, "cuda-c") == 0) return strstr(source, "#define PK_CONTRACT 1") ? "" : "--fmad=false";
  return form == HAL_FORM_CPU_VECTOR ? "-DPK_CPU_VECTOR=1" : "";
}

static const char *options_of(const hal_provider_t *provider, const char *source) {
  return hal_provider_options(provider->own ? provider->own : provider->dialect, provider->form, source);
}

/* The calling thread's flag; NULL = it cannot be cancelled. */
static _Thread_local const int32_t *cancellation_flag;

void hal_provider_set_cancellation(const int32_t *flag) { cancellation_flag = flag; }

static hal_status_t load(hal_provider_t *provider, const char *dialect, const void *data, size_t size,
                         hal_plugin_module_t **out_module) {
  const hal_module_desc_t desc = {.struct_size = HAL_STRUCT_SIZE(hal_module_desc_t, cancelled),
                                  .dialect = dialect,
                                  .options = dialect == provider->own ? options_of(provider, data) : "",
                                  .data = data,
                                  .size = size,
                                  .cancelled = cancellation_flag};
  *out_module = NULL;
  const hal_status_t status =
      hal_call_module_load(provider->device->plugin, provider->device->ordinal, &desc, out_module);
  return hal_plugin_made(status, *out_module);
}

static hal_status_t get_kernel(hal_provider_t *provider, hal_plugin_module_t *module, const char *name,
                               hal_plugin_kernel_t **out_kernel) {
  hal_plugin_t *const plugin = provider->device->plugin;
  *out_kernel = NULL;
  hal_status_t status = hal_call_kernel_get(plugin, module, name, out_kernel);
  status = hal_plugin_made(status, *out_kernel);
  if (!status) return HAL_OK;
  if (status == HAL_NOT_FOUND || status == HAL_UNIMPLEMENTED) return HAL_UNIMPLEMENTED;
  hal_error_plugin(plugin, HAL_SLOT_kernel_get, status);
  return hal_error_prefix(status, "while looking for the kernel \"%s\": ", name);
}

/* ---- compiled ahead of time -------------------------------------------------------------------------------------- */

static hal_status_t native_module(hal_provider_t *provider, uint32_t family, hal_plugin_module_t **out_module) {
  if (provider->module_missing[family]) return HAL_UNIMPLEMENTED;
  if (!provider->modules[family]) {
    const char *const name = hal_op_families[family];
    const hal_status_t status = load(provider, "native", name, strlen(name), &provider->modules[family]);
    if (status == HAL_UNIMPLEMENTED || status == HAL_NOT_FOUND) {
      provider->module_missing[family] = 1;
      return HAL_UNIMPLEMENTED;
    }
    if (status) {
      hal_error_plugin(provider->device->plugin, HAL_SLOT_module_load, status);
      return hal_error_prefix(status, "while loading the portable kernels of the family \"%s\": ", name);
    }
  }
  *out_module = provider->modules[family];
  return HAL_OK;
}

/* ---- compiled at first use --------------------------------------------------------------------------------------- */

/* Returns the hash of everything that determines the compiled kernel; the plugin checks the driver's version
 * (plugin_ops.def, module_load). */
static hal_hash_t key_of(const hal_provider_t *provider, const char *source, size_t size) {
  const hal_device_t *const device = provider->device;
  const hal_plugin_info_t *const plugin = &device->plugin->info;
  hal_hash_t key = hal_hash_begin();
  hal_hash_add_text(&key, CACHE_VERSION);
  hal_hash_add_text(&key, provider->dialect);
  hal_hash_add_text(&key, options_of(provider, source));
  hal_hash_add_text(&key, plugin->name);
  hal_hash_add_text(&key, plugin->version ? plugin->version : "");
  hal_hash_add_text(&key, device->info.name);
  hal_hash_add(&key, &device->info.flags, sizeof device->info.flags);
  hal_hash_add(&key, source, size);
  return key;
}

/* Loads a module from disk. Returns whether there was one that the plugin accepts. */
static int load_cached(hal_provider_t *provider, const hal_hash_t *key, hal_plugin_module_t **out_module) {
  size_t size = 0;
  void *const data = provider->binary ? hal_disk_cache_load(&provider->cache, key, &size) : NULL;
  if (!data) return 0;
  const hal_status_t status = load(provider, "binary", data, size, out_module);
  hal_free(data);
  if (status) {
    hal_error_forget_plugin();
    hal_disk_cache_drop(&provider->cache, key);
    return 0;
  }
  atomic_fetch_add_explicit(&provider->loaded, 1, memory_order_relaxed);
  return 1;
}

/* Returns a module's binary, which the caller frees with hal_free; NULL if the plugin does not export it. */
static void *binary_of(hal_provider_t *provider, hal_plugin_module_t *module, size_t *out_size) {
  hal_plugin_t *const plugin = provider->device->plugin;
  size_t size = 0, written = 0;
  void *data = NULL;
  if (!hal_call_module_export(plugin, module, NULL, 0, &size) && size && size <= HAL_DISK_CACHE_FILE_BYTES)
    data = hal_malloc(size);
  if (data && (hal_call_module_export(plugin, module, data, size, &written) || written != size)) {
    hal_free(data);
    data = NULL;
  }
  hal_error_forget_plugin(); /* a module that is not exported is compiled again in each process */
  *out_size = size;
  return data;
}

static void keep(hal_provider_t *provider, const hal_hash_t *key, hal_plugin_module_t *module) {
  size_t size = 0;
  if (!provider->binary || !provider->cache.path[0]) return;
  void *const data = binary_of(provider, module, &size);
  if (data) hal_disk_cache_store(&provider->cache, key, data, size);
  hal_free(data);
}

/* Loads a module from a pack: a binary, or a module that the driver still compiles. Returns whether there was one that
 * the plugin accepts. */
static int load_packed(hal_provider_t *provider, int binary, const char *name, const char *source, size_t size,
                       hal_plugin_module_t **out_module) {
  hal_pack_t *pack = hal_packs_first(provider->packs);
  if (!pack) return 0;
  const int fp64 = (provider->device->info.flags & HAL_DEVICE_FP64) != 0;
  const hal_hash_t key = hal_pack_key(provider->dialect, options_of(provider, source), fp64, source, size);
  for (; pack; pack = pack->next) {
    size_t bytes = 0;
    if (!fits(provider, pack) || (strcmp(pack->header.dialect, "binary") == 0) != binary) continue;
    void *const data = hal_pack_load(pack, &key, &bytes);
    if (!data) continue;
    const hal_status_t status = load(provider, pack->header.dialect, data, bytes, out_module);
    hal_free(data);
    if (!status) {
      atomic_fetch_add_explicit(&provider->packed, 1, memory_order_relaxed);
      return 1;
    }
    hal_error_plugin(provider->device->plugin, HAL_SLOT_module_load, status);
    hal_pack_refused(pack, name, hal_error_message());
  }
  return 0;
}

static hal_status_t compile(hal_provider_t *provider, const char *name, const char *source, size_t size,
                            hal_plugin_module_t **out_module) {
  const int64_t begin = hal_clock_ns();
  const hal_status_t status = load(provider, provider->own, source, size, out_module);
  atomic_fetch_add_explicit(&provider->compile_ns, (uint64_t)(hal_clock_ns() - begin), memory_order_relaxed);
  if (!status) {
    atomic_fetch_add_explicit(&provider->compiled, 1, memory_order_relaxed);
    return HAL_OK;
  }
  hal_error_plugin(provider->device->plugin, HAL_SLOT_module_load, status);
  return hal_error_prefix(status, "while compiling the kernel \"%s\" as \"%s\": ", name, provider->own);
}

/* Finds a module in a pack or on disk (where the driver's result for a pack's module is stored too); otherwise compiles
 * it. */
static hal_status_t make_module(hal_provider_t *provider, const char *name, const char *source, size_t size,
                                hal_plugin_module_t **out_module) {
  if (load_packed(provider, 1, name, source, size, out_module)) return HAL_OK;
  const hal_hash_t key = key_of(provider, source, size);
  if (load_cached(provider, &key, out_module)) return HAL_OK;
  if (!load_packed(provider, 0, name, source, size, out_module)) {
    if (!provider->compiles) return HAL_UNIMPLEMENTED;
    HAL_RETURN_IF_ERROR(compile(provider, name, source, size, out_module));
  }
  keep(provider, &key, *out_module);
  return HAL_OK;
}

static hal_status_t make_portable(hal_provider_t *provider, const char *name, hal_plugin_module_t **out_module) {
  char *source = NULL;
  size_t size = 0;
  hal_status_t status = hal_op_source(name, &source, &size);
  if (status) return status == HAL_NOT_FOUND ? HAL_UNIMPLEMENTED : status;
  status = make_module(provider, name, source, size, out_module);
  hal_free(source);
  return status;
}

/* Returns whether an error means that this kernel can never be created, unlike a lost device or missing memory. */
static int is_refusal(hal_status_t status) {
  return status == HAL_INVALID_ARGUMENT || status == HAL_UNIMPLEMENTED || status == HAL_NOT_FOUND ||
         status == HAL_INTERNAL || status == HAL_OUT_OF_RANGE;
}

int hal_provider_needs_fp64(const char *kernel) { return strstr(kernel, "_f64_") || strstr(kernel, "_c128_"); }

/* A device without double precision does not have kernels with double-precision numbers. */
static int lacks(const hal_provider_t *provider, const char *kernel) {
  return hal_provider_needs_fp64(kernel) && !(provider->device->info.flags & HAL_DEVICE_FP64);
}

hal_status_t hal_provider_export(hal_provider_t *provider, const char *kernel, void **out_data, size_t *out_size) {
  hal_plugin_module_t *module = NULL;
  char *source = NULL;
  size_t size = 0;
  if (!provider->compiles || provider->native || !provider->binary || lacks(provider, kernel))
    return hal_error_set(HAL_UNIMPLEMENTED, "device %s does not compile the kernel \"%s\" to a binary",
                         provider->device->label, kernel);
  HAL_RETURN_IF_ERROR(hal_op_source(kernel, &source, &size));
  const hal_status_t status = compile(provider, kernel, source, size, &module);
  hal_free(source);
  if (status) return status;
  *out_data = binary_of(provider, module, out_size);
  HAL_CALL_AFTER(provider->device->plugin, module_unload, module);
  if (*out_data) return HAL_OK;
  return hal_error_set(HAL_UNIMPLEMENTED, "the plugin of device %s exports no binary of the kernel \"%s\"",
                       provider->device->label, kernel);
}

static hal_status_t provide(hal_provider_t *provider, const char *name, hal_provided_t *out) {
  hal_plugin_t *const plugin = provider->device->plugin;
  if (lacks(provider, name)) return HAL_OK;
  hal_status_t status = make_portable(provider, name, &out->module);
  if (!status) {
    status = get_kernel(provider, out->module, name, &out->kernel);
    if (!status) return HAL_OK;
    HAL_CALL_AFTER(plugin, module_unload, out->module);
    out->module = NULL;
  }
  if (!is_refusal(status)) return status;
  if (status != HAL_UNIMPLEMENTED) {
    atomic_fetch_add_explicit(&provider->refused, 1, memory_order_relaxed);
    hal_log(HAL_LOG_WARNING, "device %s: %s; its operators are computed by the fallback instead",
            provider->device->label, hal_error_message());
  }
  return HAL_OK;
}

static hal_provided_t *find_provided(const hal_provider_t *provider, const char *name) {
  hal_provided_t *at = provider->provided;
  while (at && strcmp(at->name, name)) at = at->next;
  return at;
}

static hal_status_t new_provided(const char *name, hal_provided_t **out) {
  const size_t bytes = strlen(name) + 1;
  *out = hal_calloc(1, sizeof **out + bytes);
  if (!*out) return hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory for the kernel \"%s\"", name);
  memcpy((*out)->name, name, bytes);
  return HAL_OK;
}

static void add_provided(hal_provider_t *provider, hal_provided_t *made) {
  made->next = provider->provided;
  provider->provided = made;
}

static hal_status_t source_kernel(hal_provider_t *provider, const char *name, hal_plugin_kernel_t **out_kernel) {
  hal_provided_t *at = find_provided(provider, name);
  if (!at) {
    HAL_RETURN_IF_ERROR(new_provided(name, &at));
    const hal_status_t status = provide(provider, name, at);
    if (status) {
      hal_free(at);
      return status;
    }
    add_provided(provider, at);
  }
  *out_kernel = at->kernel;
  return at->kernel ? HAL_OK : HAL_UNIMPLEMENTED;
}

hal_status_t hal_provider_kernel(hal_provider_t *provider, uint32_t family, const char *name,
                                 hal_plugin_kernel_t **out_kernel) {
  hal_plugin_module_t *module = NULL;
  if (!provider->dialect) return HAL_UNIMPLEMENTED;
  if (!provider->native) return source_kernel(provider, name, out_kernel);
  HAL_RETURN_IF_ERROR(native_module(provider, family, &module));
  return get_kernel(provider, module, name, out_kernel);
}

/* ---- a program's own kernels ------------------------------------------------------------------------------------- */

/* Compiles the text of `made`, whose kernel is `name`. */
static hal_status_t make_own(hal_provider_t *provider, const char *name, const char *text, hal_provided_t *made) {
  hal_plugin_t *const plugin = provider->device->plugin;
  const int host = strcmp(provider->own, HOST_SOURCE) == 0; /* a group is one item there (kernels/pk_host.h) */
  const uint32_t group_threads = host ? 1 : hal_op_table_of(provider->device)->target.group_threads;
  char *source = NULL;
  size_t size = 0;
  HAL_RETURN_IF_ERROR(hal_op_source_of_text(text, host, &source, &size));
  hal_status_t status = make_module(provider, name, source, size, &made->module);
  hal_free(source);
  if (status) return status;
  made->kernel = NULL;
  status = hal_call_kernel_get(plugin, made->module, name, &made->kernel);
  status = hal_error_plugin_made(plugin, HAL_SLOT_kernel_get, status, made->kernel);
  if (status) {
    HAL_CALL_AFTER(plugin, module_unload, made->module);
    return hal_error_prefix(status, "the kernel \"%s\" of a text in the portable dialect: ", name);
  }
  made->own = hal_kernel_wrap(provider->device, made->kernel, group_threads, name);
  if (made->own) return HAL_OK;
  HAL_CALL_AFTER(plugin, module_unload, made->module);
  return hal_error_set(HAL_RESOURCE_EXHAUSTED, "no host memory for the kernel \"%s\"", name);
}

pthread_mutex_t *hal_provider_own_lock(hal_provider_t *provider) {
  return provider->native ? &provider->own_lock : &hal_op_table_of(provider->device)->lock;
}

hal_status_t hal_provider_compile(hal_provider_t *provider, const char *name, const char *text,
                                  hal_kernel_t **out_kernel) {
  if (!provider->own)
    return hal_error_set(
        HAL_UNIMPLEMENTED,
        "the kernel \"%s\" cannot be compiled for device %s, which accepts '%s'; its plugin must accept "
        "opencl-c or cuda-c, or c together with native",
        name, provider->device->label, provider->device->info.dialects);
  hal_hash_t hash = hal_hash_begin();
  hal_hash_add_text(&hash, name);
  hal_hash_add_text(&hash, text);
  char key[40]; /* names of portable kernels contain no colon */
  snprintf(key, sizeof key, ":%016" PRIx64 "%016" PRIx64, hal_hash_high(&hash), hal_hash_low(&hash));
  hal_provided_t *at = find_provided(provider, key);
  if (!at) {
    HAL_RETURN_IF_ERROR(new_provided(key, &at));
    const hal_status_t status = make_own(provider, name, text, at);
    if (status) {
      hal_free(at);
      return status;
    }
    add_provided(provider, at);
  }
  *out_kernel = at->own;
  return HAL_OK;
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

/* Returns the path of the first pack for the device. */
static const char *first_pack(const hal_provider_t *provider) {
  const hal_pack_t *pack = hal_packs_first(provider->packs);
  while (pack && !fits(provider, pack)) pack = pack->next;
  return pack ? pack->path : "";
}

hal_status_t hal_kernel_stats(int32_t device, hal_kernel_stats_t *out_stats) {
  hal_device_t *owner;
  HAL_RETURN_IF_ERROR(hal_device_get(device, &owner));
  hal_provider_t *const provider = &hal_op_table_of(owner)->provider;
  hal_kernel_stats_t stats = {.struct_size = out_stats->struct_size};
  stats.compiled = atomic_load_explicit(&provider->compiled, memory_order_relaxed);
  stats.loaded = atomic_load_explicit(&provider->loaded, memory_order_relaxed);
  stats.refused = atomic_load_explicit(&provider->refused, memory_order_relaxed);
  stats.compile_ns = atomic_load_explicit(&provider->compile_ns, memory_order_relaxed);
  stats.packed = atomic_load_explicit(&provider->packed, memory_order_relaxed);
  stats.dialect = provider->dialect ? provider->dialect : "";
  stats.cache = provider->cache.path;
  stats.pack = first_pack(provider);
  if (!provider->compiles && provider->dialect) stats.dialect = "";
  const size_t known = sizeof stats < stats.struct_size ? sizeof stats : stats.struct_size;
  memcpy(out_stats, &stats, known);
  return HAL_OK;
}
