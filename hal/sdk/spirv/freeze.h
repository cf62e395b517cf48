/* freeze.h: LLVM IR without `freeze` (freeze.c). Private to hal/sdk/spirv. */
#ifndef FREEZE_H_
#define FREEZE_H_

/* Takes `freeze` out of LLVM IR, a text that is changed in place and keeps its length. Returns how many there were; 0 = none, or one that
 * means something: then the text is of no use. */
int hal_thaw(char *ir);

#endif /* FREEZE_H_ */
