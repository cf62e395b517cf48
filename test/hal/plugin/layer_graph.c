/* layer_graph.c: tests of the validate layer for virtual memory, graphs, and the descriptions of modules and
   streams. */
#include "layer_testing.h"

Test(layer_graph, right_use_of_graphs_is_not_remarked) {
  hal_plugin_graph_t *graph = NULL;
  hal_plugin_graph_exec_t *exec = NULL;
  uint32_t status = 9;
  uint64_t id = 9;
  make_all();
  assert_ok(hal_call_capture_status(plugin, stream, &status, &id));
  cr_assert(status == HAL_CAPTURE_NONE && id == 0);
  assert_ok(hal_call_capture_begin(plugin, stream, HAL_CAPTURE_RELAXED, 3));
  assert_ok(hal_call_capture_status(plugin, stream, &status, &id));
  cr_assert(status == HAL_CAPTURE_ACTIVE && id != 0);
  assert_ok(hal_call_capture_end(plugin, stream, &graph));
  assert_ok(hal_call_graph_instantiate(plugin, graph, &exec));
  assert_ok(hal_call_graph_update(plugin, exec, graph));
  assert_ok(hal_call_graph_destroy(plugin, graph));
  assert_ok(hal_call_graph_launch(plugin, exec, stream)); /* the executable graph outlives its recording */
  assert_ok(hal_call_graph_exec_destroy(plugin, exec));
  cr_assert_str_empty(lines);
}

Test(layer_graph, right_use_of_virtual_memory_is_not_remarked) {
  hal_plugin_physical_t *physical = NULL, *imported = NULL;
  hal_memory_handle_t handle;
  void *reserved = NULL;
  make_all();
  assert_ok(hal_call_virtual_reserve(plugin, 0, 4096, &reserved));
  assert_ok(hal_call_virtual_create(plugin, 0, 4096, HAL_HANDLE_FILE, &physical));
  assert_ok(hal_call_virtual_map(plugin, 0, reserved, 4096, physical));
  assert_ok(hal_call_virtual_access(plugin, 0, reserved, 4096, 1, HAL_ACCESS_READ));
  assert_ok(hal_call_memory_copy(plugin, NULL, reserved, 0, memory, 0, 4096));
  assert_ok(hal_call_virtual_export(plugin, 0, physical, HAL_HANDLE_FILE, &handle));
  assert_ok(hal_call_virtual_import(plugin, 0, &handle, 4096, &imported));
  assert_ok(hal_call_virtual_unmap(plugin, 0, reserved, 4096));
  assert_ok(hal_call_virtual_release(plugin, 0, imported));
  assert_ok(hal_call_virtual_release(plugin, 0, physical));
  assert_ok(hal_call_virtual_unreserve(plugin, 0, reserved, 4096));
  cr_assert_str_empty(lines);
}

Test(layer_graph, right_use_of_descriptions_is_not_remarked) {
  hal_kernel_info_t info = {.struct_size = sizeof info};
  hal_stream_error_t error = {.struct_size = sizeof error};
  const hal_launch_attribute_t cooperative = {.kind = HAL_LAUNCH_COOPERATIVE, .x = 1};
  hal_launch_t launch;
  char code[8];
  size_t size = 0;
  make_all();
  launch = launch_of(NULL, 0);
  launch.struct_size = sizeof launch;
  launch.attributes = &cooperative;
  launch.attribute_count = 1;
  assert_ok(hal_call_kernel_launch(plugin, kernel, stream, &launch));
  assert_ok(hal_call_kernel_info(plugin, kernel, 256, 0, &info));
  cr_assert_eq(info.blocks_per_unit, 8);
  assert_ok(hal_call_module_export(plugin, module, NULL, 0, &size));
  cr_assert_eq(size, 4);
  assert_ok(hal_call_module_export(plugin, module, code, sizeof code, &size));
  assert_ok(hal_call_stream_error(plugin, stream, &error));
  cr_assert_eq(error.status, HAL_DATA_LOSS);
  cr_assert_str_empty(lines);
}

Test(layer_graph, wrong_descriptions_are_misuse) {
  hal_kernel_info_t info = {.struct_size = sizeof info};
  hal_plugin_physical_t *physical = NULL;
  hal_memory_handle_t handle;
  hal_launch_t launch;
  size_t size = 0;
  make_all();
  launch = launch_of(NULL, 0);
  launch.struct_size = sizeof launch;
  launch.attribute_count = 1;
  assert_misuse(hal_call_kernel_launch(plugin, kernel, stream, &launch), "kernel_launch",
                "attribute_count is 1 and attributes is NULL");
  assert_misuse(hal_call_kernel_info(plugin, kernel, 0, 0, &info), "kernel_info", "block_threads is 0");
  assert_misuse(hal_call_module_export(plugin, module, NULL, 8, &size), "module_export", "data is NULL for 8 bytes");
  assert_misuse(hal_call_virtual_access(plugin, 0, memory, 4096, 1, 7), "virtual_access", "access is 7");
  assert_ok(hal_call_virtual_create(plugin, 0, 4096, 0, &physical));
  assert_misuse(hal_call_virtual_export(plugin, 0, physical, 3, &handle), "virtual_export", "kind is 3");
  assert_misuse(hal_call_capture_begin(plugin, stream, 5, 0), "capture_begin", "mode is 5");
}

Test(layer_graph, unknown_flags_and_handles_without_bytes_are_misuse) {
  hal_stream_desc_t desc = HAL_STREAM_DESC(0);
  hal_plugin_stream_t *made = NULL;
  hal_plugin_event_t *event = NULL;
  void *ptr = NULL;
  make_all();
  assert_misuse(hal_call_memory_alloc(plugin, 0, 64, 4, &ptr), "memory_alloc",
                "unknown bits 0x4; this version defines 0x0");
  assert_misuse(hal_call_host_alloc(plugin, 0, 64, 1, &ptr), "host_alloc", "unknown bits 0x1");
  assert_misuse(hal_call_event_create(plugin, 0, 12, &event), "event_create",
                "unknown bits 0x8; this version defines 0x7");
  desc.flags = 2;
  assert_misuse(hal_call_stream_create(plugin, 0, &desc, &made), "stream_create", "desc->flags is 0x2");
  desc.flags = 0, desc.engine = 3;
  assert_misuse(hal_call_stream_create(plugin, 0, &desc, &made), "stream_create", "desc->engine is 3");
  desc.engine = 0, desc.struct_size = 16;
  assert_misuse(hal_call_stream_create(plugin, 0, &desc, &made), "stream_create", "struct_size is 16");
  assert_misuse(hal_call_ipc_open(plugin, 0, "handle", 0, 0, &ptr), "ipc_open", "a handle of 0 bytes");
}

/* An error of the plugin. */
#define assert_fault(mistake, call, op, text) \
  do {                                        \
    setenv("ROGUE", mistake, 1);              \
    lines[0] = '\0';                          \
    cr_assert_eq(call, HAL_INTERNAL);         \
    assert_found(op, text);                   \
    unsetenv("ROGUE");                        \
  } while (0)

Test(layer_graph, invalid_results_are_errors_of_the_plugin) {
  hal_plugin_physical_t *physical = NULL;
  hal_stream_error_t error = {.struct_size = sizeof error};
  hal_memory_handle_t handle;
  uint32_t status;
  uint64_t id;
  size_t size = 0;
  make_all();
  assert_ok(hal_call_virtual_create(plugin, 0, 4096, HAL_HANDLE_FILE, &physical));
  assert_ok(hal_call_capture_begin(plugin, stream, HAL_CAPTURE_GLOBAL, 0));
  assert_fault("capture_answer", hal_call_capture_status(plugin, stream, &status, &id), "capture_status", "state 9");
  assert_fault("forgets_capture", hal_call_capture_status(plugin, stream, &status, &id), "capture_status",
               "does not report the capture");
  assert_fault("another_handle", hal_call_virtual_export(plugin, 0, physical, HAL_HANDLE_FILE, &handle),
               "virtual_export", "a handle of kind 0 for the requested kind 1");
  assert_fault("empty_module", hal_call_module_export(plugin, module, NULL, 0, &size), "module_export", "0 bytes");
  assert_fault("error_is_ok", hal_call_stream_error(plugin, stream, &error), "stream_error", "with status OK");
  assert_fault("error_without_end", hal_call_stream_error(plugin, stream, &error), "stream_error", "has no NUL");
}

Test(layer_graph, a_stream_whose_capture_became_invalid_runs_its_work) {
  hal_plugin_graph_t *graph = NULL;
  make_all();
  assert_ok(hal_call_capture_begin(plugin, stream, HAL_CAPTURE_GLOBAL, 0));
  setenv("ROGUE", "invalid_capture", 1);
  assert_fails(hal_call_capture_end(plugin, stream, &graph), HAL_ABORTED, "became invalid");
  assert_misuse(hal_call_capture_end(plugin, stream, &graph), "capture_end", "is not being captured");
  unsetenv("ROGUE");
  assert_ok(hal_call_capture_begin(plugin, stream, HAL_CAPTURE_GLOBAL, 0));
}

Test(layer_graph, unbalanced_captures_and_mappings_are_misuse) {
  hal_plugin_graph_t *graph = NULL;
  hal_plugin_physical_t *physical = NULL;
  void *reserved = NULL;
  make_all();
  assert_misuse(hal_call_capture_end(plugin, stream, &graph), "capture_end", "is not being captured");
  assert_ok(hal_call_capture_begin(plugin, stream, HAL_CAPTURE_GLOBAL, 0));
  assert_misuse(hal_call_capture_begin(plugin, stream, HAL_CAPTURE_GLOBAL, 0), "capture_begin",
                "is being captured already");
  assert_misuse(hal_call_stream_destroy(plugin, stream), "stream_destroy", "is being captured");
  assert_ok(hal_call_virtual_reserve(plugin, 0, 4096, &reserved));
  assert_ok(hal_call_virtual_create(plugin, 0, 4096, 0, &physical));
  assert_ok(hal_call_virtual_map(plugin, 0, reserved, 4096, physical));
  assert_misuse(hal_call_virtual_map(plugin, 0, reserved, 4096, physical), "virtual_map", "is mapped already");
  assert_misuse(hal_call_virtual_release(plugin, 0, physical), "virtual_release", "is still mapped");
  assert_misuse(hal_call_virtual_unreserve(plugin, 0, reserved, 4096), "virtual_unreserve", "is still mapped");
}
