"""Loads the operator libraries, so that ``torch.ops.gpn`` exists.

The CPU library is required. The CUDA library is loaded where torch has CUDA of the same major version;
elsewhere :func:`cuda_status` keeps the reason, for the error on first use with CUDA tensors.
"""

import json
import os
from pathlib import Path
from typing import Any

import torch

from ._version import __version__

DIRECTORY = Path(__file__).resolve().parent
CPU_LIBRARY = DIRECTORY / "libgpn_ops.so"
CUDA_LIBRARY = DIRECTORY / "libgpn_ops_cuda.so"
BUILD_INFO = DIRECTORY / "_build_info.json"

_HOW_TO_BUILD = (
    "From a checkout, build it in place with `pip install --no-build-isolation -e .` "
    "(torch >= 2.10, cmake, ninja and a C++ compiler must be installed); otherwise reinstall gpn_ops. "
    f"For a bug report, run `python {DIRECTORY / 'collect_env.py'}`."
)

_cuda_reason: str | None = "gpn_ops._library was not loaded"


def build_info() -> dict[str, Any]:
    """What the build wrote beside the libraries; empty if nothing was built.

    Keys: ``version`` (of gpn_ops), ``torch`` (built against), ``cuda`` (None without the CUDA library),
    ``cuda_archs``, ``compiler``, ``build_type``.
    """
    return json.loads(BUILD_INFO.read_text()) if BUILD_INFO.exists() else {}


def cuda_loaded() -> bool:
    """Whether the operators have their CUDA kernels."""
    return _cuda_reason is None


def cuda_status() -> str:
    """``"loaded"``, or why the CUDA library is not."""
    return "loaded" if _cuda_reason is None else _cuda_reason


def _load(library: Path) -> None:
    """torch's ``load_library``, with what the system's loader said in the message."""
    try:
        torch.ops.load_library(library)
    except (OSError, RuntimeError) as error:
        raise ImportError(
            f"{library} does not load with torch {torch.__version__} (gpn_ops needs torch >= 2.10): "
            f"{error.__cause__ or error}"
        ) from error


def _load_cpu() -> None:
    if not CPU_LIBRARY.exists():
        raise ImportError(
            f"gpn_ops: the operator library is missing: {CPU_LIBRARY} does not exist. {_HOW_TO_BUILD}"
        )
    built = build_info().get("version")
    if built != __version__:
        raise ImportError(
            f"gpn_ops: the operator library {CPU_LIBRARY} was built for gpn_ops {built}, "
            f"but this is gpn_ops {__version__}. {_HOW_TO_BUILD}"
        )
    try:
        _load(CPU_LIBRARY)
    except ImportError as error:
        raise ImportError(f"gpn_ops: the operator library {error}. {_HOW_TO_BUILD}") from error


def _load_cuda() -> str | None:
    """None if the CUDA library was loaded, else the reason why not."""
    built, installed = build_info().get("cuda"), torch.version.cuda
    if built is None or not CUDA_LIBRARY.exists():
        return (
            "gpn_ops was built without CUDA. Rebuild it with GPN_OPS_CUDA=1 where nvcc is installed: "
            "`GPN_OPS_CUDA=1 pip install --no-build-isolation .`"
        )
    if os.environ.get("GPN_OPS_LOAD_CUDA") != "1":
        if installed is None:
            return f"torch {torch.__version__} is a build without CUDA"
        if built.split(".")[0] != installed.split(".")[0]:
            return (
                f"gpn_ops was built with CUDA {built}, but torch {torch.__version__} has CUDA {installed}: "
                "the major versions must be the same. Rebuild gpn_ops with the nvcc of that CUDA version, "
                "or install a torch for the other"
            )
    try:
        _load(CUDA_LIBRARY)
    except ImportError as error:
        return str(error)
    return None


_load_cpu()
_cuda_reason = _load_cuda()
