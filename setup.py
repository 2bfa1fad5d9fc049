"""Builds the operator libraries with CMake and puts them into the package.

Everything declarative is in pyproject.toml, the sources and compiler settings are in CMakeLists.txt.

Environment:
    GPN_OPS_CUDA        auto (default: the CUDA library is built where nvcc is found), 1 or 0
    GPN_OPS_CUDA_ARCHS  CUDA architectures, for example "80-real;90" (default: see CMakeLists.txt)
    GPN_OPS_WERROR      1: warnings in our own code are errors
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

ROOT = Path(__file__).resolve().parent
CUDA_SWITCH = {"auto": "AUTO", "1": "ON", "0": "OFF"}


def tool_path() -> str:
    """Where to look for cmake and ninja: in the running environment first, even if it is not activated."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    for name in ("cmake", "ninja"):
        if shutil.which(name, path=path) is None:
            sys.exit(f"gpn_ops: building needs {name}. Run `pip install 'cmake>=3.26' ninja` and try again.")
    return path


def cmake_settings(environ: dict[str, str]) -> list[str]:
    """CMake arguments for the environment switches."""
    cuda = environ.get("GPN_OPS_CUDA", "auto").lower()
    if cuda not in CUDA_SWITCH:
        sys.exit(f"gpn_ops: GPN_OPS_CUDA is {cuda!r}, expected one of {', '.join(CUDA_SWITCH)}")
    return [
        f"-DGPN_OPS_CUDA={CUDA_SWITCH[cuda]}",
        f"-DGPN_OPS_CUDA_ARCHS={environ.get('GPN_OPS_CUDA_ARCHS', '')}",
        f"-DGPN_OPS_WERROR={'ON' if environ.get('GPN_OPS_WERROR', '0') == '1' else 'OFF'}",
    ]


class BuildLibraries(Command):
    """Configure, build and install the libraries into the package: the source tree's or the wheel's.

    Implements setuptools' ``SubCommand`` protocol, so that ``pip install .``, ``pip install -e .`` and
    ``python setup.py build_libraries --inplace`` all come through here.
    """

    description = "build the operator libraries with CMake"
    user_options: ClassVar = [
        ("build-lib=", "b", "directory that receives the built package"),
        ("inplace", "i", "put the libraries into the source tree"),
    ]
    boolean_options: ClassVar = ["inplace"]

    def initialize_options(self) -> None:
        self.build_lib = None
        self.inplace = False
        self.editable_mode = False

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    @property
    def package_dir(self) -> Path:
        return (ROOT if self.inplace or self.editable_mode else Path(self.build_lib).resolve()) / "gpn_ops"

    def run(self) -> None:
        # CMake itself needs the path too: it starts more CMakes, to try out compilers.
        environ = {**os.environ, "PATH": tool_path()}
        cmake = shutil.which("cmake", path=environ["PATH"])
        build_dir = ROOT / "build" / "cmake"
        settings = [f"-DPython3_EXECUTABLE={sys.executable}", *cmake_settings(environ)]
        for command in (
            [cmake, "-S", str(ROOT), "-B", str(build_dir), "-G", "Ninja", *settings],
            [cmake, "--build", str(build_dir)],
            [cmake, "--install", str(build_dir), "--prefix", str(self.package_dir)],
        ):
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ
            )
            # Unlike a traceback, an exit leaves the compiler's message at the end of the output.
            if done.returncode:
                sys.exit(f"{done.stdout}\ngpn_ops: {' '.join(command)}\nfailed, see above")
            if self.verbose:
                print(done.stdout, end="", file=sys.stderr)
        # A library of an earlier build with CUDA must not outlive a build without.
        if json.loads((self.package_dir / "_build_info.json").read_text())["cuda"] is None:
            (self.package_dir / "libgpn_ops_cuda.so").unlink(missing_ok=True)

    def get_source_files(self) -> list[str]:
        return []

    def get_outputs(self) -> list[str]:
        return [str(file) for file in self.package_dir.iterdir() if file.suffix in (".so", ".json")]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class PlatformWheel(bdist_wheel):
    """The libraries use torch's stable ABI and no Python: one wheel serves every Python 3 of a platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


class PlatformDistribution(Distribution):
    """Has libraries, though no extension module: not a pure-Python wheel."""

    def has_ext_modules(self) -> bool:
        return True


if __name__ == "__main__":
    build.sub_commands.append(("build_libraries", None))
    setup(
        distclass=PlatformDistribution,
        cmdclass={"build_libraries": BuildLibraries, "bdist_wheel": PlatformWheel},
    )
