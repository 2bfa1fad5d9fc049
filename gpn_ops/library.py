"""Loads the operator libraries, so that ``torch.ops.gpn`` exists.

The CPU library is required. The CUDA library is loaded when torch starts to use CUDA, if the driver can run
it and it has code for every GPU that torch sees. It has its own CUDA runtime, so the CUDA version of torch
does not matter. If it cannot be loaded, :func:`cuda_status` keeps the reason, for the warning on first use
with CUDA tensors.

Nothing of CUDA runs at import: asking for a GPU's capability starts CUDA, and a process must not fork after
that.
"""

import ctypes
import json
import os
import re
from importlib import metadata
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

WAITING = "loaded when torch starts to use CUDA"

_cuda_reason: str | None = WAITING


def build_info() -> dict[str, Any]:
    """The information that the build wrote beside the libraries; empty if nothing was built.

    Keys: ``version`` (of gpn_ops), ``torch`` (built against), ``cuda`` (None without the CUDA library),
    ``cuda_archs`` (as CMake writes them), ``without_cuda`` (why), ``compiler``, ``build_type``.
    """
    return json.loads(BUILD_INFO.read_text()) if BUILD_INFO.exists() else {}


def cuda_loaded() -> bool:
    """Whether the operators have their CUDA kernels."""
    return _cuda_reason is None


def cuda_status() -> str:
    """``"loaded"``, :data:`WAITING`, or why the CUDA library is not loaded."""
    return "loaded" if _cuda_reason is None else _cuda_reason


def _load(library: Path) -> None:
    """torch's ``load_library``, with the message of the system's loader in the error."""
    try:
        torch.ops.load_library(library)
    except (OSError, RuntimeError) as error:
        raise ImportError(
            f"{library} does not load with torch {torch.__version__} (gpn_ops needs torch >= 2.10): "
            f"{error.__cause__ or error}"
        ) from error


def _hidden() -> str:
    """A hint if this checkout hides an installed gpn_ops."""
    for distribution in metadata.distributions(name="gpn_ops"):
        installed = Path(str(distribution.locate_file("gpn_ops"))).resolve()
        if installed != DIRECTORY and (installed / CPU_LIBRARY.name).exists():
            return f" It hides the gpn_ops that is installed in {installed}, which works from other folders."
    return ""


def _load_cpu() -> None:
    if not CPU_LIBRARY.exists():
        raise ImportError(
            f"gpn_ops: the operator library is missing: {CPU_LIBRARY} does not exist."
            f"{_hidden()} {_HOW_TO_BUILD}"
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


def driver_version() -> tuple[int, int] | None:
    """The newest CUDA version that the driver supports, or None without a driver. Does not start CUDA."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


def code_for(archs: str, capability: tuple[int, int]) -> str | None:
    """The code for a GPU in a library built for ``archs``: ``"cubin"``, ``"ptx"`` or None.

    Code for sm_XY runs on X.Z for Z >= Y. The driver compiles PTX for compute_XY on every GPU from X.Y on.
    Code with a suffix (90a, 100f) is for one GPU or family and counts for its own number only.
    """
    major, minor = capability
    found = None
    for arch in archs.split(";"):
        parts = re.fullmatch(r"(\d+)(\d)([af]?)(-real|-virtual)?", arch)
        if parts is None:  # "native", "all": only CMake knows what these meant
            return "cubin"
        built = int(parts[1]), int(parts[2])
        fits = built == capability if parts[3] else built[0] == major and built[1] <= minor
        if fits and parts[4] != "-virtual":
            return "cubin"
        if parts[4] != "-real" and (built == capability if parts[3] else built <= capability):
            found = "ptx"
    return found


def _why_not_on(gpu: str, capability: tuple[int, int], driver: tuple[int, int] | None) -> str | None:
    """Why the CUDA library cannot serve a GPU, or None."""
    info = build_info()
    built = tuple(int(number) for number in info["cuda"].split("."))
    code = code_for(info["cuda_archs"], capability)
    if code is None:
        return (
            f"gpn_ops was built for {info['cuda_archs']}, which has no code for {gpu} (compute capability "
            f"{capability[0]}.{capability[1]}). Rebuild it with `GPN_OPS_CUDA=1 "
            f"GPN_OPS_CUDA_ARCHS={capability[0]}{capability[1]} pip install --no-build-isolation .`"
        )
    # Within a major version, drivers run code of newer CUDA versions but do not compile their PTX.
    needed = built if code == "ptx" else (built[0], 0)
    if driver is not None and driver < needed:
        return (
            f"gpn_ops was built with CUDA {info['cuda']} and needs a driver for CUDA {needed[0]}.{needed[1]} "
            f"or newer on {gpu}, but the driver is for {driver[0]}.{driver[1]}. Update the driver, or "
            "rebuild gpn_ops with an older nvcc"
        )
    return None


def _load_cuda_library() -> str | None:
    try:
        _load(CUDA_LIBRARY)
    except ImportError as error:
        return str(error)
    return None


def _load_cuda_for_gpus() -> None:
    """Runs when torch has started CUDA. An exception here would surface in ``torch.cuda.init()``."""
    global _cuda_reason
    driver = driver_version()
    _cuda_reason = None
    for index in range(torch.cuda.device_count()):
        gpu = f"GPU {index}, {torch.cuda.get_device_name(index)}"
        _cuda_reason = _cuda_reason or _why_not_on(gpu, torch.cuda.get_device_capability(index), driver)
    _cuda_reason = _cuda_reason or _load_cuda_library()


def _load_cuda() -> None:
    global _cuda_reason
    info = build_info()
    if info.get("cuda") is None or not CUDA_LIBRARY.exists():
        why = info.get("without_cuda") or "its library is missing"
        _cuda_reason = (
            f"gpn_ops was built without CUDA ({why}). Rebuild it with GPN_OPS_CUDA=1 where nvcc is "
            "installed: `GPN_OPS_CUDA=1 pip install --no-build-isolation .`"
        )
    elif os.environ.get("GPN_OPS_LOAD_CUDA") == "1":
        _cuda_reason = _load_cuda_library()
    elif torch.version.cuda is None:
        _cuda_reason = f"torch {torch.__version__} is a build without CUDA"
    else:
        _cuda_reason = WAITING
        # torch's own check of capabilities is queued the same way. If CUDA has started, this calls at once.
        torch.cuda._lazy_call(_load_cuda_for_gpus)


_load_cpu()
_load_cuda()
