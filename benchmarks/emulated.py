"""What our operators cost on a GPU, counted while their CUDA kernels run on the CPU (tests/cpp/emulation).

    python benchmarks/emulated.py                                       # 256 molecules
    python benchmarks/emulated.py --graphs 1 --nodes 100000 --pairs 200000 --channels 8 --operators parse mask

prints one JSON object: the workload, and in ``calls`` every operator once. In a program::

    with Recorder() as calls:
        pool(x, edge_index)      # on the CPU, any code that calls our operators
    for counts in count(calls):
        print(counts["operator"], counts["launches"])

Every call has these keys, and each of its ``kernels`` has those marked with a star beside its ``name``:

``operator``, ``arguments``
    Its name without ``gpn::``; of each argument the value, or dtype and shape of a tensor.
``launches`` *
    Kernels, memsets (``memset``) and copies (``copy``), those inside of CUB included.
``waits``
    How often the host waits for the device.
``bytes_read``, ``bytes_written`` *
    What threads ask for, each time they do.
``sectors_read``, ``sectors_written`` *
    Sectors of 32 bytes, each once for an instruction of a warp: what comes out of the first-level cache if it
    holds nothing.
``distinct_read``, ``distinct_written`` *
    Sectors, each once a launch: what memory has to move if the cache forgets nothing.
``bytes_touched`` *
    32 times the distinct sectors, read and written.
``longest_chain`` *
    The most accesses of one thread in a launch.
``longest_loop`` *
    The most turns of one thread at one access: items that it takes in sequence.
``memory``
    Bytes that the call holds at most, results and scratch, in torch's blocks of 512.

For CUB, whose kernels do not run here, launches are those of its source and bytes the least that they can
move (``tests/cpp/emulation/cub/launches.h``); its chains and loops are 0. Before anything is returned, the
results are compared with those of the CPU.
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
