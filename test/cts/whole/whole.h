/* whole.h: shared by the files of the whole plugin. It opens a good plugin, HAL_WHOLE_OF, whose device is the host's
 * CPU and whose memory the host can access, and adds in plain C functions that no plugin of this repository has yet:
 * memory and events of other processes, registered host memory, its own operators. The conformance suite's cases for
 * these run on it. */
#ifndef TEST_CTS_WHOLE_H_
#define TEST_CTS_WHOLE_H_

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hal/plugin.h"

typedef hal_plugin_stream_t stream_t;
typedef hal_plugin_event_t event_t;

extern hal_plugin_api_t whole_good; /* the good plugin's table */
hal_status_t whole_refuse(hal_status_t status, const char *why);

#define HAL_OP(since, kind, group, need, name, params, args) hal_status_t whole_##name params;
#include "hal/plugin_ops.def"
#undef HAL_OP

#endif /* TEST_CTS_WHOLE_H_ */
