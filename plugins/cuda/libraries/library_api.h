/* library_api.h: common declarations of NVIDIA's libraries of operators; as driver_api.h, compared with the real
 * headers. */
#ifndef LIBRARY_API_H_
#define LIBRARY_API_H_

#include "driver_api.h"

/* The parts of a library's version. */
#define LIBRARY_PROPERTIES(X) X(MAJOR_VERSION, 0) X(MINOR_VERSION, 1) X(PATCH_LEVEL, 2)

#ifndef __LIBRARY_TYPES_H__ /* library_types.h, which the vendor's headers have */
#define LIBRARY_ENUMERATOR(name, number) name = number,
typedef enum { LIBRARY_PROPERTIES(LIBRARY_ENUMERATOR) } libraryPropertyType;
#endif

#endif /* LIBRARY_API_H_ */
