# Sanitizers apply to every target of the build, so that all objects are instrumented.
if(TORCH_BACKEND_SANITIZE)
  add_compile_options(-fsanitize=${TORCH_BACKEND_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${TORCH_BACKEND_SANITIZE})
endif()
# Developer builds abort if the HAL calls a function of the application while it holds a lock (hal/src/base/callback.h).
if(TORCH_BACKEND_SANITIZE OR CMAKE_BUILD_TYPE MATCHES "Debug|RelWithDebInfo")
  add_compile_definitions(HAL_CHECK_CALLBACKS)
endif()
