/* hal.h: the whole public API of the hardware abstraction layer, for programs that embed it.
 *
 *   #include <hal/hal.h>
 *   int main(void) {
 *     hal_block_t *block = NULL;
 *     hal_status_t status = hal_registry_open("fake");
 *     if (!status) status = hal_memory_allocate(0, NULL, 1024, &block);
 *     if (status) fprintf(stderr, "%s\n", hal_error_message());
 *     hal_memory_release(block);
 *     return status != HAL_OK;
 *   }
 *
 * Devices are numbered over all active plugins, 0 .. hal_device_count() - 1. A NULL `hal_stream_t *` means the calling
 * thread's current stream of the device. Every function may be called from any thread unless stated otherwise. Every
 * function that returns hal_status_t stores a message for the calling thread if it fails (hal_error_message). */
#ifndef HAL_HAL_H_
#define HAL_HAL_H_

#include "hal/comm.h"
#include "hal/compiler.h"
#include "hal/device.h"
#include "hal/event.h"
#include "hal/generator.h"
#include "hal/host_memory.h"
#include "hal/kernel.h"
#include "hal/lazy.h"
#include "hal/log.h"
#include "hal/memory.h"
#include "hal/op.h"
#include "hal/plugin.h"
#include "hal/profile.h"
#include "hal/program.h"
#include "hal/registry.h"
#include "hal/sensor.h"
#include "hal/status.h"
#include "hal/stream.h"

#endif /* HAL_HAL_H_ */
