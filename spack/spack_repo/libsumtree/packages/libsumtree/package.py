# SPDX-License-Identifier: BSD-3-Clause

import os

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Libsumtree(CMakePackage):
    """Sum, min and priority trees for prioritized replay, exact to the bit: the C library, for
    programs without Python. py-libsumtree is the Python package, and brings its own copy."""

    homepage = "https://example.org/libsumtree"
    git = "https://example.org/libsumtree.git"

    maintainers("libsumtree")

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("multicore", default=True, description="Build the multicore backend (OpenMP)")
    variant("gpu", default=False, description="Build the gpu backend (OpenACC, NVIDIA GPUs)")
    variant(
        "cuda_arch",
        values=any_combination_of(*CudaPackage.cuda_arch_values),
        sticky=True,
        when="+gpu",
        description="Compute capabilities that the gpu backend is compiled for",
    )
    # Spack takes C and C++ of a package from one compiler, and nvc++ is not for the binding: so
    # nvhpc is no compiler of the package, but a dependency whose nvc compiles the C library.
    variant(
        "offload",
        default="gcc",
        values=("gcc", "nvhpc"),
        when="+gpu",
        description="Whose OpenACC the gpu backend is compiled with",
    )

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("llvm-openmp", type="link", when="+multicore %c=llvm")
    depends_on("patchelf@0.18:", type="build", when="+gpu offload=gcc")
    depends_on("nvhpc", type=("build", "link"), when="+gpu offload=nvhpc")

    requires("platform=linux", msg="libsumtree runs on Linux only")
    requires(
        "%c=gcc+nvptx",
        when="+gpu offload=gcc",
        msg="+gpu offload=gcc: the compiler must be a gcc with nvptx offload; declare it in "
        "packages.yaml as gcc +nvptx if it has that, or say offload=nvhpc",
    )
    conflicts(
        "cuda_arch=none",
        when="+gpu offload=nvhpc",
        msg="+gpu offload=nvhpc: say which GPUs to compile for, as in cuda_arch=80,90",
    )

    def cmake_args(self):
        arguments = [
            self.define("SUMTREE_BACKENDS", self.backends),
            # clang's OpenMP library is another package's
            self.define("CMAKE_INSTALL_RPATH_USE_LINK_PATH", True),
        ]
        if self.bundles_openacc:
            arguments.append(self.define("SUMTREE_BUNDLE_OPENACC", True))
        if self.nvc:
            arguments.append(self.define("CMAKE_C_COMPILER", self.nvc))
        if self.gpu_arch:
            arguments.append(self.define("SUMTREE_GPU_ARCH", self.gpu_arch))
        return arguments

    @property
    def backends(self):
        return ["cpu"] + [name for name in ("multicore", "gpu") if f"+{name}" in self.spec]

    @property
    def bundles_openacc(self):
        """gcc-runtime lacks the part of gcc's OpenACC that talks to GPUs: it comes with us"""
        return self.spec.satisfies("+gpu offload=gcc")

    @property
    def nvc(self):
        """NVIDIA's C compiler, where that is to compile the C library"""
        if not self.spec.satisfies("+gpu offload=nvhpc"):
            return None
        nvhpc = self.spec["nvhpc"]
        folder = join_path(nvhpc.prefix, f"Linux_{nvhpc.target.family}", str(nvhpc.version))
        return join_path(folder, "compilers", "bin", "nvc")

    @property
    def gpu_arch(self):
        """the least of cuda_arch, which newer GPUs run too; gcc takes the next one that it knows"""
        if self.spec.satisfies("~gpu") or self.spec.satisfies("cuda_arch=none"):
            return None
        least = min(int(arch.rstrip("af")) for arch in self.spec.variants["cuda_arch"].value)
        if self.spec.satisfies("offload=gcc"):
            least = max((arch for arch in (35, 53, 70, 75, 80) if arch <= least), default=least)
        return str(least)

    @property
    def libs(self):
        """spec["libsumtree"].libs is the cpu backend, spec["libsumtree:multicore"].libs another"""
        asked = self.spec.last_query.extra_parameters or ["cpu"]
        names = [f"libsumtree_{backend}" for backend in asked]
        return find_libraries(names, root=self.prefix, shared=True, recursive=True)

    @run_after("install")
    def keep_example(self):
        cache_extra_test_sources(self, join_path("examples", "c", "draw.c"))

    def test_draw(self):
        """compile and run a program that draws leaves, with each backend"""
        source = join_path(self.test_suite.current_test_cache_dir, "examples", "c", "draw.c")
        compiler = which(os.environ.get("CC", "cc"), required=True)
        for backend in self.backends:
            with test_part(self, f"test_draw_{backend}", purpose=f"draw with {backend}"):
                libs = find_libraries(
                    f"libsumtree_{backend}", root=self.prefix, shared=True, recursive=True
                )
                rpath = f"-Wl,-rpath,{libs.directories[0]}"
                program = f"draw_{backend}"
                compiler(
                    "-std=c11",
                    source,
                    f"-I{self.prefix.include}",
                    *libs.ld_flags.split(),
                    rpath,
                    "-o",
                    program,
                )
                draw = which(join_path(os.getcwd(), program), required=True)
                env = {"LIBSUMTREE_GPU_ON_HOST": "for-tests"} if backend == "gpu" else {}
                out = draw(output=str.split, error=str.split, extra_env=env)
                assert f"backend {backend}, total 499500" in out, out
