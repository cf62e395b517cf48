/* gemm_device_end.h: undefines the macros of gemm_device.h. */
#undef PK_DEPTH
#undef PK_SIDE
#undef PK_LINE
#undef PK_GEMM_LOCAL
#undef PK_GEMM_LOAD
#undef PK_GEMM_SUMS
#undef PK_GEMM_PUT
