# hal_add_plugin(<name> <source>...): builds the plugin libhal_<name>.so from C or C++ sources. The target is
# hal_<name>.
#
# hal_add_kernel_pack(<name> [DESTINATION <folder>] [OPTIONS <option of hal-pack>...]): the target hal_<name>_pack
# compiles the portable kernels ahead of time into libhal_<name>.pack next to the plugin. With DESTINATION it is part of
# every build and installed there.
#
# A plugin whose driver takes SPIR-V also links the target hal_plugin_spirv: target_link_libraries(hal_<name> PRIVATE
# hal_plugin_spirv).
#
# The SDK target hal_plugin sets every flag that a plugin needs. After the link check_plugin.cmake checks the result,
# and a plugin that breaks a rule fails the build. Out-of-tree projects get these functions by
# find_package(torch_backend_hal), or by including this file of an installed torch_backend.

set(HAL_CHECK_PLUGIN ${CMAKE_CURRENT_LIST_DIR}/check_plugin.cmake)

# Sets the options of all plugins on the INTERFACE library hal_plugin.
#   SDK_DIR  contains entry.c and plugin.map     INCLUDE_DIR  contains hal/plugin.h
function(hal_plugin_interface)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "SDK_DIR;INCLUDE_DIR" "")
  add_library(hal_plugin INTERFACE)
  target_include_directories(hal_plugin INTERFACE ${ARG_INCLUDE_DIR})
  # The entry is compiled with each plugin, so that it has the plugin's build flags, not the archive's.
  target_sources(hal_plugin INTERFACE ${ARG_SDK_DIR}/entry.c)
  # -z defs reports a missing mandatory function at link time. clang's sanitizers leave symbols to the executable.
  target_link_options(hal_plugin INTERFACE LINKER:-u,hal_plugin_entry LINKER:-z,relro LINKER:-z,now LINKER:-z,nodelete
    LINKER:--version-script=${ARG_SDK_DIR}/plugin.map)
  if(NOT (CMAKE_C_COMPILER_ID MATCHES Clang AND "${CMAKE_C_FLAGS} ${TORCH_BACKEND_SANITIZE}" MATCHES "address|thread|sanitize"))
    target_link_options(hal_plugin INTERFACE LINKER:-z,defs)
  endif()
  set_property(TARGET hal_plugin PROPERTY INTERFACE_LINK_DEPENDS ${ARG_SDK_DIR}/plugin.map)
  # A misspelled hal_plugin_<op> has no prototype; no other check finds it. Two plugins in one process must not share
  # the statics of C++ templates, which GNU-unique symbols would.
  target_compile_options(hal_plugin INTERFACE $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
endfunction()

# Builds the SDK from its sources, within the project.
function(hal_plugin_sdk)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "SOURCE_DIR;INCLUDE_DIR" "")
  add_library(hal_plugin_archive STATIC ${ARG_SOURCE_DIR}/base.c ${ARG_SOURCE_DIR}/library.c ${ARG_SOURCE_DIR}/worker.c ${ARG_SOURCE_DIR}/marker.c ${ARG_SOURCE_DIR}/watch.c
    ${ARG_SOURCE_DIR}/count.c ${ARG_SOURCE_DIR}/helper.c ${ARG_SOURCE_DIR}/records.c ${ARG_SOURCE_DIR}/binary.c
    ${ARG_SOURCE_DIR}/transfer.c ${ARG_SOURCE_DIR}/process.c ${ARG_SOURCE_DIR}/shared_event.c ${ARG_SOURCE_DIR}/shared_memory.c)
  target_include_directories(hal_plugin_archive PUBLIC ${ARG_INCLUDE_DIR})
  target_link_libraries(hal_plugin_archive PUBLIC m)
  # No fused multiply-add: the numbers of random_fill are specified bit for bit.
  target_compile_options(hal_plugin_archive PRIVATE -ffp-contract=off)
  set_target_properties(hal_plugin_archive PROPERTIES OUTPUT_NAME hal_plugin POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden C_STANDARD 11 C_EXTENSIONS OFF)
  hal_plugin_interface(SDK_DIR ${ARG_SOURCE_DIR} INCLUDE_DIR ${ARG_INCLUDE_DIR})
  target_link_libraries(hal_plugin INTERFACE hal_plugin_archive m)
  # For plugins whose driver takes SPIR-V; they also link it: hal/plugin_clang.h and hal/plugin_spirv.h.
  add_library(hal_plugin_spirv STATIC ${ARG_SOURCE_DIR}/spirv/clang.c ${ARG_SOURCE_DIR}/spirv/freeze.c ${ARG_SOURCE_DIR}/spirv/spirv.c
    ${ARG_SOURCE_DIR}/spirv/clspv.c)
  target_link_libraries(hal_plugin_spirv PUBLIC hal_plugin_archive)
  set_target_properties(hal_plugin_spirv PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden C_STANDARD 11 C_EXTENSIONS OFF)
endfunction()

function(hal_add_plugin name)
  string(REGEX REPLACE "^hal_" "" name ${name}) # accepts the target's name, too
  set(target hal_${name})
  add_library(${target} MODULE ${ARGN})
  set_target_properties(${target} PROPERTIES PREFIX lib OUTPUT_NAME hal_${name} C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_link_libraries(${target} PRIVATE hal_plugin)
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM COMMAND ${CMAKE_COMMAND} -DPLUGIN=$<TARGET_FILE:${target}>
    -DNM=${CMAKE_NM} -DREADELF=${CMAKE_READELF} -DFUZZER=$<BOOL:${TORCH_BACKEND_FUZZ}> -P ${HAL_CHECK_PLUGIN})
endfunction()

function(hal_add_kernel_pack name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "DESTINATION" "OPTIONS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "hal_add_kernel_pack(${name}): '${ARG_UNPARSED_ARGUMENTS}' is not known; options of hal-pack stand behind OPTIONS")
  endif()
  string(REGEX REPLACE "^hal_" "" name ${name})
  set(program hal_pack)
  if(TARGET torch_backend_hal::hal-pack)
    set(program torch_backend_hal::hal-pack)
  endif()
  set(stamp ${CMAKE_CURRENT_BINARY_DIR}/hal_${name}_pack.stamp) # a file name here cannot depend on the configuration
  set(all "")
  if(ARG_DESTINATION)
    set(all ALL)
    install(FILES $<TARGET_FILE_DIR:hal_${name}>/libhal_${name}.pack DESTINATION ${ARG_DESTINATION})
  endif()
  add_custom_command(OUTPUT ${stamp} VERBATIM
    COMMAND ${program} --quiet --output $<TARGET_FILE_DIR:hal_${name}>/libhal_${name}.pack ${ARG_OPTIONS}
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS ${program} COMMENT "Compiling the portable kernels of ${name} ahead")
  add_custom_target(hal_${name}_pack ${all} DEPENDS ${stamp})
endfunction()

if(NOT TARGET hal_plugin AND NOT HAL_PLUGIN_FROM_CONFIG AND EXISTS ${CMAKE_CURRENT_LIST_DIR}/torch_backend_hal-config.cmake)
  find_package(torch_backend_hal REQUIRED PATHS ${CMAKE_CURRENT_LIST_DIR} NO_DEFAULT_PATH)
endif()
