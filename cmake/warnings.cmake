# The warnings of this project's C code: every target of hal/ and plugins/ links this.
add_library(torch_backend_warnings INTERFACE)
target_compile_options(torch_backend_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Werror -Wmissing-prototypes -Wstrict-prototypes>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall>
  $<$<COMPILE_LANG_AND_ID:C,Clang>:-Wno-pass-failed>) # a loop that is not vectorized is no error
