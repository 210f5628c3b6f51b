# cmake -DBUILD=... -DSOURCE=... -DBACKENDS=... -DCOMPILER=... -DWORK=... -P consumer.cmake: installs both components, moves
# the tree, then builds and runs examples/c against it with every backend, which must all draw the same.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE output)
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
foreach(component IN ITEMS runtime development)
  run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/first place" --component ${component})
endforeach()
set(prefix "${WORK}/another place")
file(RENAME "${WORK}/first place" "${prefix}")

# What the gpu backend does on a device is tested elsewhere.
set(ENV{LIBSUMTREE_GPU_ON_HOST} for-tests)
string(REPLACE "," ";" backends "${BACKENDS}")
foreach(backend IN LISTS backends)
  run("${CMAKE_COMMAND}" -S "${SOURCE}/examples/c" -B "${WORK}/${backend}" "-DCMAKE_PREFIX_PATH=${prefix}"
      -DBACKEND=${backend} "-DCMAKE_C_COMPILER=${COMPILER}" -DCMAKE_BUILD_TYPE=Release)
  run("${CMAKE_COMMAND}" --build "${WORK}/${backend}")
  run("${WORK}/${backend}/draw")
  if(NOT output MATCHES "^backend ${backend}, total 499500\n")
    message(FATAL_ERROR "draw with ${backend} printed: ${output}")
  endif()
  string(REGEX REPLACE "^[^\n]+\n" "" drawn "${output}")
  if(DEFINED expected AND NOT drawn STREQUAL expected)
    message(FATAL_ERROR "${backend} drew other leaves than the first of ${BACKENDS}: ${drawn}")
  endif()
  set(expected "${drawn}")
endforeach()
