# SPDX-License-Identifier: BSD-3-Clause

from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyLibsumtree(PythonPackage):
    """Prioritized replay for Python, exact to the bit: sum, min and priority trees, a replay
    buffer with HDF5 checkpoints and an MPI replay rank. Brings its own copy of the C library."""

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
    variant("hdf5", default=True, description="Checkpoints in HDF5 files")
    variant("mpi", default=True, description="The MPI replay rank")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-scikit-build-core@0.11: +pyproject", type="build")
    depends_on("py-nanobind@2.10:", type="build")
    depends_on("llvm-openmp", type="link", when="+multicore %c=llvm")
    depends_on("patchelf@0.18:", type="build", when="+gpu offload=gcc")
    depends_on("nvhpc", type=("build", "link"), when="+gpu offload=nvhpc")

    with default_args(type=("build", "run")):
        depends_on("python@3.11:")
        # The binding is compiled against NumPy 2, and then runs with 1.26 too.
        depends_on("py-numpy@2.0:")
    with default_args(type="run"):
        depends_on("py-h5py@3.10:", when="+hdf5")
        depends_on("py-mpi4py@4.0:", when="+mpi")

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
    conflicts("%cxx=nvhpc", msg="the binding needs gcc or clang: offload=nvhpc takes only nvc")

    import_modules = ["libsumtree", "libsumtree.reference", "libsumtree.cli"]

    def config_settings(self, spec, prefix):
        settings = {
            "build.tool-args": f"-j{make_jobs}",
            "build.verbose": "true",
            "cmake.build-type": "Release",
            "cmake.define.SUMTREE_BACKENDS": ";".join(self.backends),
            # clang's OpenMP library is another package's
            "cmake.define.CMAKE_INSTALL_RPATH_USE_LINK_PATH": "ON",
        }
        if self.bundles_openacc:
            settings["cmake.define.SUMTREE_BUNDLE_OPENACC"] = "ON"
        if self.nvc:
            settings["cmake.define.CMAKE_C_COMPILER"] = self.nvc
        if self.gpu_arch:
            settings["cmake.define.SUMTREE_GPU_ARCH"] = self.gpu_arch
        return settings

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

    def libsumtree(self, *arguments):
        """run the command line of the installed package, as "libsumtree ARGUMENTS" does"""
        python = self.spec["python"].command
        return python("-m", "libsumtree", *arguments, output=str.split, error=str.split)

    def test_info(self):
        """say which backends are installed and what they run on"""
        out = self.libsumtree("info")
        print(out)
        for backend in self.backends:
            assert f"\n{backend} " in out, f"there is no backend {backend}"

    def test_verify(self):
        """compare every operation with the reference, bit for bit, on cpu and multicore"""
        for backend in self.backends:
            if backend == "gpu":
                continue
            out = self.libsumtree("verify", "--backend", backend)
            print(out)
            assert f"verified: {backend}" in out, out

    def test_verify_gpu(self):
        """compare every operation with the reference on a GPU; needs one"""
        if not self.spec.satisfies("+gpu"):
            raise SkipTest("the gpu backend was not built")
        gpu = next(line for line in self.libsumtree("info").splitlines() if line[:4] == "gpu ")
        if "cannot run here" in gpu:
            raise SkipTest(f"run this test on a node with a GPU: {gpu}")
        out = self.libsumtree("verify", "--backend", "gpu")
        print(out)
        assert "verified: gpu" in out, out
