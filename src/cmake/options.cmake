# CMake says nothing about a -D that no project knows: a misspelt option of a recipe would build something else in silence.
# Every option of this project is named here.
set(SUMTREE_OPTIONS
    SUMTREE_BACKENDS
    SUMTREE_BUNDLE_OPENACC
    SUMTREE_GPU_ARCH
    SUMTREE_MODULE_PREREQUISITES
    SUMTREE_MODULEDIR
    SUMTREE_PATCHELF
    SUMTREE_SANITIZE
    SUMTREE_TESTS)
get_cmake_property(cached CACHE_VARIABLES)
list(FILTER cached INCLUDE REGEX "^SUMTREE_")
list(REMOVE_ITEM cached ${SUMTREE_OPTIONS})
foreach(name IN LISTS cached)
  get_property(type CACHE ${name} PROPERTY TYPE)
  if(NOT type STREQUAL "INTERNAL")
    string(REPLACE ";" ", " options "${SUMTREE_OPTIONS}")
    message(FATAL_ERROR "libsumtree has no option ${name}; its options are: ${options}")
  endif()
endforeach()
