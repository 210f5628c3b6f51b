# Puts a private copy of GCC's OpenACC runtime beside libsumtree_gpu:
#
#     cmake -DLIBRARY=.. -DRUNTIME=libgomp.so.1 -DPLUGIN=libgomp-plugin-nvptx.so.1 -DPATCHELF=.. -DNM=.. -P BundleOpenACC.cmake
#
# Other packages bring a libgomp of their own (PyTorch does, without offloading). Whichever is loaded first would serve
# both, for the soname is the same, and so are the symbols. So the copy gets another soname and other symbols, and the
# three files find each other by $ORIGIN.

cmake_minimum_required(VERSION 3.20)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE error)
  if(NOT status EQUAL 0)
    string(REPLACE ";" " " command "${ARGV}")
    message(FATAL_ERROR "${command}: ${error}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

get_filename_component(folder "${LIBRARY}" DIRECTORY)
set(private "${folder}/libgomp-sumtree.so.1")
set(plugin "${folder}/libgomp-plugin-nvptx.so.1") # libgomp looks for this name
configure_file("${RUNTIME}" "${private}" COPYONLY)
configure_file("${PLUGIN}" "${plugin}" COPYONLY)

run("${NM}" -D --defined-only --format=posix "${private}")
string(REGEX MATCHALL "(^|\n)(acc|omp|GOMP|GOACC|GOACC_PLUGIN|GOMP_PLUGIN|ompd)_[A-Za-z0-9_]+@[^\n]* [TBDRVWi] " lines
             "\n${output}")
set(map "")
set(seen "")
foreach(line IN LISTS lines)
  string(REGEX REPLACE "^\n?([A-Za-z0-9_]+)@.*" "\\1" name "${line}")
  if(NOT name IN_LIST seen)
    list(APPEND seen "${name}")
    string(APPEND map "${name} sumtree_private_${name}\n")
  endif()
endforeach()
if(NOT "acc_get_num_devices" IN_LIST seen OR NOT "GOACC_parallel_keyed" IN_LIST seen)
  message(FATAL_ERROR "${RUNTIME} exports no OpenACC runtime")
endif()
set(map_file "${folder}/openacc-symbols.map")
file(WRITE "${map_file}" "${map}")

foreach(file IN ITEMS "${private}" "${plugin}" "${LIBRARY}")
  run("${PATCHELF}" --rename-dynamic-symbols "${map_file}" "${file}")
  run("${PATCHELF}" --set-rpath "$ORIGIN" "${file}")
endforeach()
run("${PATCHELF}" --set-soname libgomp-sumtree.so.1 "${private}")
foreach(file IN ITEMS "${plugin}" "${LIBRARY}")
  run("${PATCHELF}" --replace-needed libgomp.so.1 libgomp-sumtree.so.1 "${file}")
endforeach()
file(REMOVE "${map_file}")
