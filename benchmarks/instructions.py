"""Instructions of the CPU kernels, counted by callgrind."""

import functools
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BASELINE = Path(__file__).resolve().parent / "baseline.json"
ROOT = BASELINE.parent.parent


@functools.cache
def counting_program() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="gpn_ops_count_"))
    settings = ["-DGPN_OPS_LIBRARIES=OFF", "-DGPN_OPS_TESTS=ON", "-DCMAKE_BUILD_TYPE=Release"]
    for command in (
        ["cmake", "-S", ROOT, "-B", folder, *settings],
        ["cmake", "--build", folder, "--target", "count_kernels"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return next(folder.rglob("count_kernels"))


def count_instructions(kernel: str, num_nodes: int) -> int:
    """Instructions of a kernel on a random graph with 4n directed edges, on one thread."""
    if not (shutil.which("valgrind") and shutil.which("cmake")):
        sys.exit("counting instructions needs valgrind and cmake")
    options = ["--tool=callgrind", "--toggle-collect=counted", "--callgrind-out-file=/dev/null"]
    command = ["valgrind", *options, str(counting_program()), kernel, str(num_nodes)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", run.stderr)
    assert found is not None, run.stderr
    return int(found.group(1))
