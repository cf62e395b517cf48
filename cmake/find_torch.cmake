# Finds the torch that is installed in ${Python_EXECUTABLE}, without running it and without find_package(Torch), which
# requires CUDA, Kineto and more. Defines the targets torch_backend_libtorch (C++) and torch_backend_libtorch_python
# (bindings), and the variables TORCH_BACKEND_TORCH_DIR, TORCH_BACKEND_TORCH_VERSION and TORCH_BACKEND_TORCH_MINOR.

# The supported versions are those of the Python package.
file(STRINGS ${PROJECT_SOURCE_DIR}/pyproject.toml torch_window REGEX "^dependencies = ")
if(NOT torch_window MATCHES "torch(>=([0-9.]+),<([0-9.]+))\"")
  message(FATAL_ERROR "pyproject.toml: expected `torch>=OLDEST,<NEWER` in dependencies, found ${torch_window}")
endif()
set(torch_window ${CMAKE_MATCH_1})
set(torch_oldest ${CMAKE_MATCH_2})
set(torch_too_new ${CMAKE_MATCH_3})

execute_process(
  COMMAND ${Python_EXECUTABLE} -c "
import sys
sys.path[:] = [folder for folder in sys.path if folder]  # not the current directory
import importlib.util, pathlib, runpy
spec = importlib.util.find_spec('torch')
if spec is None or not spec.submodule_search_locations:
    raise SystemExit('missing')
folder = pathlib.Path(list(spec.submodule_search_locations)[0]).resolve()
print(folder.as_posix(), runpy.run_path(str(folder / 'version.py'))['__version__'], sep=';', end='')
"
  OUTPUT_VARIABLE torch_found ERROR_VARIABLE torch_error RESULT_VARIABLE torch_result)
if(NOT torch_result EQUAL 0)
  message(FATAL_ERROR
    "torch is not installed for ${Python_EXECUTABLE}: ${torch_error}\n"
    "Install it there (pip install 'torch${torch_window}'), name another Python with -DPython_EXECUTABLE=..., or build the HAL and "
    "the plugins alone with -DTORCH_BACKEND_TORCH=OFF.")
endif()
list(GET torch_found 0 TORCH_BACKEND_TORCH_DIR)
list(GET torch_found 1 TORCH_BACKEND_TORCH_VERSION)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" TORCH_BACKEND_TORCH_MINOR "${TORCH_BACKEND_TORCH_VERSION}")
if(TORCH_BACKEND_TORCH_MINOR VERSION_LESS torch_oldest OR NOT TORCH_BACKEND_TORCH_MINOR VERSION_LESS torch_too_new)
  message(FATAL_ERROR
    "torch ${TORCH_BACKEND_TORCH_VERSION} in ${TORCH_BACKEND_TORCH_DIR} is not one that torch_backend builds for: "
    "pip install 'torch${torch_window}'.")
endif()
message(STATUS "Found torch ${TORCH_BACKEND_TORCH_VERSION} in ${TORCH_BACKEND_TORCH_DIR}")

foreach(library c10 torch_cpu torch_python)
  set(path ${TORCH_BACKEND_TORCH_DIR}/lib/lib${library}.so)
  if(NOT EXISTS ${path})
    message(FATAL_ERROR "torch ${TORCH_BACKEND_TORCH_VERSION} is incomplete: ${path} is missing; reinstall it.")
  endif()
  add_library(torch_backend::${library} SHARED IMPORTED)
  set_target_properties(torch_backend::${library} PROPERTIES IMPORTED_LOCATION ${path} IMPORTED_NO_SONAME FALSE)
endforeach()

# Wheels of the supported versions are built with the C++11 ABI of libstdc++.
add_library(torch_backend_libtorch INTERFACE)
target_compile_definitions(torch_backend_libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
target_include_directories(torch_backend_libtorch SYSTEM INTERFACE
  ${TORCH_BACKEND_TORCH_DIR}/include ${TORCH_BACKEND_TORCH_DIR}/include/torch/csrc/api/include)
target_link_libraries(torch_backend_libtorch INTERFACE torch_backend::torch_cpu torch_backend::c10)

add_library(torch_backend_libtorch_python INTERFACE)
target_link_libraries(torch_backend_libtorch_python INTERFACE torch_backend_libtorch torch_backend::torch_python)
