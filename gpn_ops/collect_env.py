"""Prints what a bug report needs: ``python -m gpn_ops.collect_env``.

If gpn_ops cannot be imported, run this file by its path: it needs nothing else and reports why.
"""

import os
import platform
import subprocess
import sys
from importlib import import_module, metadata


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _line_of(*command: str, line: int = 0) -> str:
    """One line of what a program prints."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[line]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "not found"


def _libraries() -> dict[str, str]:
    try:
        library = import_module("gpn_ops.library")
    except ImportError as error:
        return {"CPU library": f"NOT LOADED: {error}"}
    return {
        "built with": ", ".join(f"{key} {value}" for key, value in library.build_info().items()),
        "CPU library": f"loaded from {library.CPU_LIBRARY}",
        "CUDA library": library.cuda_status(),
        "CUDA driver": ".".join(map(str, library.driver_version() or ["none"])),
    }


def _torch() -> dict[str, str]:
    try:
        import torch
    except ImportError as error:
        return {"torch": f"NOT LOADED: {error}"}
    gpus = [
        "{} (compute capability {}.{})".format(
            torch.cuda.get_device_name(index), *torch.cuda.get_device_capability(index)
        )
        for index in range(torch.cuda.device_count())
    ]
    return {
        "torch": torch.__version__,
        "torch CUDA": torch.version.cuda or "none (a build without CUDA)",
        "torch threads": str(torch.get_num_threads()),
        "GPUs": ", ".join(gpus) or "none",
    }


def collect() -> dict[str, str]:
    """The report as ordered (name, value) pairs."""
    switches = sorted(name for name in os.environ if name.startswith("GPN_OPS_"))
    switches += [
        "CUDA_HOME",
        "CUDA_VISIBLE_DEVICES",
        "LD_LIBRARY_PATH",
        "OMP_NUM_THREADS",
        "TORCH_CUDA_ARCH_LIST",
    ]
    return {
        "gpn_ops": _version_of("gpn_ops"),
        # torch first: if it finds GPUs it starts CUDA, and only then is the CUDA library loaded.
        **_torch(),
        **_libraries(),
        "torch_geometric": _version_of("torch_geometric"),
        "Python": f"{sys.version.split()[0]} ({sys.executable})",
        "platform": f"{platform.platform()}, {os.cpu_count()} processors",
        "C++ compiler": _line_of(os.environ.get("CXX", "c++"), "--version"),
        "nvcc": _line_of("nvcc", "--version", line=-1),
        "cmake": _line_of("cmake", "--version"),
        **{name: os.environ.get(name, "not set") for name in switches},
    }


if __name__ == "__main__":
    for name, value in collect().items():
        print(f"{name}: {value}")
