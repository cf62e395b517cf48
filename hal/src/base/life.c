/* life.c: see life.h. */
#include "base/life.h"

hal_life_t hal_life;
