// torch_backend.h: the whole C++ API.
#pragma once

#include <torch_backend/version.h>  // IWYU pragma: export

#include "allocator.h"     // IWYU pragma: export
#include "device.h"        // IWYU pragma: export
#include "event.h"         // IWYU pragma: export
#include "generator.h"     // IWYU pragma: export
#include "guard.h"         // IWYU pragma: export
#include "lazy_backend.h"  // IWYU pragma: export
#include "package.h"       // IWYU pragma: export
#include "stream.h"        // IWYU pragma: export
