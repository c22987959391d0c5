# A user's project, compiled against an installation in a temporary folder, and run.
set(prefix ${CMAKE_CURRENT_BINARY_DIR}/install/prefix)
set(consumer ${CMAKE_CURRENT_BINARY_DIR}/install/consumer)
add_test(NAME Install.StartsEmpty COMMAND ${CMAKE_COMMAND} -E rm -rf ${prefix} ${consumer})
add_test(NAME Install.PutsThePackageInPlace COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${prefix})
add_test(
  NAME Install.ServesAUsersProject
  COMMAND
    ${CMAKE_CTEST_COMMAND} --build-and-test ${CMAKE_CURRENT_LIST_DIR} ${consumer} --build-generator ${CMAKE_GENERATOR}
    --build-options -DCMAKE_BUILD_TYPE=Release -Dxtape_ROOT=${prefix}
    -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}
    --test-command consumer)
set_tests_properties(Install.StartsEmpty PROPERTIES FIXTURES_SETUP empty_prefix)
set_tests_properties(Install.PutsThePackageInPlace PROPERTIES FIXTURES_REQUIRED empty_prefix FIXTURES_SETUP package)
set_tests_properties(Install.ServesAUsersProject PROPERTIES FIXTURES_REQUIRED "empty_prefix;package" TIMEOUT 600)
