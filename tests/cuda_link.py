"""Builds the CUDA library once, links it beside other builds of torch with nothing undefined, loads it there.

    python tests/cuda_link.py PYTHON...     # interpreters of environments that have a torch with CUDA

`make cuda-link` does. Needs nvcc and no GPU. One architecture is enough: kernels for all of them are compiled
by `make cuda`, and linking concerns the host.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "cuda-link"
PACKAGE = BUILD / "package"

FIND = """
import json, pathlib, torch
lib = pathlib.Path(torch.__file__).parent / "lib"
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "lib": str(lib)}))
"""

LOAD = """
import json, torch, gpn_ops
from gpn_ops import library
names = {schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("gpn::")}
with_kernel = {
    key: sorted(name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, key))
    for key in ("CPU", "CUDA")
}
print(json.dumps({"status": library.cuda_status(), "waiting": library.WAITING, **with_kernel}))
"""


def run(*command: object, **options: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{done.stderr}\n{' '.join(map(str, command))}\nfailed, see above")
    return done.stdout


def build() -> None:
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    settings = [f"-DPython3_EXECUTABLE={sys.executable}", "-DGPN_OPS_CUDA=ON", "-DGPN_OPS_CUDA_ARCHS=90-real"]
    run("cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", *settings, env=environ)
    run("cmake", "--build", BUILD, env=environ)
    shutil.rmtree(PACKAGE, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.so", "*.json", "__pycache__")
    shutil.copytree(ROOT / "gpn_ops", PACKAGE / "gpn_ops", ignore=ignored)
    run("cmake", "--install", BUILD, "--prefix", PACKAGE / "gpn_ops", env=environ)


def check(python: str) -> None:
    """One environment: nothing undefined, and loaded when asked for."""
    found = json.loads(run(python, "-c", FIND))
    if found["cuda"] is None:
        sys.exit(f"torch {found['torch']} is a build without CUDA")
    # The library itself names no CUDA library of torch, so that it also builds against a CPU torch. Here the
    # same objects are linked with all of torch and without leave to miss a symbol.
    directory = BUILD / "CMakeFiles" / "gpn_ops_cuda.dir" / "csrc" / "cuda"
    objects = [directory / f"{source.name}.o" for source in sorted((ROOT / "csrc" / "cuda").glob("*.cu"))]
    assert objects, "the sources were not found"
    libraries = [f"-L{found['lib']}", "-ltorch_cuda", "-ltorch_cpu", "-lc10"]
    linker = ["-shared", "-cudart=static", "-Xlinker", "--no-undefined"]
    run("nvcc", *linker, *objects, *BUILD.glob("*.a"), *libraries, "-o", BUILD / "nothing_undefined.so")
    print(f"linked beside torch {found['torch']} (CUDA {found['cuda']}): no undefined symbol")

    waiting = json.loads(run(python, "-c", LOAD, cwd=PACKAGE))
    if waiting["status"] != waiting["waiting"] or waiting["CUDA"]:
        sys.exit(f"before torch uses CUDA: {waiting}")
    loaded = json.loads(run(python, "-c", LOAD, cwd=PACKAGE, env={**os.environ, "GPN_OPS_LOAD_CUDA": "1"}))
    if loaded["status"] != "loaded":
        sys.exit(f"the CUDA library was not loaded: {loaded['status']}")
    if not loaded["CUDA"] or loaded["CPU"] != loaded["CUDA"]:
        sys.exit(f"kernels for the CPU: {loaded['CPU']}\nkernels for CUDA: {loaded['CUDA']}")
    print(f"loaded there, with kernels for {len(loaded['CUDA'])} operators")


if __name__ == "__main__":
    build()
    for interpreter in sys.argv[1:]:
        check(os.path.abspath(interpreter))  # not resolve(): the link is what makes it the environment's
