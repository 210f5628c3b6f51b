# Job templates and modulefiles (Tcl and Lua), for `cmake --install` and inside the Python package.
#
# The modulefiles find the installation from where they stand, four folders below it, so the prefix may be
# given to `cmake --install` and the tree be moved; copied elsewhere, they name the prefix.
# SUMTREE_MODULE_PREREQUISITES names the modules that must be
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
# The prefix is known for certain only when it is installed to: it is written in then.
set(SUMTREE_PREFIX "@SUMTREE_PREFIX@")
set(made "${PROJECT_BINARY_DIR}/modulefiles")
foreach(pair IN ITEMS "tcl;${PROJECT_VERSION}" "lua;${PROJECT_VERSION}.lua")
  list(GET pair 0 language)
  list(GET pair 1 name)
  configure_file("${CMAKE_CURRENT_LIST_DIR}/modulefile.${language}.in" "${made}/${language}.in" @ONLY)
  install(CODE "set(SUMTREE_PREFIX \"\${CMAKE_INSTALL_PREFIX}\")
                configure_file(\"${made}/${language}.in\" \"${made}/${name}\" @ONLY)" COMPONENT runtime)
  install(FILES "${made}/${name}" DESTINATION "${SUMTREE_MODULEDIR}/libsumtree" COMPONENT runtime)
endforeach()
install(DIRECTORY "${jobs}" DESTINATION "${CMAKE_INSTALL_DATADIR}/libsumtree/jobs" COMPONENT runtime
        USE_SOURCE_PERMISSIONS PATTERN "environment.sh" EXCLUDE PATTERN "local.sh" EXCLUDE
        PATTERN "__pycache__" EXCLUDE)
