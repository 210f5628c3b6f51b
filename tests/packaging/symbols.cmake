# cmake -DNM=... -DLIBRARY=... -DFROZEN=abi_X_Y.c -P symbols.cmake: a library exports the frozen functions and nothing
# else.
execute_process(COMMAND "${NM}" -D --defined-only --format=posix "${LIBRARY}" OUTPUT_VARIABLE exported
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" exported "${exported}")
list(TRANSFORM exported REPLACE " .*" "")

file(READ "${FROZEN}" frozen)
string(REGEX REPLACE "[ \\\n;]+" " " frozen "${frozen}")
string(REGEX MATCHALL "FUNCTION\\( ?[a-z_0-9 *]+, sumtree_[a-z_]+" frozen "${frozen}")
list(TRANSFORM frozen REPLACE ".*, " "")
list(LENGTH frozen count)
if(count EQUAL 0)
  message(FATAL_ERROR "${FROZEN} names no function")
endif()

set(extra ${exported})
list(REMOVE_ITEM extra ${frozen})
set(missing ${frozen})
list(REMOVE_ITEM missing ${exported})
if(extra OR missing)
  message(FATAL_ERROR "${LIBRARY} exports what is not part of the ABI: '${extra}'; it lacks: '${missing}'")
endif()
message(STATUS "${LIBRARY} exports the ${count} functions of the ABI and nothing else")
