# find_package(tersum) after an install: tersum::core, the headers of include/tersum, one archive.
# A Python wheel (scikit-build-core sets SKBUILD) holds the extension module only.
if(SKBUILD)
  return()
endif()
include(CMakePackageConfigHelpers)

install(TARGETS tersum_core EXPORT tersum_targets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
        FILE_SET HEADERS COMPONENT development)
install(EXPORT tersum_targets NAMESPACE tersum:: FILE tersum-targets.cmake
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/tersum" COMPONENT development)
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/tersum-config.cmake.in"
  "${PROJECT_BINARY_DIR}/tersum-config.cmake"
  INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/tersum")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tersum-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tersum-config.cmake"
              "${PROJECT_BINARY_DIR}/tersum-config-version.cmake"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/tersum" COMPONENT development)
