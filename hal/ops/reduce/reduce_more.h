/* reduce_more.h: the stages after the first of reduce.pk and reduce_pair.pk, which reduce accumulators. PK_PAIRED is
 * 0. */
#define PK_STAGE(v) PK_NAME(PK_CAT(v, _more))
#define PK_S PK_A
#define PK_FIRST 0
#define PK_TAKE(x, y, z) (x)
#include "reduce_stage.h"
#undef PK_STAGE
#undef PK_S
#undef PK_TAKE
#undef PK_FIRST
