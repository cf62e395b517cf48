# Tests that build with the SDK, like the author of a plugin.
set(sdk_work ${CMAKE_CURRENT_BINARY_DIR}/sdk)
set(sdk_arguments -DCC=${CMAKE_C_COMPILER} -DSANITIZE=${TORCH_BACKEND_SANITIZE} -DSOURCE=${PROJECT_SOURCE_DIR}
  -DARCHIVE=$<TARGET_FILE:hal_plugin_archive> -DWORK=${sdk_work} -DNM=${CMAKE_NM} -DREADELF=${CMAKE_READELF}
  -DFIVE=${CMAKE_CURRENT_SOURCE_DIR}/plugins/five.c)

add_test(NAME hal_sdk_empty_source_fails_to_link_naming_the_five_mandatory_functions
  COMMAND ${CMAKE_COMMAND} ${sdk_arguments} -DCASE=empty -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/check_sdk.cmake)
foreach(case exports imports lazy unloadable static_tls good misspelt twice)
  add_test(NAME hal_sdk_build_${case}
    COMMAND ${CMAKE_COMMAND} ${sdk_arguments} -DCASE=${case} -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/check_sdk.cmake)
endforeach()

set(sdk_flags "")
if(TORCH_BACKEND_SANITIZE)
  set(sdk_flags -fsanitize=${TORCH_BACKEND_SANITIZE})
endif()

# The installed SDK, used from outside the tree: the template builds and loads, and the build of a plugin with a
# violation fails.
add_test(NAME hal_sdk_install COMMAND ${CMAKE_COMMAND} --install ${CMAKE_BINARY_DIR} --prefix ${sdk_work}/prefix)
set_tests_properties(hal_sdk_install PROPERTIES FIXTURES_SETUP hal_sdk_installed)
add_test(NAME hal_sdk_template_builds_out_of_tree COMMAND ${CMAKE_CTEST_COMMAND}
  --build-and-test ${PROJECT_SOURCE_DIR}/plugins/template ${sdk_work}/template --build-generator ${CMAKE_GENERATOR}
  --build-options -Dtorch_backend_hal_DIR=${sdk_work}/prefix/${TORCH_BACKEND_CMAKEDIR} -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER}
  -DCMAKE_C_FLAGS=${sdk_flags}
  --test-command ${sdk_work}/use/hal_use ${sdk_work}/template/libhal_template.so)
add_test(NAME hal_sdk_program_builds_out_of_tree COMMAND ${CMAKE_CTEST_COMMAND}
  --build-and-test ${CMAKE_CURRENT_SOURCE_DIR}/cmake/use ${sdk_work}/use --build-generator ${CMAKE_GENERATOR}
  --build-options -Dtorch_backend_hal_DIR=${sdk_work}/prefix/${TORCH_BACKEND_CMAKEDIR} -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER}
  -DCMAKE_C_FLAGS=${sdk_flags})
set_tests_properties(hal_sdk_program_builds_out_of_tree PROPERTIES FIXTURES_REQUIRED hal_sdk_installed
  FIXTURES_SETUP hal_sdk_program)
set_tests_properties(hal_sdk_template_builds_out_of_tree PROPERTIES FIXTURES_REQUIRED "hal_sdk_installed;hal_sdk_program"
  ENVIRONMENT "HAL_ALLOW_UNSAFE_PLUGINS=1")
add_test(NAME hal_sdk_violation_is_a_failed_build COMMAND ${CMAKE_CTEST_COMMAND}
  --build-and-test ${CMAKE_CURRENT_SOURCE_DIR}/cmake/violation ${sdk_work}/violation --build-generator ${CMAKE_GENERATOR}
  --build-options -Dtorch_backend_hal_DIR=${sdk_work}/prefix/${TORCH_BACKEND_CMAKEDIR} -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER}
  -DCMAKE_C_FLAGS=${sdk_flags} -DFIVE=${CMAKE_CURRENT_SOURCE_DIR}/plugins/five.c)
set_tests_properties(hal_sdk_violation_is_a_failed_build PROPERTIES FIXTURES_REQUIRED hal_sdk_installed
  PASS_REGULAR_EXPRESSION "thread-local") # cmake may break the message at any other position
add_test(NAME hal_sdk_pack_is_built_out_of_tree COMMAND ${CMAKE_CTEST_COMMAND}
  --build-and-test ${CMAKE_CURRENT_SOURCE_DIR}/cmake/pack ${sdk_work}/pack --build-generator ${CMAKE_GENERATOR}
  --build-options -Dtorch_backend_hal_DIR=${sdk_work}/prefix/${TORCH_BACKEND_CMAKEDIR} -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER}
  -DCMAKE_C_FLAGS=${sdk_flags} -DFIVE=${CMAKE_CURRENT_SOURCE_DIR}/plugins/five.c -DCMAKE_INSTALL_PREFIX=${sdk_work}/pack/installed
  --build-target install --test-command ${CMAKE_COMMAND} -E sha256sum ${sdk_work}/pack/installed/libhal_packed.pack)
set_tests_properties(hal_sdk_pack_is_built_out_of_tree PROPERTIES FIXTURES_REQUIRED hal_sdk_installed
  ENVIRONMENT "LSAN_OPTIONS=detect_leaks=0") # of the program when it is run by a build
