/* module.c: modules, kernels and launches. There are three dialects: "native", the portable kernels compiled into this
 * plugin; "host", kernels that the caller has compiled into its own library; and "c", source that the host's compiler
 * compiles to a library (compile.c). A kernel handle is the address of the kernel's entry in such a table or library,
 * which exists as long as its module. The first kind can be exported as bytes, in the dialect "binary". */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "compile.h"
#include "hal/plugin_binary.h"
#include "protect.h"
#include "sanitize/sanitize.h"

struct hal_plugin_module_s {
  int32_t device;
  const hal_host_kernel_t *kernels; /* of the dialect "host", a copy; NULL: the portable ones */
  size_t count;
  void *library;                          /* of the dialect "c"; else NULL */
  hal_plugin_module_t *next;              /* next of the retired modules */
  alignas(hal_host_kernel_t) char text[]; /* the copy, followed by the names */
};

/* Modules that were unloaded after a profile began, because its records may still name their kernels. */
static _Atomic(hal_plugin_module_t *) retired;

/* Checks the kernels of a module in the dialect "host". */
static hal_status_t check_table(const hal_module_desc_t *desc) {
  if (!desc->data || !desc->size || desc->size % sizeof(hal_host_kernel_t))
    return fake_error(HAL_INVALID_ARGUMENT, 0,
                      "fake: a module in the dialect 'host' has %zu bytes at %p; pass an array of hal_host_kernel_t, "
                      "%zu bytes each",
                      desc->size, desc->data, sizeof(hal_host_kernel_t));
  return HAL_OK;
}

static size_t table_bytes(const hal_host_kernel_t *kernels, size_t count) {
  size_t bytes = count * sizeof *kernels;
  for (size_t i = 0; i < count; i++) bytes += strlen(kernels[i].name) + 1;
  return bytes;
}

/* Copies a table and its names to `to`, which is aligned for the table. */
static const hal_host_kernel_t *copy_table(char *to, const hal_host_kernel_t *kernels, size_t count) {
  char *name = to + count * sizeof *kernels;
  for (size_t i = 0; i < count; i++) {
    hal_host_kernel_t kernel = kernels[i];
    const size_t bytes = strlen(kernel.name) + 1;
    kernel.name = memcpy(name, kernel.name, bytes);
    kernel.reserved = FAKE_NOT_INSTRUMENTED;
    memcpy(to + i * sizeof kernel, &kernel, sizeof kernel);
    name += bytes;
  }
  return (const hal_host_kernel_t *)(const void *)to;
}

/* ---- modules as bytes: they identify the portable kernels of this build, because the code is in the plugin ------- */

static const char content[] = "fake: the portable kernels";

static void describe_build(char out_maker[HAL_BINARY_MAKER]) {
  snprintf(out_maker, HAL_BINARY_MAKER, "a fake plugin with %zu portable kernels", hal_host_kernel_count());
}

hal_status_t hal_plugin_module_export(hal_plugin_module_t *module, void *data, size_t room, size_t *out_size) {
  char maker[HAL_BINARY_MAKER];
  if (module->kernels || module->library)
    return fake_error(
        HAL_UNIMPLEMENTED, 0,
        "fake: a module in the dialect '%s' is code of this process, which another process cannot load as bytes",
        module->kernels ? "host" : "c");
  *out_size = HAL_BINARY_SEAL + sizeof content;
  if (!data || room < *out_size) return HAL_OK;
  memcpy((char *)data + HAL_BINARY_SEAL, content, sizeof content);
  describe_build(maker);
  hal_binary_seal(data, sizeof content, maker);
  return HAL_OK;
}

static hal_status_t check_binary(const hal_module_desc_t *desc) {
  char maker[HAL_BINARY_MAKER];
  const void *bytes = NULL;
  size_t size = 0;
  describe_build(maker);
  const hal_status_t status = hal_binary_open("fake", desc, maker, &bytes, &size);
  if (!status && (size != sizeof content || memcmp(bytes, content, size) != 0))
    return fake_error(HAL_INVALID_ARGUMENT, 0,
                      "fake: a module of %zu bytes in 'binary' is not a result of module_export", desc->size);
  return status;
}

/* Determines the kind of a module: a table of the caller, a library that is compiled here, or the portable kernels. */
static hal_status_t check_module(const hal_module_desc_t *desc, int *out_host, void **out_library) {
  const char *const dialect = desc->dialect ? desc->dialect : "";
  const int compiles = fake_compile_accepts();
  *out_library = NULL;
  *out_host = strcmp(dialect, "host") == 0;
  if (*out_host) return check_table(desc);
  if (strcmp(dialect, "c") == 0 && compiles) return fake_compile(desc, out_library);
  if (strcmp(dialect, "binary") == 0) return check_binary(desc);
  if (strcmp(dialect, "native") == 0) return HAL_OK;
  return fake_error(HAL_UNIMPLEMENTED, 0,
                    "fake: unsupported dialect '%s' of a module; the device takes 'native', 'host' and 'binary'%s",
                    dialect, compiles ? ", and 'c'" : "; HAL_FAKE_CC is empty, which excludes 'c'");
}

hal_status_t hal_plugin_module_load(int32_t device, const hal_module_desc_t *desc, hal_plugin_module_t **out_module) {
  int host = 0;
  void *library = NULL;
  hal_status_t status = fake_check_device(device);
  if (!status) status = check_module(desc, &host, &library);
  if (status) return status;
  const hal_host_kernel_t *kernels = host ? desc->data : NULL;
  const size_t count = host ? desc->size / sizeof *kernels : 0;
  hal_plugin_module_t *module =
      hal_host->mem_alloc(sizeof *module + table_bytes(kernels, count), alignof(hal_plugin_module_t));
  if (!module) {
    if (library) dlclose(library);
    return fake_error(HAL_RESOURCE_EXHAUSTED, 0, "fake: no host memory for a module; free some memory");
  }
  module->device = device;
  module->count = count;
  module->kernels = host ? copy_table(module->text, kernels, count) : NULL;
  module->library = library;
  *out_module = module;
  return HAL_OK;
}

/* A library's names are valid while it is loaded, so a library that records may refer to stays loaded. */
hal_status_t hal_plugin_module_unload(hal_plugin_module_t *module) {
  const int has_names = module && (module->kernels || module->library);
  if (!has_names || !atomic_load_explicit(&fake.keep_names, memory_order_relaxed)) {
    if (module && module->library) dlclose(module->library);
    hal_host->mem_free(module);
    return HAL_OK;
  }
  module->next = atomic_load_explicit(&retired, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&retired, &module->next, module, memory_order_release,
                                                memory_order_relaxed)) {
  }
  return HAL_OK;
}

/* Logs the notes of the portable kernels about this machine. */
static void log_notes(void) {
  int32_t warns;
  for (const char *note; (note = hal_host_kernel_note(&warns));) {
    char line[400];
    snprintf(line, sizeof line, "fake: %s", note);
    hal_host->log(warns ? HAL_LOG_WARNING : HAL_LOG_INFO, line);
  }
}

hal_status_t hal_plugin_kernel_get(hal_plugin_module_t *module, const char *name, hal_plugin_kernel_t **out_kernel) {
  const hal_host_kernel_t *kernel = NULL;
  if (module->library) {
    const hal_status_t status = fake_library_kernel(module->library, name, &kernel);
    if (status) return status;
  } else if (!module->kernels) {
    /* names are unique across all families */
    kernel = fake.settings.sanitize ? fake_checked_find(name) : hal_host_kernel_find(name);
  }
  for (size_t i = 0; !kernel && i < module->count; i++)
    if (strcmp(module->kernels[i].name, name) == 0) kernel = &module->kernels[i];
  if (!kernel)
    return fake_error(HAL_NOT_FOUND, 0, "fake: there is no kernel '%s' among the %zu %s", name,
                      module->kernels ? module->count : hal_host_kernel_count(),
                      module->kernels ? "kernels of the module" : "portable kernels of this build");
  if (kernel->arg_count > FAKE_MAX_ARGS)
    return fake_error(HAL_INTERNAL, 0, "fake: kernel '%s' takes %u arguments, more than the %d of a portable kernel",
                      name, (unsigned)kernel->arg_count, FAKE_MAX_ARGS);
  if (!module->kernels && !module->library) log_notes();
  *out_kernel = (hal_plugin_kernel_t *)(uintptr_t)kernel;
  return HAL_OK;
}

hal_status_t hal_plugin_kernel_info(hal_plugin_kernel_t *kernel, uint32_t block_threads, uint32_t shared_bytes,
                                    hal_kernel_info_t *out_info) {
  (void)kernel;
  HAL_SET_FIELD(out_info, max_block_threads, FAKE_MAX_BLOCK_THREADS);
  HAL_SET_FIELD(out_info, subgroup_size, 1);
  /* A unit is a thread of the host, which runs one block after the other. */
  HAL_SET_FIELD(out_info, blocks_per_unit, block_threads <= FAKE_MAX_BLOCK_THREADS && !shared_bytes ? 1 : 0);
  return HAL_OK;
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

/* Sets the error message for an invalid launch. */
static hal_status_t refuse(const hal_host_kernel_t *kernel, const hal_launch_t *launch) {
  const char *name = kernel->name;
  const uint32_t *grid = launch->grid, *block = launch->block;
  if (launch->struct_size < HAL_STRUCT_SIZE(hal_launch_t, args))
    return fake_error(HAL_INCOMPATIBLE, 0, "fake: launch of '%s' with a launch of %zu bytes; rebuild the caller", name,
                      launch->struct_size);
  if (!grid[0] || !grid[1] || !grid[2] || !block[0] || !block[1] || !block[2] || block[0] > FAKE_MAX_BLOCK_THREADS)
    return fake_error(
        HAL_INVALID_ARGUMENT, 0,
        "fake: launch of '%s' with grid (%u, %u, %u) and block (%u, %u, %u); no size may be 0, and a block "
        "has at most %u threads",
        name, (unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2], (unsigned)block[0], (unsigned)block[1],
        (unsigned)block[2], FAKE_MAX_BLOCK_THREADS);
  if (grid[1] != 1 || grid[2] != 1 || block[1] != 1 || block[2] != 1)
    return fake_error(
        HAL_INVALID_ARGUMENT, 0,
        "fake: launch of '%s' with grid (%u, %u, %u) and block (%u, %u, %u); the portable kernels have one "
        "dimension: put everything into the first",
        name, (unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2], (unsigned)block[0], (unsigned)block[1],
        (unsigned)block[2]);
  if (launch->shared_bytes)
    return fake_error(HAL_INVALID_ARGUMENT, 0,
                      "fake: launch of '%s' with %u shared bytes; the portable kernels take none", name,
                      (unsigned)launch->shared_bytes);
  if (launch->arg_count != kernel->arg_count)
    return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: launch of '%s' with %u arguments; it takes %u", name,
                      (unsigned)launch->arg_count, (unsigned)kernel->arg_count);
  for (uint32_t i = 0; i < launch->arg_count; i++) {
    const hal_arg_t *arg = &launch->args[i];
    if (arg->kind > HAL_ARG_POINTER)
      return fake_error(HAL_INVALID_ARGUMENT, 0,
                        "fake: argument %u of '%s' has kind %u; the portable kernels take values and pointers",
                        (unsigned)i, name, (unsigned)arg->kind);
    if (!arg->value || (arg->kind == HAL_ARG_POINTER && arg->size != sizeof(void *)))
      return fake_error(
          HAL_INVALID_ARGUMENT, 0,
          "fake: argument %u of '%s' has %u bytes at %p; pass the address of the value, and %zu bytes for a "
          "pointer",
          (unsigned)i, name, (unsigned)arg->size, arg->value, sizeof(void *));
    if (arg->size > FAKE_MAX_ARG_BYTES)
      return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: argument %u of '%s' has %u bytes, more than %d; pass a pointer",
                        (unsigned)i, name, (unsigned)arg->size, FAKE_MAX_ARG_BYTES);
  }
  return fake_error(HAL_INTERNAL, 0, "fake: launch of '%s' was refused for an unknown reason", name);
}

/* Returns the bytes of a value in the queue: argument types are aligned to 8 at most. */
static inline uint32_t value_bytes(uint32_t size) { return (size + 7) & ~7u; }

/* Queues a launch with copies of the values, which follow their addresses. */
static hal_status_t enqueue(hal_plugin_stream_t *stream, const hal_host_kernel_t *kernel, const hal_host_range_t *range,
                            const hal_arg_t *args, uint32_t arg_count, uint32_t flags, const fake_note_t *note) {
  const uint32_t header = (uint32_t)(sizeof(fake_item_t) + arg_count * sizeof(void *));
  uint32_t bytes = header;
  for (uint32_t i = 0; i < arg_count; i++) bytes += value_bytes(args[i].size);
  if (FAKE_UNLIKELY(note != NULL)) bytes += fake_note_bytes();
  fake_item_t *item = fake_queue_reserve(stream, bytes, FAKE_ITEM_LAUNCH);
  if (!item) {
    fake_note_end(note);
    return fake_queue_refused(stream);
  }
  item->flags = (uint16_t)flags;
  item->u.launch.kernel = kernel;
  item->u.launch.range = *range;
  char *value = (char *)item + header;
  for (uint32_t i = 0; i < arg_count; i++) {
    const uint32_t size = args[i].size;
    item->args[i] = value;
    if (FAKE_LIKELY(size == 8)) /* pointers and counts: no call of memcpy */
      memcpy(value, args[i].value, 8);
    else if (size == 4)
      memcpy(value, args[i].value, 4);
    else
      memcpy(value, args[i].value, size);
    value += value_bytes(size);
  }
  if (FAKE_UNLIKELY(note != NULL)) {
    item->flags |= fake.settings.sanitize ? FAKE_ITEM_NOTED | FAKE_ITEM_TRACED : FAKE_ITEM_NOTED;
    memcpy((char *)item + item->size - fake_note_bytes(), note, fake_note_bytes());
  }
  fake_queue_commit(stream, item);
  return HAL_OK;
}

/* Runs on the calling thread. Nothing is ever queued before it: with HAL_FAKE_ASYNC=0 every call has finished when it
 * returns, and threads that use one stream take turns. */
static hal_status_t run_now(hal_plugin_stream_t *stream, const hal_host_kernel_t *kernel, const hal_host_range_t *range,
                            void *const *values, const fake_note_t *note) {
  if (stream) fake_lock(&stream->lock);
  if (FAKE_UNLIKELY(note != NULL))
    fake_run_noted(note, stream, kernel, range, values);
  else
    fake_run(stream, kernel, range, values);
  if (stream) fake_unlock(&stream->lock);
  fake_note_end(note);
  return HAL_OK;
}

int fake_launch_fails(void) {
  return FAKE_UNLIKELY(fake.settings.fault) &&
         atomic_fetch_add_explicit(&fake.launches, 1, memory_order_relaxed) + 1 == fake.settings.fault;
}

hal_status_t fake_submit(hal_plugin_stream_t *stream, const hal_host_kernel_t *kernel, uint64_t units,
                         const hal_arg_t *args, uint32_t arg_count, const fake_note_t *note) {
  const hal_host_range_t range = {0, units};
  if (fake_queues(stream)) return enqueue(stream, kernel, &range, args, arg_count, 0, note);
  void *values[FAKE_MAX_ARGS];
  for (uint32_t i = 0; i < arg_count; i++) values[i] = (void *)(uintptr_t)args[i].value;
  return run_now(stream, kernel, &range, values, note);
}

/* HAL_FAKE_FAULT=n: the n-th launch of the process fails when it runs, as a kernel on a device would. */
hal_status_t fake_launch_inject(hal_plugin_stream_t *stream, const hal_host_kernel_t *kernel) {
  if (!stream)
    return fake_error(HAL_INTERNAL, 0, "fake: kernel '%s' failed on the device (injected by HAL_FAKE_FAULT=%llu)",
                      kernel->name, (unsigned long long)fake.settings.fault);
  fake_stream_fail(stream, HAL_INTERNAL, kernel->name);
  fake_watch_failure(stream->device, kernel->name);
  return HAL_OK;
}

/* Returns whether both dimensions after the first have size 1. One comparison, because every operator calls this. */
static inline int is_flat(const uint32_t size[3]) {
  static const uint32_t ones[2] = {1, 1};
  return memcmp(size + 1, ones, sizeof ones) == 0;
}

/* Returns whether size and kind of an argument match. */
static inline int is_known(const hal_arg_t *arg) {
  return arg->kind == HAL_ARG_POINTER ? arg->size == sizeof(void *)
                                      : arg->kind == HAL_ARG_VALUE && arg->size <= FAKE_MAX_ARG_BYTES;
}

/* Reads the attributes: this device supports HAL_LAUNCH_FIRST_BLOCK, so it accepts a launch whose others are hints. */
static hal_status_t read_attributes(const hal_host_kernel_t *kernel, const hal_launch_t *launch, uint64_t *out_first) {
  for (uint32_t i = 0; i < launch->attribute_count; i++) {
    const hal_launch_attribute_t *const attribute = &launch->attributes[i];
    if (attribute->kind == HAL_LAUNCH_FIRST_BLOCK && fake.settings.first && !attribute->y && !attribute->z)
      *out_first = attribute->x;
    else if (attribute->required)
      return fake_error(HAL_UNIMPLEMENTED, 0, "fake: launch of '%s' requires attribute %u, which is not supported",
                        kernel->name, (unsigned)attribute->kind);
  }
  return HAL_OK;
}

/* The limits of HAL_FAKE_GRID, HAL_FAKE_MAX_THREADS and HAL_FAKE_BINDING_ALIGNMENT, which the host respects. */
static hal_status_t check_limits(const hal_host_kernel_t *kernel, const hal_launch_t *launch, uint64_t first) {
  const uint32_t most = fake.settings.grid;
  const uint64_t numbered = fake.settings.numbered, end = (first + launch->grid[0]) * launch->block[0];
  if (most && launch->grid[0] > most)
    return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: launch of '%s' with %u blocks, but max_grid is %u", kernel->name,
                      (unsigned)launch->grid[0], (unsigned)most);
  const uintptr_t mask = fake.settings.alignment - 1;
  for (uint32_t i = 0; mask && i < launch->arg_count; i++) {
    const hal_arg_t *const arg = &launch->args[i];
    const void *const address = arg->kind == HAL_ARG_POINTER && arg->value ? *(void *const *)arg->value : NULL;
    if ((uintptr_t)address & mask)
      return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: argument %u of '%s' is %p, but binding_alignment is %u",
                        (unsigned)i, kernel->name, address, (unsigned)fake.settings.alignment);
  }
  if (!numbered || end <= numbered) return HAL_OK;
  return fake_error(HAL_INVALID_ARGUMENT, 0, "fake: launch of '%s' up to thread %llu, but max_threads is %llu",
                    kernel->name, (unsigned long long)end, (unsigned long long)numbered);
}

hal_status_t hal_plugin_kernel_launch(hal_plugin_kernel_t *handle, hal_plugin_stream_t *stream,
                                      const hal_launch_t *launch) {
  const hal_host_kernel_t *kernel = (const hal_host_kernel_t *)(const void *)handle;
  const uint32_t arg_count = launch->arg_count;
  if (FAKE_UNLIKELY(launch->struct_size < HAL_STRUCT_SIZE(hal_launch_t, args) || !launch->grid[0] ||
                    !is_flat(launch->grid) || !is_flat(launch->block) || launch->shared_bytes ||
                    launch->block[0] - 1 >= FAKE_MAX_BLOCK_THREADS || arg_count != kernel->arg_count))
    return refuse(kernel, launch);
  uint64_t first = 0;
  if (FAKE_UNLIKELY(HAL_HAS_FIELD(launch, attribute_count))) {
    const hal_status_t status = read_attributes(kernel, launch, &first);
    if (status) return status;
  }
  if (FAKE_UNLIKELY(fake.settings.limited)) {
    const hal_status_t status = check_limits(kernel, launch, first);
    if (status) return status;
  }
  const hal_arg_t *args = launch->args;
  fake_noted_t room;
  const fake_note_t *note = NULL;
  void *values[FAKE_MAX_ARGS], *pointers[FAKE_MAX_ARGS];
  hal_arg_t translated[FAKE_MAX_ARGS];
  for (uint32_t i = 0; i < arg_count; i++) {
    if (FAKE_UNLIKELY(!args[i].value || !is_known(&args[i]))) return refuse(kernel, launch);
    values[i] = (void *)(uintptr_t)args[i].value;
  }
  if (fake_takes_notes(stream)) note = fake_note_launch(&room, stream, args, arg_count);
  if (FAKE_UNLIKELY(fake.settings.protect)) {
    const hal_status_t status = fake_protect_args(kernel, args, arg_count, translated, pointers);
    if (status) return status;
    for (uint32_t i = 0; i < arg_count; i++) values[i] = (void *)(uintptr_t)translated[i].value;
    args = translated;
  }
  const uint64_t scale = kernel->unit == HAL_HOST_ITEMS ? launch->block[0] : 1;
  const hal_host_range_t range = {first * scale, (first + launch->grid[0]) * scale};
  if (stream && fake_is_captured(stream))
    return enqueue(stream, kernel, &range, args, arg_count, fake.settings.fault ? FAKE_ITEM_COUNTED : 0, note);
  const uint32_t flags = fake_launch_fails() ? FAKE_ITEM_FAULT : 0;
  if (stream && fake.settings.async) return enqueue(stream, kernel, &range, args, arg_count, flags, note);
  return FAKE_UNLIKELY(flags) ? fake_launch_inject(stream, kernel) : run_now(stream, kernel, &range, values, note);
}
