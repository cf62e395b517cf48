# torch_backend_add_ops(NAME <name> YAML <file> [SOURCES <source>...] [ONE_TORCH]): builds a library of custom operators
# as the Python module <name> in the build folder (or in DIRECTORY): <name>/__init__.py and <name>/lib<name>.so. The
# target is <name>.
#
# The library runs with every supported version of torch. With ONE_TORCH, or if LibTorch's stable ABI does not support
# an argument (a message names it), it is for the torch that it is built with, and its gradients are C++.
#
# The list in YAML is explained in docs/custom-operators.md; SOURCES define the C functions that it names.

function(torch_backend_add_ops)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "ONE_TORCH" "NAME;YAML;DIRECTORY" "SOURCES")
  foreach(needed NAME YAML)
    if(NOT ARG_${needed})
      message(FATAL_ERROR "torch_backend_add_ops: ${needed} is missing.")
    endif()
  endforeach()
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "torch_backend_add_ops(${ARG_NAME}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}.")
  endif()
  find_package(Python 3.9 REQUIRED COMPONENTS Interpreter) # with torch, whose torchgen reads the schemas
  get_filename_component(yaml ${ARG_YAML} ABSOLUTE)
  get_filename_component(directory "${ARG_DIRECTORY}" ABSOLUTE BASE_DIR ${CMAKE_CURRENT_BINARY_DIR})
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated/${ARG_NAME})
  file(GLOB generator ${TORCH_BACKEND_CODEGEN_DIR}/*.py ${TORCH_BACKEND_CODEGEN_DIR}/autograd/templates/*.in)

  # Also run at configure time, so that a mistake in the list is reported before the build.
  set(command ${CMAKE_COMMAND} -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 ${Python_EXECUTABLE} ${TORCH_BACKEND_CODEGEN_DIR}/custom.py
    --ops ${yaml} --name ${ARG_NAME} --out ${generated})
  if(ARG_ONE_TORCH)
    list(APPEND command --one-torch)
  endif()
  execute_process(COMMAND ${command} RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE error
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(FATAL_ERROR "${error}")
  endif()
  if(said)
    message(NOTICE "${said}")
  endif()
  file(READ ${generated}/${ARG_NAME}_abi abi)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${yaml} ${generator})

  add_library(${ARG_NAME} MODULE ${ARG_SOURCES} ${generated}/${ARG_NAME}_library.cpp ${generated}/${ARG_NAME}_kernels.c)
  set_target_properties(${ARG_NAME} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${directory}/${ARG_NAME} PREFIX lib
    C_STANDARD 11 C_STANDARD_REQUIRED ON CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${ARG_NAME} PRIVATE ${generated} ${TORCH_BACKEND_KERNELS_DIR})
  if(abi STREQUAL "stable")
    target_link_libraries(${ARG_NAME} PRIVATE torch_backend::stable)
    set_target_properties(${ARG_NAME} PROPERTIES SKIP_BUILD_RPATH ON) # torch and torch_backend are loaded before it
  else()
    target_link_libraries(${ARG_NAME} PRIVATE torch_backend::torch_backend)
  endif()
  # Compiled as the package's own kernels: vectorized, with equal bits on every instruction set.
  set_source_files_properties(${generated}/${ARG_NAME}_kernels.c PROPERTIES COMPILE_OPTIONS
    "-O3;-fno-math-errno;-fno-trapping-math;-ffp-contract=off")
  add_custom_command(TARGET ${ARG_NAME} POST_BUILD VERBATIM COMMAND ${CMAKE_COMMAND} -E copy_if_different
    ${generated}/${ARG_NAME}/__init__.py ${directory}/${ARG_NAME}/__init__.py)
endfunction()
