"""Builds the CUDA library against the CUDA build of torch, links it with nothing undefined, and loads it.

Run by the Python of an environment that has such a torch (`make cuda-link`). Needs nvcc and no GPU. One
architecture is enough: kernels for all of them are compiled by `make cuda`, and linking concerns the host.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "cuda-link"
PACKAGE = BUILD / "package"

LOAD = """
import json, torch, gpn_ops
from gpn_ops import _library
names = {schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("gpn::")}
with_kernel = {
    key: sorted(name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, key))
    for key in ("CPU", "CUDA")
}
print(json.dumps({"status": _library.cuda_status(), "from": str(_library.CUDA_LIBRARY), **with_kernel}))
"""


def run(*command: object, **options: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{done.stderr}\n{' '.join(map(str, command))}\nfailed, see above")
    return done.stdout


def main() -> None:
    if torch.version.cuda is None:
        sys.exit(f"torch {torch.__version__} is a build without CUDA")
    settings = [f"-DPython3_EXECUTABLE={sys.executable}", "-DGPN_OPS_CUDA=ON", "-DGPN_OPS_CUDA_ARCHS=90-real"]
    ninja = shutil.which("ninja", path=Path(sys.executable).parent) or "ninja"
    run("cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *settings)
    run("cmake", "--build", BUILD)

    # The library itself names no CUDA library of torch, so that it also builds against a CPU torch. Here the
    # same objects are linked with all of torch and without leave to miss a symbol.
    objects = sorted((BUILD / "CMakeFiles" / "gpn_ops_cuda.dir").rglob("*.o"))
    assert objects, "no objects were built"
    torch_lib = Path(torch.__file__).parent / "lib"
    libraries = [f"-L{torch_lib}", "-ltorch_cuda", "-ltorch_cpu", "-lc10"]
    linker = ["-Xlinker", "--no-undefined"]
    run(
        "nvcc",
        "-shared",
        "-cudart=static",
        *linker,
        *objects,
        *libraries,
        "-o",
        BUILD / "nothing_undefined.so",
    )
    print(f"linked against torch {torch.__version__} (CUDA {torch.version.cuda}): no undefined symbol")

    shutil.rmtree(PACKAGE, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.so", "*.json", "__pycache__")
    shutil.copytree(ROOT / "gpn_ops", PACKAGE / "gpn_ops", ignore=ignored)
    run("cmake", "--install", BUILD, "--prefix", PACKAGE / "gpn_ops")
    loaded = json.loads(run(sys.executable, "-c", LOAD, cwd=PACKAGE))
    if loaded["status"] != "loaded":
        sys.exit(f"the CUDA library was not loaded: {loaded['status']}")
    if not loaded["CPU"] or loaded["CPU"] != loaded["CUDA"]:
        sys.exit(f"kernels for the CPU: {loaded['CPU']}\nkernels for CUDA: {loaded['CUDA']}")
    print(f"loaded there, with kernels for {', '.join(loaded['CUDA'])}")


if __name__ == "__main__":
    main()
