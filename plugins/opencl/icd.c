/* icd.c: the OpenCL loader, opened at its first use, so that the plugin loads on machines without OpenCL. */
#include <hal/plugin_library.h>

#include "opencl.h"

ocl_icd_t icd;

#define ROW(name) {#name, offsetof(ocl_icd_t, name), 0},
#define LATER_ROW(name) {#name, offsetof(ocl_icd_t, name), 1},
static const hal_library_symbol_t symbols[] = {OCL_CALLS(ROW) OCL_LATER_CALLS(LATER_ROW)};

static hal_library_t library = {
    "opencl",
    {"libOpenCL.so.1", "libOpenCL.so"},
    "install a loader of OpenCL 1.2 or later (Debian: ocl-icd-libopencl1) and the driver of a "
    "device (on a CPU: pocl-opencl-icd)",
    symbols,
    sizeof symbols / sizeof *symbols,
    &icd,
    HAL_LIBRARY_CLOSED};

hal_status_t ocl_icd_open(void) { return hal_library_open(&library); }
