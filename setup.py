"""Builds the operator libraries with CMake and puts them into the package.

Everything declarative is in pyproject.toml, the sources and compiler settings are in CMakeLists.txt.

Environment:
    GPN_OPS_CUDA          1: build the CUDA library; 0: do not; auto (default): where nvcc is found and torch
                          has CUDA, and if that fails, warn and go on without
    GPN_OPS_CUDA_ARCHS    CUDA architectures in CMake's form, for example "80-real;90"
    TORCH_CUDA_ARCH_LIST  the same in torch's form, "8.0;9.0+PTX" (default: see cmake/cuda_archs.cmake)
    GPN_OPS_WERROR        1: warnings in our own code are errors
"""

import json
import os
import re
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


class BuildError(Exception):
    """A command failed; the message ends with what it printed last."""


def run(command: list[str], environ: dict[str, str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ)
    if done.returncode:
        raise BuildError(f"{done.stdout}\ngpn_ops: {' '.join(command)}\nfailed, see above")
    return done.stdout


def cuda_switch(environ: dict[str, str]) -> str:
    switch = environ.get("GPN_OPS_CUDA", "auto").lower()
    if switch not in CUDA_SWITCH:
        sys.exit(f"gpn_ops: GPN_OPS_CUDA is {switch!r}, expected one of {', '.join(CUDA_SWITCH)}")
    return switch


def cmake_settings(environ: dict[str, str], cuda: str, without_cuda: str = "") -> list[str]:
    """CMake arguments: whether to build for CUDA, and if not, why; and the environment switches."""
    return [
        f"-DPython3_EXECUTABLE={sys.executable}",
        f"-DGPN_OPS_CUDA={CUDA_SWITCH[cuda]}",
        f"-DGPN_OPS_WITHOUT_CUDA={without_cuda}",
        f"-DGPN_OPS_CUDA_ARCHS={environ.get('GPN_OPS_CUDA_ARCHS', '')}",
        f"-DGPN_OPS_WERROR={'ON' if environ.get('GPN_OPS_WERROR', '0') == '1' else 'OFF'}",
    ]


def readme() -> str:
    """README.md, its links leading into the repository instead of to files beside it."""
    urls = re.search(r'^Repository = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert urls is not None, "pyproject.toml: no line Repository = ..."
    text = (ROOT / "README.md").read_text()
    # A picture has to be the file itself, not the page that shows it.
    text = re.sub(r"(!\[[^\]]*\])\((?!https?://|#)", rf"\1({urls[1]}/raw/main/", text)
    return re.sub(r"(\[[^\]]*\])\((?!https?://|#)", rf"\1({urls[1]}/blob/main/", text)


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
        cuda = cuda_switch(environ)
        # Unlike a traceback, an exit leaves the compiler's message at the end of the output.
        try:
            self.build(environ, cuda, "GPN_OPS_CUDA=0" if cuda == "0" else "")
        except BuildError as error:
            if cuda != "auto":
                sys.exit(str(error))
            try:
                self.build(environ, "0", "its build failed")
            except BuildError as cpu_error:
                sys.exit(str(cpu_error))
            print(
                f"{error}\ngpn_ops: WARNING: the CUDA library could not be built, see above. gpn_ops goes on "
                "without it: CUDA tensors are served by plain PyTorch. GPN_OPS_CUDA=1 makes this an error, "
                "GPN_OPS_CUDA=0 leaves CUDA out.",
                file=sys.stderr,
            )
        # A library of an earlier build with CUDA must not outlive a build without.
        if json.loads((self.package_dir / "_build_info.json").read_text())["cuda"] is None:
            (self.package_dir / "libgpn_ops_cuda.so").unlink(missing_ok=True)

    def build(self, environ: dict[str, str], cuda: str, without_cuda: str) -> None:
        cmake = shutil.which("cmake", path=environ["PATH"])
        build_dir = ROOT / "build" / "cmake"
        settings = cmake_settings(environ, cuda, without_cuda)
        for command in (
            [cmake, "-S", str(ROOT), "-B", str(build_dir), "-G", "Ninja", *settings],
            [cmake, "--build", str(build_dir)],
            [cmake, "--install", str(build_dir), "--prefix", str(self.package_dir)],
        ):
            output = run(command, environ)
            if self.verbose:
                print(output, end="", file=sys.stderr)

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
        long_description=readme(),
        long_description_content_type="text/markdown",
        cmdclass={"build_libraries": BuildLibraries, "bdist_wheel": PlatformWheel},
    )
