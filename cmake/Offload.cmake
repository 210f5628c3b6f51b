# How the C compiler offloads OpenACC to NVIDIA GPUs, tried on a kernel: SUMTREE_OFFLOAD_FLAGS, for compiling and linking,
# and SUMTREE_OFFLOAD_LINK_FLAGS. An error if it cannot.

find_package(Threads REQUIRED)

if(CMAKE_C_COMPILER_ID STREQUAL "NVHPC")
  set(SUMTREE_OFFLOAD_FLAGS -acc=gpu -gpu=cc${SUMTREE_GPU_ARCH},nofma)
  set(SUMTREE_OFFLOAD_LINK_FLAGS "")
else()
  # The architecture is always named: GCC's default may be one that the ptxas of a new CUDA toolkit, if it is on PATH,
  # rejects. The tables that GCC adds for offloading are not position-independent: without notext the linker warns.
  set(SUMTREE_OFFLOAD_FLAGS -fopenacc -foffload=nvptx-none -foffload-options=nvptx-none=-misa=sm_${SUMTREE_GPU_ARCH}
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
