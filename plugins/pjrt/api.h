/* api.h: the part of the PJRT C API that this plugin uses. Names, order and types of the fields are facts of that ABI.
 * A plugin accepts arguments that are longer than those it knows, and rejects shorter ones, so that each struct of
 * arguments ends with zeros for the fields of later versions. */
#ifndef PLUGINS_PJRT_API_H_
#define PLUGINS_PJRT_API_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pjrt_extension_s {
  size_t struct_size;
  int type;
  struct pjrt_extension_s *next;
} pjrt_extension_t;

typedef struct pjrt_error_s pjrt_error_t;
typedef struct pjrt_event_s pjrt_event_t;
typedef struct pjrt_client_s pjrt_client_t;
typedef struct pjrt_device_s pjrt_device_t;
typedef struct pjrt_memory_s pjrt_memory_t;
typedef struct pjrt_description_s pjrt_description_t;
typedef struct pjrt_executable_s pjrt_executable_t;
typedef struct pjrt_loaded_s pjrt_loaded_t;
typedef struct pjrt_buffer_s pjrt_buffer_t;

/* The slots, in the order of the table. */
/* clang-format off */
#define PJRT_SLOTS(X) \
  X(Error_Destroy) X(Error_Message) X(Error_GetCode) X(Plugin_Initialize) X(Plugin_Attributes) X(Event_Destroy) \
  X(Event_IsReady) X(Event_Error) X(Event_Await) X(Event_OnReady) X(Client_Create) X(Client_Destroy) \
  X(Client_PlatformName) X(Client_ProcessIndex) X(Client_PlatformVersion) X(Client_Devices) \
  X(Client_AddressableDevices) X(Client_LookupDevice) X(Client_LookupAddressableDevice) \
  X(Client_AddressableMemories) X(Client_Compile) X(Client_DefaultDeviceAssignment) X(Client_BufferFromHostBuffer) \
  X(DeviceDescription_Id) X(DeviceDescription_ProcessIndex) X(DeviceDescription_Attributes) \
  X(DeviceDescription_Kind) X(DeviceDescription_DebugString) X(DeviceDescription_ToString) X(Device_GetDescription) \
  X(Device_IsAddressable) X(Device_LocalHardwareId) X(Device_AddressableMemories) X(Device_DefaultMemory) \
  X(Device_MemoryStats) X(Memory_Id) X(Memory_Kind) X(Memory_DebugString) X(Memory_ToString) \
  X(Memory_AddressableByDevices) X(Executable_Destroy) X(Executable_Name) X(Executable_NumReplicas) \
  X(Executable_NumPartitions) X(Executable_NumOutputs) X(Executable_SizeOfGeneratedCodeInBytes) \
  X(Executable_GetCostAnalysis) X(Executable_OutputMemoryKinds) X(Executable_OptimizedProgram) \
  X(Executable_Serialize) X(LoadedExecutable_Destroy) X(LoadedExecutable_GetExecutable) \
  X(LoadedExecutable_AddressableDevices) X(LoadedExecutable_Delete) X(LoadedExecutable_IsDeleted) \
  X(LoadedExecutable_Execute) X(Executable_DeserializeAndLoad) X(LoadedExecutable_Fingerprint) X(Buffer_Destroy) \
  X(Buffer_ElementType) X(Buffer_Dimensions) X(Buffer_UnpaddedDimensions) X(Buffer_DynamicDimensionIndices) \
  X(Buffer_GetMemoryLayout) X(Buffer_OnDeviceSizeInBytes) X(Buffer_Device) X(Buffer_Memory) X(Buffer_Delete) \
  X(Buffer_IsDeleted) X(Buffer_CopyToDevice) X(Buffer_ToHostBuffer) X(Buffer_IsOnCpu) X(Buffer_ReadyEvent) \
  X(Buffer_UnsafePointer) X(Buffer_IncreaseExternalReferenceCount) X(Buffer_DecreaseExternalReferenceCount) \
  X(Buffer_OpaqueDeviceMemoryDataPointer) X(CopyToDeviceStream_Destroy) X(CopyToDeviceStream_AddChunk) \
  X(CopyToDeviceStream_TotalBytes) X(CopyToDeviceStream_GranuleSize) X(CopyToDeviceStream_CurrentBytes) \
  X(TopologyDescription_Create) X(TopologyDescription_Destroy) X(TopologyDescription_PlatformName) \
  X(TopologyDescription_PlatformVersion) X(TopologyDescription_GetDeviceDescriptions) \
  X(TopologyDescription_Serialize) X(TopologyDescription_Attributes) X(Compile) X(Executable_OutputElementTypes) \
  X(Executable_OutputDimensions) X(Buffer_CopyToMemory) X(Client_CreateViewOfDeviceBuffer) X(Executable_Fingerprint) \
  X(Client_TopologyDescription) X(Executable_GetCompiledMemoryStats) X(Memory_Kind_Id) X(ExecuteContext_Create) \
  X(ExecuteContext_Destroy) X(Buffer_CopyRawToHost) X(AsyncHostToDeviceTransferManager_Destroy) \
  X(AsyncHostToDeviceTransferManager_TransferData) X(Client_CreateBuffersForAsyncHostToDevice) \
  X(AsyncHostToDeviceTransferManager_RetrieveBuffer) X(AsyncHostToDeviceTransferManager_Device) \
  X(AsyncHostToDeviceTransferManager_BufferCount) X(AsyncHostToDeviceTransferManager_BufferSize) \
  X(AsyncHostToDeviceTransferManager_SetBufferError) X(AsyncHostToDeviceTransferManager_AddMetadata) \
  X(Client_DmaMap) X(Client_DmaUnmap) X(Client_CreateUninitializedBuffer) X(Client_UpdateGlobalProcessInfo) \
  X(TopologyDescription_Deserialize) X(Client_CreateAliasBuffer) X(Client_FulfillAliasBuffer) \
  X(LoadedExecutable_GetDeviceAssignment)
/* clang-format on */

typedef pjrt_error_t *(*pjrt_slot_t)(void *arguments);

typedef struct pjrt_table_s {
  size_t struct_size;
  pjrt_extension_t *extension_start;
  size_t version_struct_size;
  pjrt_extension_t *version_extension_start;
  int major_version, minor_version;
#define PJRT_FIELD(name) pjrt_slot_t name;
  PJRT_SLOTS(PJRT_FIELD)
#undef PJRT_FIELD
} pjrt_table_t;

/* A value with a name: a client's option or an attribute. */
enum { PJRT_STRING = 0, PJRT_INT64 = 1, PJRT_INT64_LIST = 2, PJRT_FLOAT = 3, PJRT_BOOL = 4 };
typedef struct pjrt_named_s {
  size_t struct_size;
  pjrt_extension_t *extension_start;
  const char *name;
  size_t name_size;
  int type; /* PJRT_STRING ... */
  union {
    const char *string_value;
    int64_t int64_value;
    const int64_t *int64_list_value;
    float float_value;
    bool bool_value;
  };
  size_t value_size; /* of a string or list; else 1 */
} pjrt_named_t;

typedef struct pjrt_program_text_s {
  size_t struct_size;
  pjrt_extension_t *extension_start;
  char *code;
  size_t code_size;
  const char *format;
  size_t format_size;
} pjrt_program_text_t;

typedef struct pjrt_execute_options_s {
  size_t struct_size;
  pjrt_extension_t *extension_start;
  void **send_callbacks, **recv_callbacks;
  size_t num_send_ops, num_recv_ops;
  int launch_id;
  const int64_t *non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  void *later[16];
} pjrt_execute_options_t;

/* PJRT_ARGUMENTS(slot, fields): the struct pjrt_<slot>_t. */
#define PJRT_ARGUMENTS(slot, ...)      \
  typedef struct pjrt_##slot##_s {     \
    size_t struct_size;                \
    pjrt_extension_t *extension_start; \
    __VA_ARGS__ void *later[8];        \
  } pjrt_##slot##_t;
PJRT_ARGUMENTS(Error_Destroy, pjrt_error_t *error;)
PJRT_ARGUMENTS(Error_Message, const pjrt_error_t *error; const char *message; size_t message_size;)
PJRT_ARGUMENTS(Error_GetCode, const pjrt_error_t *error; int code;)
PJRT_ARGUMENTS(Plugin_Initialize, )
PJRT_ARGUMENTS(Event_Destroy, pjrt_event_t *event;)
PJRT_ARGUMENTS(Event_IsReady, pjrt_event_t *event; bool is_ready;)
PJRT_ARGUMENTS(Event_Await, pjrt_event_t *event;)
PJRT_ARGUMENTS(Client_Create, const pjrt_named_t *create_options; size_t num_options; void *callbacks[4];
               pjrt_client_t * client;)
PJRT_ARGUMENTS(Client_Destroy, pjrt_client_t *client;)
PJRT_ARGUMENTS(Client_PlatformName, pjrt_client_t *client; const char *platform_name; size_t platform_name_size;)
PJRT_ARGUMENTS(Client_PlatformVersion, pjrt_client_t *client; const char *platform_version;
               size_t platform_version_size;)
PJRT_ARGUMENTS(Client_AddressableDevices, pjrt_client_t *client; pjrt_device_t *const *addressable_devices;
               size_t num_addressable_devices;)
PJRT_ARGUMENTS(Client_Compile, pjrt_client_t *client; const pjrt_program_text_t *program; const char *compile_options;
               size_t compile_options_size; pjrt_loaded_t * executable;)
PJRT_ARGUMENTS(Client_BufferFromHostBuffer, pjrt_client_t *client; const void *data; int type; const int64_t *dims;
               size_t num_dims; const int64_t *byte_strides; size_t num_byte_strides; int host_buffer_semantics;
               pjrt_device_t * device; pjrt_memory_t * memory; void *device_layout;
               pjrt_event_t * done_with_host_buffer; pjrt_buffer_t * buffer;)
PJRT_ARGUMENTS(Device_GetDescription, pjrt_device_t *device; pjrt_description_t * device_description;)
PJRT_ARGUMENTS(DeviceDescription_Id, pjrt_description_t *device_description; int id;)
PJRT_ARGUMENTS(DeviceDescription_Kind, pjrt_description_t *device_description; const char *device_kind;
               size_t device_kind_size;)
PJRT_ARGUMENTS(Executable_Destroy, pjrt_executable_t *executable;)
PJRT_ARGUMENTS(Executable_Serialize, const pjrt_executable_t *executable; const char *serialized_bytes;
               size_t serialized_bytes_size; void *serialized_executable;
               void (*serialized_executable_deleter)(void *);)
PJRT_ARGUMENTS(Executable_DeserializeAndLoad, pjrt_client_t *client; const char *serialized_executable;
               size_t serialized_executable_size; pjrt_loaded_t * loaded_executable;)
PJRT_ARGUMENTS(LoadedExecutable_Destroy, pjrt_loaded_t *executable;)
PJRT_ARGUMENTS(LoadedExecutable_GetExecutable, pjrt_loaded_t *loaded_executable; pjrt_executable_t * executable;)
PJRT_ARGUMENTS(LoadedExecutable_Execute, pjrt_loaded_t *executable; pjrt_execute_options_t * options;
               pjrt_buffer_t *const *const *argument_lists; size_t num_devices; size_t num_args;
               pjrt_buffer_t * *const *output_lists; pjrt_event_t * *device_complete_events;
               pjrt_device_t * execute_device;)
PJRT_ARGUMENTS(Buffer_Destroy, pjrt_buffer_t *buffer;)
PJRT_ARGUMENTS(Buffer_ToHostBuffer, pjrt_buffer_t *src; void *host_layout; void *dst; size_t dst_size;
               pjrt_event_t * event;)
PJRT_ARGUMENTS(Buffer_UnsafePointer, pjrt_buffer_t *buffer; uintptr_t buffer_pointer;)
#undef PJRT_ARGUMENTS

/* Element types. */
enum {
  PJRT_PRED = 1,
  PJRT_S8,
  PJRT_S16,
  PJRT_S32,
  PJRT_S64,
  PJRT_U8,
  PJRT_U16,
  PJRT_U32,
  PJRT_U64,
  PJRT_F16,
  PJRT_F32,
  PJRT_F64,
  PJRT_BF16,
  PJRT_C64,
  PJRT_C128,
  PJRT_F8E5M2,
  PJRT_F8E4M3FN
};

/* host_buffer_semantics */
enum { PJRT_ONLY_DURING_CALL = 0, PJRT_MUTABLE_ZERO_COPY = 3 };

#endif /* PLUGINS_PJRT_API_H_ */
