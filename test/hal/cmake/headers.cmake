# Each public header must compile alone, as C11 and as C++17, without a warning. Building this target is the test.
file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/hal/include ${PROJECT_SOURCE_DIR}/hal/include/hal/*.h)
foreach(header ${headers})
  string(MAKE_C_IDENTIFIER ${header} name)
  foreach(extension c cpp)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/headers/${name}.${extension})
    file(CONFIGURE OUTPUT ${source} CONTENT "#include <${header}>\ntypedef int not_an_empty_unit_t;\n")
    list(APPEND header_sources_${extension} ${source})
  endforeach()
endforeach()
foreach(extension c cpp)
  add_library(hal_headers_alone_${extension} OBJECT ${header_sources_${extension}})
  target_include_directories(hal_headers_alone_${extension} PRIVATE ${PROJECT_SOURCE_DIR}/hal/include)
  target_compile_options(hal_headers_alone_${extension} PRIVATE -Wall -Wextra -Wpedantic -Werror)
endforeach()
set_target_properties(hal_headers_alone_cpp PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)

# The same with the other compiler, if it is installed.
find_program(TORCH_BACKEND_CLANG NAMES clang clang-16 clang-15 clang-14)
if(TORCH_BACKEND_CLANG AND NOT CMAKE_C_COMPILER_ID MATCHES Clang)
  add_test(NAME hal_headers_alone_clang COMMAND ${TORCH_BACKEND_CLANG} -std=c11 -Wall -Wextra -Wpedantic -Werror
    -I${PROJECT_SOURCE_DIR}/hal/include -fsyntax-only ${header_sources_c})
endif()
