# Most of the compile time here is spent on torch's headers and their templates. So torch's headers are compiled once
# (precompiled.h), and the files of some folders are one unit, of 10 to 20 seconds. To compile only the file that was
# edited, build with -DTORCH_BACKEND_UNITY=OFF (SKBUILD_CMAKE_DEFINE=TORCH_BACKEND_UNITY=OFF make install).
option(TORCH_BACKEND_UNITY "Compile the files of some folders of csrc/ as one unit: the quickest whole build" ON)

target_precompile_headers(torch_backend PRIVATE precompiled.h)
if(TORCH_BACKEND_UNITY)
  set_target_properties(torch_backend PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(source IN LISTS CORE_SOURCES ATEN_SOURCES)
    file(RELATIVE_PATH group ${CMAKE_CURRENT_SOURCE_DIR} ${source})
    get_filename_component(group ${group} DIRECTORY)
    string(REGEX REPLACE "^core.*" "core" group ${group})
    string(REGEX REPLACE "^(api|amp|lazy).*" "api" group ${group})
    string(REGEX REPLACE "^aten/(index|sort|reduce|sequence)$" "indices" group ${group})
    string(REGEX REPLACE "^aten/(pointwise|losses|norm|optimizers|random)$" "numbers" group ${group})
    string(REGEX REPLACE "^aten/(attention|recurrent|nested)$" "layers" group ${group})
    string(REGEX REPLACE "^aten/(prepare|fallback|sparse|storage|copy)$" "ground" group ${group})
    string(REPLACE "/" "_" group ${group})
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(torch_backend PRIVATE -fpch-preprocess)  # required by compiler caches
endif()

# Boxing is for calls that took microseconds already, so it is optimized less. Unboxed calls are jumps.
file(GLOB SIGNATURE_SOURCES ${GENERATED_DIR}/Signatures_*.cpp)
set_source_files_properties(${SIGNATURE_SOURCES} PROPERTIES COMPILE_OPTIONS "-O1;-foptimize-sibling-calls")
