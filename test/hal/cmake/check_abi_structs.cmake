# cmake -DPRINT=<hal_abi_structs> -DGOLDEN=<file> [-DFLAW=<kind>] -P check_abi_structs.cmake
# Each line of the golden file must still be true, and new fields and constants must be added to it. FLAW alters the
# compared text, to test this check.
cmake_minimum_required(VERSION 3.20) # a script has its own policies; this one enables IN_LIST
execute_process(COMMAND ${PRINT} OUTPUT_VARIABLE present COMMAND_ERROR_IS_FATAL ANY OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REPLACE "\n" ";" present "${present}")
file(STRINGS ${GOLDEN} golden)

if(FLAW STREQUAL "moved") # a field inserted before grid
  list(TRANSFORM present REPLACE "^hal_launch_t.grid at 8," "hal_launch_t.grid at 16,")
elseif(FLAW STREQUAL "renumbered")
  list(TRANSFORM present REPLACE "^HAL_DATA_LOSS is 15$" "HAL_DATA_LOSS is 16")
elseif(FLAW STREQUAL "grown")
  list(APPEND present "hal_launch_t.cluster at 48, 12 bytes")
endif()

foreach(line ${golden})
  if(NOT line IN_LIST present)
    string(REGEX MATCH "^[^ ]+" name "${line}")
    set(is "it is gone")
    foreach(now ${present})
      if(now MATCHES "^${name} ")
        set(is "now '${now}'")
      endif()
    endforeach()
    message(FATAL_ERROR "the plugin ABI differs from the golden file: '${line}', ${is}. Fields and constants are only ever \
appended: put plugin.h back, and add what is new at the end.")
  endif()
endforeach()
foreach(line ${present})
  if(NOT line IN_LIST golden)
    message(FATAL_ERROR "plugin.h has grown: append this line to ${GOLDEN} (target abi_golden), and say it in hal/CHANGELOG-ABI.md: ${line}")
  endif()
endforeach()
list(LENGTH present count)
message(STATUS "${count} fields and constants, as in the golden file")
