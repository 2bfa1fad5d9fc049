"""Assembles the CUDA kernels with the ptxas of an older CUDA (`make cuda-old-ptxas`). Needs nvcc and no GPU.

Older compilers come as a whole only with a CUDA installation, but their assembler is on PyPI. nvcc makes PTX
of every source; its header is set back to the PTX version of the old assembler, which then has to know every
instruction in it. This says nothing of the older front end and its headers.

    python tests/cuda_old_ptxas.py build/ptxas-12.6/nvidia/cuda_nvcc/bin/ptxas
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
# What cmake/cuda_archs.cmake chooses for compilers of CUDA 12.0 to 12.6.
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{done.stderr}\n{' '.join(map(str, command))}\nfailed, see above")
    return done.stdout


def ptx_version(ptxas: Path, directory: Path) -> str:
    """The newest PTX that an assembler takes, which it tells when it gets a newer one."""
    newest = directory / "newest.ptx"
    newest.write_text(".version 99.0\n.target sm_75\n.address_size 64\n")
    said = subprocess.run(
        [ptxas, "-arch=sm_75", newest, "-o", "/dev/null"], capture_output=True, text=True
    ).stderr
    found = re.search(r"current version is '([\d.]+)'", said)
    if found is None:
        sys.exit(f"{ptxas} did not tell its PTX version: {said}")
    return found[1]


def main() -> None:
    ptxas = Path(sys.argv[1]).resolve()
    release = re.search(r"release ([\d.]+)", run(ptxas, "--version"))
    assert release is not None
    include = Path(torch.__file__).parent / "include"
    settings = ["-std=c++20", "-DUSE_CUDA", "-DTORCH_TARGET_VERSION=0x020a000000000000", "-DNDEBUG", "-O3"]
    sources = sorted((ROOT / "csrc" / "cuda").glob("*.cu"))
    assert sources, "no sources were found"
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        version = ptx_version(ptxas, directory)
        for source in sources:
            ptx = directory / "source.ptx"
            paths = ["-I", ROOT / "csrc", "-isystem", include]
            run("nvcc", *settings, *paths, "-arch=compute_75", "-ptx", source, "-o", ptx)
            text, count = re.subn(r"(?m)^\.version .*$", f".version {version}", ptx.read_text())
            assert count == 1, "the header of the PTX was not found"
            assert ".entry" in text, "there is no kernel"
            ptx.write_text(text)
            for architecture in ARCHITECTURES:
                run(ptxas, f"-arch={architecture}", ptx, "-o", "/dev/null")
            print(f"{source.name}: ptxas {release[1]} assembles it for {', '.join(ARCHITECTURES)}")


if __name__ == "__main__":
    main()
