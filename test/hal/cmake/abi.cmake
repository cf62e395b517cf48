# The golden file of the plugin ABI: the output of plugin_ops.def must begin with hal/abi/v<major>.txt. New slots must
# be added there, and each slot must have an entry in hal/CHANGELOG-ABI.md.
add_executable(hal_abi_print cmake/abi_print.c)
target_include_directories(hal_abi_print PRIVATE ${PROJECT_SOURCE_DIR}/hal/include)
target_link_libraries(hal_abi_print PRIVATE torch_backend_warnings)

set(abi_arguments -DPRINT=$<TARGET_FILE:hal_abi_print> -DGOLDEN=${PROJECT_SOURCE_DIR}/hal/abi/v0.txt
  -DCHANGELOG=${PROJECT_SOURCE_DIR}/hal/CHANGELOG-ABI.md -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/check_abi.cmake)
add_test(NAME hal_abi_is_the_golden_file COMMAND ${CMAKE_COMMAND} ${abi_arguments})

# Tests of the check itself: it must find a moved slot, an inserted slot, changed parameters, a removed slot, and a slot
# without an entry.
foreach(flaw swapped inserted changed appended undocumented)
  add_test(NAME hal_abi_check_finds_${flaw} COMMAND ${CMAKE_COMMAND} -DFLAW=${flaw} ${abi_arguments})
endforeach()
set_tests_properties(hal_abi_check_finds_swapped PROPERTIES PASS_REGULAR_EXPRESSION "differs from the golden file")
set_tests_properties(hal_abi_check_finds_inserted PROPERTIES PASS_REGULAR_EXPRESSION "slot 4[ \\n]+was")
set_tests_properties(hal_abi_check_finds_changed PROPERTIES PASS_REGULAR_EXPRESSION "int64_t size")
set_tests_properties(hal_abi_check_finds_appended PROPERTIES PASS_REGULAR_EXPRESSION "append this line to")
set_tests_properties(hal_abi_check_finds_undocumented PROPERTIES PASS_REGULAR_EXPRESSION "has no entry for")

# The same for the structs and constants of the plugin headers; the program that prints them is generated from the
# headers.
set(structs ${CMAKE_BINARY_DIR}/generated/hal_abi_structs.c)
file(GLOB plugin_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/hal/include/hal/plugin*.h)
add_custom_command(OUTPUT ${structs} VERBATIM COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/abi_structs.py
  --include ${PROJECT_SOURCE_DIR}/hal/include ${structs} DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cmake/abi_structs.py ${plugin_headers})
add_executable(hal_abi_structs ${structs})
target_include_directories(hal_abi_structs PRIVATE ${PROJECT_SOURCE_DIR}/hal/include)
target_link_libraries(hal_abi_structs PRIVATE torch_backend_warnings)
set(struct_arguments -DPRINT=$<TARGET_FILE:hal_abi_structs> -DGOLDEN=${PROJECT_SOURCE_DIR}/hal/abi/v0_structs.txt
  -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/check_abi_structs.cmake)
add_test(NAME hal_abi_structs_are_the_golden_file COMMAND ${CMAKE_COMMAND} ${struct_arguments})
foreach(flaw moved renumbered grown)
  add_test(NAME hal_abi_structs_check_finds_${flaw} COMMAND ${CMAKE_COMMAND} -DFLAW=${flaw} ${struct_arguments})
endforeach()
set_tests_properties(hal_abi_structs_check_finds_moved PROPERTIES PASS_REGULAR_EXPRESSION "hal_launch_t.grid at 16")
set_tests_properties(hal_abi_structs_check_finds_renumbered PROPERTIES PASS_REGULAR_EXPRESSION "HAL_DATA_LOSS is 16")
set_tests_properties(hal_abi_structs_check_finds_grown PROPERTIES PASS_REGULAR_EXPRESSION "append this line to")

# Appends new slots: cmake --build --preset release --target abi_golden
add_custom_target(abi_golden VERBATIM COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/abi_golden.py
  --slots $<TARGET_FILE:hal_abi_print> --structs $<TARGET_FILE:hal_abi_structs> --folder ${PROJECT_SOURCE_DIR}/hal/abi
  DEPENDS hal_abi_print hal_abi_structs)
