# Sanitizers apply to every target of the build, so that no object is left uninstrumented.
if(TORCH_BACKEND_SANITIZE)
  add_compile_options(-fsanitize=${TORCH_BACKEND_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${TORCH_BACKEND_SANITIZE})
endif()
