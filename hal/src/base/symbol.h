/* symbol.h: names of functions by the symbol table of an ELF file, which has the static ones, too. Private to hal/src.
 */
#ifndef HAL_SRC_SYMBOL_H_
#define HAL_SRC_SYMBOL_H_

#include <stddef.h>
#include <stdint.h>

/* Writes the name of the function that contains an address, given relative to the file's first loaded byte. Returns
 * whether it was found. Reads the file each time: for reports only. */
int hal_symbol_name(const char *path, uintptr_t offset, char *name, size_t size);

#endif /* HAL_SRC_SYMBOL_H_ */
