# cmake --install puts the library, its headers as <xtape/...> and the package for find_package(xtape CONFIG) in place.
# The kernels' headers stay behind: they are the library's own, compiled with flags of their own.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/xtape)
install(TARGETS xtape EXPORT xtape-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES framework/xtape.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/xtape)
install(
  DIRECTORY framework layers pretrained
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/xtape
  FILES_MATCHING
  PATTERN "*.hpp"
  PATTERN "framework/xtape.hpp" EXCLUDE
  PATTERN "framework/kernels" EXCLUDE)
install(EXPORT xtape-targets NAMESPACE xtape:: DESTINATION ${package_dir})
configure_package_config_file(cmake/xtape-config.cmake.in ${PROJECT_BINARY_DIR}/xtape-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/xtape-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/xtape-config.cmake ${PROJECT_BINARY_DIR}/xtape-config-version.cmake
        DESTINATION ${package_dir})
