/* freeze.h: LLVM IR without `freeze` (freeze.c). Private to hal/sdk/spirv. */
#ifndef FREEZE_H_
#define FREEZE_H_

/* Removes `freeze` from LLVM IR, a text that is changed in place and keeps its length. Returns how many there were; 0 =
 * none, or one with an effect: then the text cannot be used. */
int hal_thaw(char *ir);

#endif /* FREEZE_H_ */
