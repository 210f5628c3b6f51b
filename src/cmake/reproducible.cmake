# The same sources give the same files wherever they are built: no path of this machine in debug information or __FILE__.
# Of two prefixes that match, compilers take the one that is given last.
foreach(map IN ITEMS "${PROJECT_SOURCE_DIR}=libsumtree" "${PROJECT_BINARY_DIR}=build")
  foreach(language IN ITEMS C CXX)
    add_compile_options("$<$<COMPILE_LANG_AND_ID:${language},GNU,Clang>:-ffile-prefix-map=${map}>")
  endforeach()
endforeach()
