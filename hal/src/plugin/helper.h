/* helper.h: the commands of the helper program, in its own process (hal/sdk/helper.h, hal/helper/main.c). Private to
 * hal/src; exported only for that program. */
#ifndef HAL_SRC_PLUGIN_HELPER_H_
#define HAL_SRC_PLUGIN_HELPER_H_

#include "hal/api.h"

/* The program's main. Returns its exit status: 0 = done, whatever the plugin returned; 2 = wrong arguments. Since
 * 0.3. */
HAL_API int hal_helper_main(int count, char **words);

#endif /* HAL_SRC_PLUGIN_HELPER_H_ */
