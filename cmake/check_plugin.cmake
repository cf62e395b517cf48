# Checks a linked plugin: cmake -DPLUGIN=<file> -DNM=<nm> -DREADELF=<readelf> -P check_plugin.cmake
# Each rule prevents that two plugins, or a plugin and the host, affect each other in one process.
function(refuse text)
  file(REMOVE ${PLUGIN}) # otherwise the next build would consider it complete
  message(FATAL_ERROR "${PLUGIN}: ${text}")
endfunction()

execute_process(COMMAND ${NM} -D --defined-only ${PLUGIN} OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^ \n]+\n" exported "${listing}")
if(NOT "${exported}" STREQUAL "hal_plugin_entry\n")
  string(REGEX REPLACE "[\n;]+" " " exported "${exported}")
  refuse("a plugin exports hal_plugin_entry and nothing else, but this one exports '${exported}'. Build it with hal_add_plugin(), \
and do not mark functions with default visibility.")
endif()

execute_process(COMMAND ${NM} -D --undefined-only ${PLUGIN} OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " [Uwv] [^\n]*(hal_|torch|c10|_ZN?K?2at)[^\n]*" imported "${listing}")
if(imported)
  refuse("a plugin imports nothing from the host or from torch, but this one wants:${imported}. Use hal_host for the host's services.")
endif()

execute_process(COMMAND ${READELF} -dW ${PLUGIN} OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
foreach(flag NOW NODELETE)
  if(NOT listing MATCHES "[ :]${flag}")
    refuse("it must be linked with -z now and -z nodelete, but ${flag} is missing. Build it with hal_add_plugin().")
  endif()
endforeach()
if(listing MATCHES "STATIC_TLS" AND NOT FUZZER) # libFuzzer's coverage uses it, too
  refuse("it uses static thread-local storage, of which a process has little left by the time plugins are loaded. Drop \
-ftls-model=initial-exec.")
endif()
