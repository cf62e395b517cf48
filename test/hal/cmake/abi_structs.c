/* abi_structs.c: prints the layout of what crosses the plugin ABI by address, and the numbers of its constants: one line per
 * field (offset and size), per struct (size) and per constant. */
#include <hal/plugin.h>
#include <stdio.h>

#define FIELD(type, field) \
  printf("%s.%s at %zu, %zu bytes\n", #type, #field, offsetof(type, field), sizeof(((type *)0)->field));
#define STRUCT(type) printf("%s has %zu bytes\n", #type, sizeof(type));
#define CONSTANT(name) printf("%s is %lld\n", #name, (long long)(name));

#define F1(t, a) FIELD(t, a)
#define F2(t, a, ...) FIELD(t, a) F1(t, __VA_ARGS__)
#define F3(t, a, ...) FIELD(t, a) F2(t, __VA_ARGS__)
#define F4(t, a, ...) FIELD(t, a) F3(t, __VA_ARGS__)
#define F5(t, a, ...) FIELD(t, a) F4(t, __VA_ARGS__)
#define F6(t, a, ...) FIELD(t, a) F5(t, __VA_ARGS__)
#define F7(t, a, ...) FIELD(t, a) F6(t, __VA_ARGS__)
#define F8(t, a, ...) FIELD(t, a) F7(t, __VA_ARGS__)
#define F9(t, a, ...) FIELD(t, a) F8(t, __VA_ARGS__)
#define F10(t, a, ...) FIELD(t, a) F9(t, __VA_ARGS__)
#define F11(t, a, ...) FIELD(t, a) F10(t, __VA_ARGS__)
#define F12(t, a, ...) FIELD(t, a) F11(t, __VA_ARGS__)
#define F13(t, a, ...) FIELD(t, a) F12(t, __VA_ARGS__)
#define F14(t, a, ...) FIELD(t, a) F13(t, __VA_ARGS__)
#define F15(t, a, ...) FIELD(t, a) F14(t, __VA_ARGS__)

#define C1(a) CONSTANT(a)
#define C2(a, ...) CONSTANT(a) C1(__VA_ARGS__)
#define C3(a, ...) CONSTANT(a) C2(__VA_ARGS__)
#define C4(a, ...) CONSTANT(a) C3(__VA_ARGS__)
#define C5(a, ...) CONSTANT(a) C4(__VA_ARGS__)
#define C6(a, ...) CONSTANT(a) C5(__VA_ARGS__)

int main(void) {
  F5(hal_plugin_info_t, struct_size, name, vendor, version, flags)
  F15(hal_device_info_t, struct_size, name, dialects, uuid, flags, total_memory, compute_units, subgroup_size,
      max_block_threads, max_shared_bytes, pci_domain, pci_bus, pci_device, base_alignment, virtual_granularity)
  F5(hal_pointer_info_t, struct_size, base, size, device, kind)
  F6(hal_module_desc_t, struct_size, dialect, options, data, size, abandoned)
  F3(hal_arg_t, value, size, kind)
  F9(hal_launch_t, struct_size, grid, block, shared_bytes, arg_count, args, attributes, attribute_count, reserved)
  F5(hal_launch_attribute_t, kind, required, x, y, z)
  F8(hal_kernel_info_t, struct_size, max_block_threads, subgroup_size, registers, shared_bytes, local_bytes, max_shared,
     blocks_per_unit)
  F7(hal_stream_error_t, struct_size, status, reserved, native_code, op, kernel, message)
  F3(hal_memory_handle_t, kind, file, bytes)
  F8(hal_tensor_t, struct_size, data, sizes, strides, ndim, dtype, device, flags)
  F3(hal_value_t, tag, count, u)
  F12(hal_op_call_t, struct_size, stream, device, arg_count, result_count, flags, args, results, seed, offset,
      random_state, host)
  F9(hal_op_own_t, struct_size, fn, state, dtypes, layouts, argument_count, flags, reserved, query)
  F12(hal_random_t, struct_size, dst, count, seed, offset, device, dtype, distribution, reserved, p0, p1, random_state)
  F9(hal_profile_record_t, struct_size, name, start_ns, end_ns, correlation, bytes, stream, kind, direction)
  F9(hal_host_api_t, struct_size, major, minor, error_set, log, mem_alloc, mem_free, profile_correlation, scratch_alloc)
  F6(hal_plugin_api_t, struct_size, major, minor, provided, provided_words, build_flags)
  STRUCT(hal_ipc_handle_t)
  STRUCT(hal_arg_t)
  STRUCT(hal_value_t)
  STRUCT(hal_tensor_t)
  C6(HAL_OK, HAL_UNKNOWN, HAL_INVALID_ARGUMENT, HAL_NOT_FOUND, HAL_RESOURCE_EXHAUSTED, HAL_FAILED_PRECONDITION)
  C6(HAL_ABORTED, HAL_OUT_OF_RANGE, HAL_UNIMPLEMENTED, HAL_INTERNAL, HAL_UNAVAILABLE, HAL_DATA_LOSS)
  C3(HAL_NOT_READY, HAL_INCOMPATIBLE, HAL_HOST)
  C6(HAL_DEVICE_HOST_VISIBLE, HAL_DEVICE_UNIFIED, HAL_DEVICE_ASYNC, HAL_DEVICE_FP64, HAL_DEVICE_POOLED, HAL_DEVICE_CPU)
  C4(HAL_EVENT_TIMING, HAL_EVENT_BLOCKING, HAL_EVENT_INTERPROCESS, HAL_PLUGIN_ON_REQUEST)
  C6(HAL_UINT8, HAL_INT8, HAL_INT16, HAL_INT32, HAL_INT64, HAL_FLOAT16)
  C6(HAL_FLOAT32, HAL_FLOAT64, HAL_COMPLEX32, HAL_COMPLEX64, HAL_COMPLEX128, HAL_BOOL)
  C6(HAL_BFLOAT16, HAL_FLOAT8_E5M2, HAL_FLOAT8_E4M3FN, HAL_UINT16, HAL_UINT32, HAL_UINT64)
  C3(HAL_ARG_VALUE, HAL_ARG_POINTER, HAL_ARG_LOCAL)
  C6(HAL_VALUE_NONE, HAL_VALUE_BOOL, HAL_VALUE_INT, HAL_VALUE_DOUBLE, HAL_VALUE_STRING, HAL_VALUE_TENSOR)
  C5(HAL_VALUE_TENSOR_LIST, HAL_VALUE_INT_LIST, HAL_VALUE_DOUBLE_LIST, HAL_VALUE_DTYPE, HAL_VALUE_COMPLEX)
  C5(HAL_CALL_DENSE, HAL_RANDOM_UNIFORM, HAL_RANDOM_NORMAL, HAL_RANDOM_BERNOULLI, HAL_RANDOM_BITS)
  C4(HAL_LOG_ERROR, HAL_LOG_WARNING, HAL_LOG_INFO, HAL_LOG_DEBUG)
  C3(HAL_BUILD_DEBUG, HAL_BUILD_ASAN, HAL_BUILD_TSAN)
  STRUCT(hal_launch_attribute_t)
  STRUCT(hal_memory_handle_t)
  C1(HAL_DEVICE_RAW_POINTERS)
  C6(HAL_FLOAT8_E5M2FNUZ, HAL_FLOAT8_E4M3FNUZ, HAL_UINT4, HAL_INT4, HAL_FLOAT8_E8M0FNU, HAL_FLOAT4_E2M1FN_X2)
  C5(HAL_VALUE_BOOL_LIST, HAL_VALUE_SCALAR_LIST, HAL_VALUE_DEVICE, HAL_VALUE_LAYOUT, HAL_VALUE_MEMORY_FORMAT)
  C4(HAL_LAYOUT_STRIDED, HAL_LAYOUT_SPARSE, HAL_LAYOUT_SPARSE_CSR, HAL_LAYOUT_SPARSE_CSC)
  C3(HAL_LAYOUT_SPARSE_BSR, HAL_LAYOUT_SPARSE_BSC, HAL_LAYOUT_JAGGED)
  C4(HAL_FORMAT_CONTIGUOUS, HAL_FORMAT_PRESERVE, HAL_FORMAT_CHANNELS_LAST, HAL_FORMAT_CHANNELS_LAST_3D)
  C4(HAL_TAKES_CONTIGUOUS, HAL_TAKES_CHANNELS_LAST, HAL_TAKES_STRIDED, HAL_TAKES_ALL)
  C3(HAL_OP_CAPTURABLE, HAL_OP_RANDOM_STATE, HAL_OP_NEVER_DECLINES)
  C5(HAL_LAUNCH_CLUSTER, HAL_LAUNCH_COOPERATIVE, HAL_LAUNCH_PRIORITY, HAL_LAUNCH_CARVEOUT, HAL_LAUNCH_OVERLAP)
  C6(HAL_HANDLE_NONE, HAL_HANDLE_FILE, HAL_HANDLE_FABRIC, HAL_ACCESS_NONE, HAL_ACCESS_READ, HAL_ACCESS_READ_WRITE)
  C6(HAL_CAPTURE_GLOBAL, HAL_CAPTURE_THREAD, HAL_CAPTURE_RELAXED, HAL_CAPTURE_NONE, HAL_CAPTURE_ACTIVE,
     HAL_CAPTURE_INVALID)
  F6(hal_ir_use_t, tensor, buffer, value, offset, whole, before)
  F9(hal_ir_node_t, struct_size, op, read_count, write_count, reserved, name, call, reads, writes)
  F5(hal_ir_buffer_t, size, first_value, last_value, flags, reserved)
  F7(hal_ir_t, struct_size, node_count, buffer_count, value_count, reserved, nodes, buffers)
  F5(hal_ir_run_t, struct_size, stream, buffers, calls, plugin_stream)
  F10(hal_compiler_t, struct_size, flags, reserved, name, state, accepts, compile, execute, text, destroy)
  STRUCT(hal_ir_use_t)
  STRUCT(hal_ir_buffer_t)
  C3(HAL_IR_INPUT, HAL_IR_OUTPUT, HAL_COMPILER_FIXED_NUMBERS)
  F3(hal_device_process_t, struct_size, pid, memory_used)
  C5(HAL_SENSOR_MEMORY_USED, HAL_SENSOR_UTILIZATION, HAL_SENSOR_MEMORY_UTILIZATION, HAL_SENSOR_TEMPERATURE,
     HAL_SENSOR_POWER)
  C5(HAL_SENSOR_POWER_LIMIT, HAL_SENSOR_ENERGY, HAL_SENSOR_CLOCK, HAL_SENSOR_MEMORY_CLOCK, HAL_SENSOR_FAN)
  return 0;
}
