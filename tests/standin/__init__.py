"""A stand-in accelerator: every line that a GPU user's command reaches can run where there is no GPU.

``device="standin"`` is a device of our own (device.cpp), known to torch as an accelerator. Its memory is host
memory that CPU code cannot reach (memory.h), its ``gpn`` operators are the host code and the kernels of the
CUDA library, run by the emulation (kernels.cpp), its aten operators run on the CPU.

    python -m standin              # from tests/: builds the library
    pytest --device standin        # builds it too, then runs the tests that take a device on it

Any command runs with it under :func:`environment`, for which torch loads it by itself:

    env $(python -m standin --environment) python benchmarks/memory.py --device standin --quick

What it cannot show: times, real concurrency (its streams run in order, at once), the compiler of CUDA.
"""

import ctypes
import fcntl
import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple

# torch is imported where it is needed: this module is imported by torch, or before it.

NAME = "standin"
SOURCE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("GPN_OPS_STANDIN_BUILD", SOURCE.parent.parent / "build" / "standin"))
LIBRARY = BUILD / "standin.so"
SITE = BUILD / "site"  # what makes torch find the device


def build() -> None:
    """Bring the library up to date. Safe where several processes ask for it."""
    BUILD.mkdir(parents=True, exist_ok=True)
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    (directory,) = importlib.util.find_spec("torch").submodule_search_locations
    found = f"-DTORCH_DIRECTORY={directory}"

    def run(*command: str) -> None:
        ended = subprocess.run(command, env=tools, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{ended.stdout}{ended.stderr}")

    with open(BUILD / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run("cmake", "-S", str(SOURCE), "-B", str(BUILD), "-G", "Ninja", found)
        run("cmake", "--build", str(BUILD))
        package = SITE / f"{NAME}-0.dist-info"
        package.mkdir(parents=True, exist_ok=True)
        (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0\n")
        (package / "entry_points.txt").write_text(f"[torch.backends]\n{NAME} = {NAME}:load\n")


def environment() -> dict[str, str]:
    """What to set so that torch loads the device when it is imported, there and in every process below."""
    path = [str(SITE), str(SOURCE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path)}


def load() -> None:
    """Make the device known to torch; once."""
    import torch

    if hasattr(torch, NAME):
        return
    if not LIBRARY.exists():
        raise RuntimeError(f"{LIBRARY} does not exist: run `python -m standin` in {SOURCE.parent}")
    if str(SITE) not in sys.path:
        sys.path.append(str(SITE))  # which spawned processes take over
    torch.utils.rename_privateuse1_backend(NAME)
    torch.ops.load_library(LIBRARY)
    torch._register_device_module(NAME, _module())
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)


class Properties(NamedTuple):
    """What ``torch.cuda.get_device_properties`` gives, as far as it is used."""

    name: str
    total_memory: int
    multi_processor_count: int = 1


def _module() -> types.ModuleType:
    """``torch.standin``: what torch itself, and code that asks ``torch.get_device_module``, calls."""
    import torch

    library = ctypes.CDLL(str(LIBRARY))
    library.standin_total_memory.restype = ctypes.c_int64
    library.standin_waits.restype = ctypes.c_int64
    library.standin_launches.restype = ctypes.c_int64
    module = types.ModuleType(f"torch.{NAME}", __doc__)
    accelerator, operators = torch.accelerator, getattr(torch.ops, NAME)

    def index_of(device: Any = None) -> int:
        if device is None:
            return accelerator.current_device_index()
        index = device if isinstance(device, int) else torch.device(device).index
        return accelerator.current_device_index() if index is None else index

    def manual_seed_all(seed: int) -> None:
        for device in range(library.standin_devices()):
            operators.seed(device, seed % 2**63)

    def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
        total = library.standin_total_memory(index_of(device))
        library.standin_limit_memory(index_of(device), ctypes.c_int64(int(fraction * total)))

    def get_device_properties(device: Any = None) -> Properties:
        return Properties(get_device_name(device), library.standin_total_memory(index_of(device)))

    def get_device_name(device: Any = None) -> str:
        return f"Stand-in {index_of(device)}"

    functions = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: bool(library.standin_in_bad_fork()),
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "device_count": library.standin_devices,
        "current_device": accelerator.current_device_index,
        "set_device": lambda device: accelerator.set_device_index(index_of(device)),
        "synchronize": lambda device=None: accelerator.synchronize(index_of(device)),
        "current_stream": accelerator.current_stream,
        "get_device_name": get_device_name,
        "get_device_properties": get_device_properties,
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
        "manual_seed": lambda seed: operators.seed(index_of(), seed % 2**63),
        "manual_seed_all": manual_seed_all,
        "get_rng_state": lambda device=None: operators.get_rng_state(index_of(device)),
        "set_rng_state": lambda state, device=None: operators.set_rng_state(index_of(device), state),
        "set_per_process_memory_fraction": set_per_process_memory_fraction,
        "memory_allocated": lambda device=None: accelerator.memory_allocated(index_of(device)),
        "max_memory_allocated": lambda device=None: accelerator.max_memory_allocated(index_of(device)),
        "reset_peak_memory_stats": lambda device=None: accelerator.reset_peak_memory_stats(index_of(device)),
        "empty_cache": accelerator.empty_cache,
        # The rest is for tests.
        "waits": library.standin_waits,
        "launches": library.standin_launches,
        "clear": library.standin_clear,
        "schedule": lambda policy, seed: library.standin_schedule(policy, ctypes.c_uint64(seed)),
        "read_on_host": lambda tensor: library.standin_read_on_host(ctypes.c_void_p(tensor.data_ptr())),
        "read_on_device": lambda tensor: library.standin_read_on_device(ctypes.c_void_p(tensor.data_ptr())),
    }
    module.__dict__.update(functions)
    module.device = lambda device: accelerator.device_index(index_of(device))
    return module
