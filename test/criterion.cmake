# add_criterion_test(<name> <target> [<argument>...]): runs a Criterion program under ctest so that failures are not
# missed. Criterion exits with success if a filter matches nothing and if a sanitizer reports inside a test, so the
# output is checked. Criterion cannot run under the thread sanitizer: threading tests are plain programs,
# test/hal/stress.
string(FIND "${TORCH_BACKEND_SANITIZE}" thread thread_position)
if(thread_position EQUAL -1)
  set(TORCH_BACKEND_CRITERION ON)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(CRITERION REQUIRED IMPORTED_TARGET criterion)
  string(FIND "${TORCH_BACKEND_SANITIZE}" address address_position)
  if(NOT address_position EQUAL -1)
    target_sources(PkgConfig::CRITERION INTERFACE ${CMAKE_CURRENT_LIST_DIR}/sanitized_fork.c)
  endif()
else()
  set(TORCH_BACKEND_CRITERION OFF)
endif()

# Time limit of a program; with sanitizers the matrix products take a minute on an idle machine.
set(TORCH_BACKEND_TEST_TIMEOUT 120)
if(TORCH_BACKEND_SANITIZE)
  set(TORCH_BACKEND_TEST_TIMEOUT 400)
endif()

set(TORCH_BACKEND_FAIL_PATTERN
  "Tested: 0;ERROR: (Leak|Address)Sanitizer;runtime error:;WARNING: ThreadSanitizer")

# A program whose tests were all skipped, for example on a processor that lacks an instruction set, is reported as
# skipped. Criterion prints the skipped tests with --verbose only. A filter that matches nothing prints no skipped test,
# and fails.
set(TORCH_BACKEND_SKIP_PATTERN
  "\\[SKIP\\].*Tested: 0 [|] Passing: 0 [|] Failing: 0 [|] Crashing: 0")

function(add_criterion_test name target)
  add_test(NAME ${name} COMMAND ${target} --verbose=1 ${ARGN})
  # A test that expects a signal needs it delivered. Plugins in a build folder that others may write are allowed here. A
  # failed allocation is NULL, as without the sanitizer. A test may preload a library into programs that it starts: the
  # order of libraries is not checked. lsan.supp: leaks of Criterion itself, a timer for each test with a time limit.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TORCH_BACKEND_TEST_TIMEOUT}
    ENVIRONMENT "ASAN_OPTIONS=handle_segv=0:use_sigaltstack=0:allocator_may_return_null=1:verify_asan_link_order=0;LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/test/lsan.supp:print_suppressions=0;HAL_ALLOW_UNSAFE_PLUGINS=1"
    FAIL_REGULAR_EXPRESSION "${TORCH_BACKEND_FAIL_PATTERN}" SKIP_REGULAR_EXPRESSION "${TORCH_BACKEND_SKIP_PATTERN}")
endfunction()
