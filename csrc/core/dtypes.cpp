// dtypes.cpp: checks that the HAL's dtype numbers are those of c10, and defines the dtypes reported for a device.
#include "core/dtypes.h"

#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include "core/status.h"

namespace torch_backend {
namespace {

// torch name of a dtype, the HAL's name; DeviceCapability has one bit for each of torch's.
#define TORCH_BACKEND_FORALL_DTYPES(_) \
  _(Byte, HAL_UINT8)                   \
  _(Char, HAL_INT8)                    \
  _(Short, HAL_INT16)                  \
  _(Int, HAL_INT32)                    \
  _(Long, HAL_INT64)                   \
  _(Half, HAL_FLOAT16)                 \
  _(Float, HAL_FLOAT32)                \
  _(Double, HAL_FLOAT64)               \
  _(ComplexHalf, HAL_COMPLEX32)        \
  _(ComplexFloat, HAL_COMPLEX64)       \
  _(ComplexDouble, HAL_COMPLEX128)     \
  _(Bool, HAL_BOOL)                    \
  _(BFloat16, HAL_BFLOAT16)            \
  _(Float8_e5m2, HAL_FLOAT8_E5M2)      \
  _(Float8_e4m3fn, HAL_FLOAT8_E4M3FN)  \
  _(UInt16, HAL_UINT16)                \
  _(UInt32, HAL_UINT32)                \
  _(UInt64, HAL_UINT64)

#define CHECK_NUMBER(torch_name, hal_name) \
  static_assert(static_cast<int>(c10::ScalarType::torch_name) == hal_name, "dtype numbers of the HAL are c10's");
TORCH_BACKEND_FORALL_DTYPES(CHECK_NUMBER)
CHECK_NUMBER(Float8_e5m2fnuz, HAL_FLOAT8_E5M2FNUZ)
CHECK_NUMBER(Float8_e4m3fnuz, HAL_FLOAT8_E4M3FNUZ)
CHECK_NUMBER(UInt4, HAL_UINT4)
CHECK_NUMBER(Int4, HAL_INT4)
CHECK_NUMBER(Float8_e8m0fnu, HAL_FLOAT8_E8M0FNU)
CHECK_NUMBER(Float4_e2m1fn_x2, HAL_FLOAT4_E2M1FN_X2)
#undef CHECK_NUMBER

#define CHECK_NUMBER(enumeration, torch_name, hal_name) \
  static_assert(static_cast<int>(c10::enumeration::torch_name) == hal_name, "these numbers of the HAL are c10's");
CHECK_NUMBER(Layout, Strided, HAL_LAYOUT_STRIDED)
CHECK_NUMBER(Layout, Sparse, HAL_LAYOUT_SPARSE)
CHECK_NUMBER(Layout, SparseCsr, HAL_LAYOUT_SPARSE_CSR)
CHECK_NUMBER(Layout, SparseCsc, HAL_LAYOUT_SPARSE_CSC)
CHECK_NUMBER(Layout, SparseBsr, HAL_LAYOUT_SPARSE_BSR)
CHECK_NUMBER(Layout, SparseBsc, HAL_LAYOUT_SPARSE_BSC)
CHECK_NUMBER(Layout, Jagged, HAL_LAYOUT_JAGGED)
CHECK_NUMBER(MemoryFormat, Contiguous, HAL_FORMAT_CONTIGUOUS)
CHECK_NUMBER(MemoryFormat, Preserve, HAL_FORMAT_PRESERVE)
CHECK_NUMBER(MemoryFormat, ChannelsLast, HAL_FORMAT_CHANNELS_LAST)
CHECK_NUMBER(MemoryFormat, ChannelsLast3d, HAL_FORMAT_CHANNELS_LAST_3D)
#undef CHECK_NUMBER

}  // namespace

c10::DeviceCapability capability(int32_t device) {
  hal_device_info_t info{};
  info.struct_size = HAL_STRUCT_SIZE(hal_device_info_t, flags);
  check(hal_device_info(device, &info));
  c10::DeviceCapability result;
  result.capability_data.capability_bits = 0;  // c10's default reports every dtype, also bits and quantized ones
#define SET_BIT(torch_name, hal_name) result.capability_data.supported_scalar_types.has_##torch_name = 1;
  TORCH_BACKEND_FORALL_DTYPES(SET_BIT)
#undef SET_BIT
  if ((info.flags & HAL_DEVICE_FP64) == 0) {
    result.capability_data.supported_scalar_types.has_Double = 0;
    result.capability_data.supported_scalar_types.has_ComplexDouble = 0;
  }
  return result;
}

}  // namespace torch_backend
