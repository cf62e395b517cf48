# Sanitizers apply to every target of the build, so that no object is left uninstrumented.
if(TORCH_BACKEND_SANITIZE)
  add_compile_options(-fsanitize=${TORCH_BACKEND_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${TORCH_BACKEND_SANITIZE})
endif()
# Builds for developers abort where a function of the application is called under a lock of the HAL (hal/src/base/callback.h).
if(TORCH_BACKEND_SANITIZE OR CMAKE_BUILD_TYPE MATCHES "Debug|RelWithDebInfo")
  add_compile_definitions(HAL_CHECK_CALLBACKS)
endif()
