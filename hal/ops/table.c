/* table.c: all operators of codegen/operators with their launchers, for the lower component op. */
#include "hal_op_ids.h"
#include "hal_op_variants.h"
#include "op/internal.h"

#include "hal_op_table.inc"
