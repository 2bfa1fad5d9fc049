"""The cost of our operators on a GPU, counted while their CUDA kernels run on the CPU (tests/cpp/emulation).

    python benchmarks/emulated.py                                       # 256 molecules
    python benchmarks/emulated.py --graphs 1 --nodes 100000 --pairs 200000 --channels 8 --operators parse mask

This prints one JSON object: the workload, and in ``calls`` every operator once. In a program::

    with Recorder() as calls:
        pool(x, edge_index)      # on the CPU, any code that calls our operators
    for counts in count(calls):
        print(counts["operator"], counts["launches"])

Every call has these keys, and each of its ``kernels`` has those marked with a star beside its ``name``:

``operator``, ``arguments``
    Its name without ``gpn::``; the value of each argument, or dtype and shape if it is a tensor.
``launches`` *
    Kernels, memsets (``memset``) and copies (``copy``), including those of CUB.
``waits``
    How often the host waits for the device.
``bytes_read``, ``bytes_written`` *
    Every access of every thread.
``sectors_read``, ``sectors_written`` *
    Sectors of 32 bytes, each once per instruction of a warp: the traffic behind a first-level cache that
    keeps nothing.
``distinct_read``, ``distinct_written`` *
    Sectors, each once per launch: the traffic behind a cache that keeps everything.
``bytes_touched`` *
    32 times the distinct sectors, read and written.
``longest_chain`` *
    The most accesses of one thread in a launch.
``longest_loop`` *
    The most iterations of one thread at one access: the items that it handles in sequence.
``memory``
    The peak bytes of the call, results and scratch, in torch's blocks of 512.

The kernels of CUB do not run here. Their launches follow its source, their bytes are the least that they can
move (``tests/cpp/emulation/cub/launches.h``), and their chains and loops are 0. The results of all operators
are compared with those of the CPU before any figure is returned.
"""

import argparse
import json

from emulation import Workload, count_operators


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in Workload._field_defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--operators", nargs="*", default=(), help="only these")
    options = vars(parser.parse_args())
    wanted = options.pop("operators")
    workload = Workload(**options)
    print(json.dumps({"workload": workload._asdict(), "calls": count_operators(workload, wanted)}, indent=1))


if __name__ == "__main__":
    main()
