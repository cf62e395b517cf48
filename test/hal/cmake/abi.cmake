# The golden file of the plugin ABI: what plugin_ops.def gives today must begin with what hal/abi/v<major>.txt says, growth must
# be written there, and every slot must have its entry in hal/CHANGELOG-ABI.md.
add_executable(hal_abi_print cmake/abi_print.c)
target_include_directories(hal_abi_print PRIVATE ${PROJECT_SOURCE_DIR}/hal/include)
target_link_libraries(hal_abi_print PRIVATE torch_backend_warnings)

set(abi_arguments -DPRINT=$<TARGET_FILE:hal_abi_print> -DGOLDEN=${PROJECT_SOURCE_DIR}/hal/abi/v0.txt
  -DCHANGELOG=${PROJECT_SOURCE_DIR}/hal/CHANGELOG-ABI.md -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/check_abi.cmake)
add_test(NAME hal_abi_is_the_golden_file COMMAND ${CMAKE_COMMAND} ${abi_arguments})

# The check itself: a slot moved, a slot forgotten and a slot without an entry are found.
foreach(flaw swapped appended undocumented)
  add_test(NAME hal_abi_check_finds_${flaw} COMMAND ${CMAKE_COMMAND} -DFLAW=${flaw} ${abi_arguments})
endforeach()
set_tests_properties(hal_abi_check_finds_swapped PROPERTIES PASS_REGULAR_EXPRESSION "differs from the golden file")
set_tests_properties(hal_abi_check_finds_appended PROPERTIES PASS_REGULAR_EXPRESSION "append this line to")
set_tests_properties(hal_abi_check_finds_undocumented PROPERTIES PASS_REGULAR_EXPRESSION "has no entry for")
