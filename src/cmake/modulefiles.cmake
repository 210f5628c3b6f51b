# Job templates and modulefiles (Tcl and Lua), for `cmake --install` and inside the Python package.
#
# The modulefiles find the installation from where they stand, four folders below it, so the prefix may be
# given to `cmake --install` and the tree be moved; SUMTREE_MODULE_PREREQUISITES names the modules that must be
# loaded before, such as "python/3.12;openmpi/5.0".

set(SUMTREE_MODULE_PREREQUISITES
    ""
    CACHE STRING "Modules that the modulefiles need to be loaded, separated by semicolons")
set(SUMTREE_MODULEDIR
    "${CMAKE_INSTALL_DATADIR}/modulefiles"
    CACHE STRING "Where modulefiles go, below the prefix: two folders deep, for paths to follow")

set(jobs "${PROJECT_SOURCE_DIR}/jobs/")
if(SKBUILD)
  install(DIRECTORY "${jobs}" DESTINATION libsumtree/jobs/templates COMPONENT python USE_SOURCE_PERMISSIONS
          PATTERN "environment.sh" EXCLUDE PATTERN "local.sh" EXCLUDE PATTERN "__pycache__" EXCLUDE)
  return()
endif()

set(SUMTREE_TCL_PREREQUISITES "")
set(SUMTREE_LUA_PREREQUISITES "")
foreach(module IN LISTS SUMTREE_MODULE_PREREQUISITES)
  if(NOT module MATCHES "^[A-Za-z0-9._+/-]+$")
    message(FATAL_ERROR "SUMTREE_MODULE_PREREQUISITES names '${module}', which is no module's name")
  endif()
  string(APPEND SUMTREE_TCL_PREREQUISITES "prereq ${module}\n")
  string(APPEND SUMTREE_LUA_PREREQUISITES "prereq(\"${module}\")\n")
endforeach()
foreach(language IN ITEMS tcl lua)
  configure_file("${CMAKE_CURRENT_LIST_DIR}/modulefile.${language}.in" "${PROJECT_BINARY_DIR}/modulefile.${language}"
                 @ONLY)
endforeach()
install(FILES "${PROJECT_BINARY_DIR}/modulefile.tcl" DESTINATION "${SUMTREE_MODULEDIR}/libsumtree"
        RENAME "${PROJECT_VERSION}" COMPONENT runtime)
install(FILES "${PROJECT_BINARY_DIR}/modulefile.lua" DESTINATION "${SUMTREE_MODULEDIR}/libsumtree"
        RENAME "${PROJECT_VERSION}.lua" COMPONENT runtime)
install(DIRECTORY "${jobs}" DESTINATION "${CMAKE_INSTALL_DATADIR}/libsumtree/jobs" COMPONENT runtime
        USE_SOURCE_PERMISSIONS PATTERN "environment.sh" EXCLUDE PATTERN "local.sh" EXCLUDE
        PATTERN "__pycache__" EXCLUDE)
