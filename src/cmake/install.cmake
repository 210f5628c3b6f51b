# What `cmake --install` puts where, in two components:
#
#   runtime      lib/libsumtree_<backend>.so.<ABI version>, all that a program needs that was built against them
#   development  the header, the link names, and what find_package(libsumtree) and pkg-config read
#
# Nothing in it holds the prefix: the tree may be moved as a whole.

# The soname changes when the ABI does, so its number is SUMTREE_ABI_VERSION of the header, the one place for it.
file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/sumtree.h" SUMTREE_ABI_VERSION REGEX "^#define SUMTREE_ABI_VERSION ")
string(REGEX MATCH "[0-9]+$" SUMTREE_ABI_VERSION "${SUMTREE_ABI_VERSION}")

# A library of the Python package is opened by its absolute path: a plain file without a soname, for wheels hold no links.
function(sumtree_install_backend backend)
  set(target sumtree_${backend})
  if(SKBUILD)
    set_target_properties(${target} PROPERTIES NO_SONAME ON)
    install(TARGETS ${target} LIBRARY DESTINATION libsumtree/lib COMPONENT python)
    if(backend STREQUAL "gpu" AND SUMTREE_BUNDLE_OPENACC)
      sumtree_bundle_openacc(libsumtree/lib libsumtree_gpu.so python)
    endif()
    return()
  endif()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${backend} VERSION ${PROJECT_VERSION} SOVERSION
                                                                                              ${SUMTREE_ABI_VERSION})
  install(
    TARGETS ${target}
    EXPORT libsumtreeTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
            COMPONENT runtime
            NAMELINK_COMPONENT development)
  if(backend STREQUAL "gpu" AND SUMTREE_BUNDLE_OPENACC)
    sumtree_bundle_openacc(${CMAKE_INSTALL_LIBDIR} libsumtree_gpu.so.${PROJECT_VERSION} runtime)
  endif()
  sumtree_install_pkgconfig(libsumtree-${backend} ${backend})
endfunction()

# Paths in a .pc file are relative to the file itself.
function(sumtree_install_pkgconfig name backend)
  set(folder "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
    message(FATAL_ERROR "CMAKE_INSTALL_LIBDIR and CMAKE_INSTALL_INCLUDEDIR must be relative to the prefix: the "
                        "installation can be moved. They are '${CMAKE_INSTALL_LIBDIR}' and '${CMAKE_INSTALL_INCLUDEDIR}'")
  endif()
  file(RELATIVE_PATH prefix "/${folder}" "/")
  string(REGEX REPLACE "/$" "" prefix "${prefix}")
  configure_file(cmake/libsumtree.pc.in ${name}.pc @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}.pc" DESTINATION ${folder} COMPONENT development)
endfunction()

function(sumtree_install_development)
  if(SKBUILD)
    return()
  endif()
  include(CMakePackageConfigHelpers)
  set(folder "${CMAKE_INSTALL_LIBDIR}/cmake/libsumtree")
  configure_package_config_file(cmake/libsumtreeConfig.cmake.in libsumtreeConfig.cmake INSTALL_DESTINATION ${folder}
                                NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file(libsumtreeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(
    FILES "${CMAKE_CURRENT_BINARY_DIR}/libsumtreeConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/libsumtreeConfigVersion.cmake"
    DESTINATION ${folder}
    COMPONENT development)
  install(
    EXPORT libsumtreeTargets
    NAMESPACE libsumtree::
    DESTINATION ${folder}
    COMPONENT development)
  list(GET SUMTREE_BACKENDS 0 first)
  if("cpu" IN_LIST SUMTREE_BACKENDS)
    set(first cpu)
  endif()
  sumtree_install_pkgconfig(libsumtree ${first})
  install(FILES sumtree.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
endfunction()
