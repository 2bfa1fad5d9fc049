"""Estimates the cost of parsing and coarsening a graph on given machines: memory, network and time per step.

    python benchmarks/scaling.py                             # the tables of docs/scaling.md
    python benchmarks/scaling.py --nodes 1e10 --edges 1e11   # another graph
    python benchmarks/scaling.py --write docs/scaling.md     # put the tables into the page

All figures are estimates. On CPUs: the costs that benchmarks/distributed.py measured (one thread, CPU time,
shuffled edges), divided evenly among the threads, but no faster than the memory bandwidth. On GPUs: the high
bound of benchmarks/traffic.py at the peak bandwidth of the card. On the network: the bytes of the collectives
at the peak rate of the link. Bandwidths are the vendors' public figures.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import common
from pages.distributed import rank_table
from traffic_model import CARDS, Size, steps_of

SECONDS, GB = 1e-9, 1e9


class Machine(NamedTuple):
    """The resources of one rank, and the number of ranks."""

    ranks: int
    memory: float  # GB
    bandwidth: float  # GB/s, of the memory
    link: float  # GB/s, one way, from a rank to other ranks
    ring: float  # GB/s, one way, from a rank to the next in an all-reduce
    threads: int = 0  # 0: a GPU


# Two AMD EPYC 9654: 2 x 96 cores, 2 x 12 channels of DDR5-4800; 24 modules of 64 GB; 400 Gb/s InfiniBand.
# H100 SXM: 80 GB; NVLink 900 GB/s both ways together; DGX H100: 8 GPUs with a 400 Gb/s
# port each; NCCL lays a ring through each port, so that an all-reduce leaves a machine through all eight.
EPYC = Machine(ranks=1, memory=1536, bandwidth=921.6, link=50, ring=50, threads=192)
H100 = Machine(ranks=8, memory=80, bandwidth=CARDS["H100 SXM"], link=450, ring=450)
MACHINES = {
    "1 server (2 x EPYC 9654)": EPYC,
    "8 servers, 400 Gb/s": EPYC._replace(ranks=8),
    "64 servers, 400 Gb/s": EPYC._replace(ranks=64),
    "1 DGX H100 (8 GPUs)": H100,
    "2 DGX H100 (16 GPUs)": H100._replace(ranks=16, link=50, ring=400),
    "8 DGX H100 (64 GPUs)": H100._replace(ranks=64, link=50, ring=400),
}


class Graph(NamedTuple):
    nodes: float
    edges: float  # stored; both directions of an undirected edge count


class Step(NamedTuple):
    """A step on one rank: bytes held while it runs (beside the edges themselves), bytes sent, seconds."""

    name: str
    held: float
    sent: float
    seconds: float
    shrinks: bool  # with more ranks


def steps(graph: Graph, machine: Machine, costs: dict[str, float]) -> list[Step]:
    n, ranks = graph.nodes, machine.ranks
    m = graph.edges / ranks
    coarse = m * costs["coarse_edges_per_edge"]

    def compute(ns: float, count: float, least_bytes: float, operator: str, edges: float) -> float:
        if machine.threads:
            return max(ns * SECONDS * count / machine.threads, least_bytes / (machine.bandwidth * GB))
        size = Size(nodes=int(n), edges=int(edges), clusters=int(n), channels=0)
        return sum(step.high(size) for step in steps_of(operator, size)) / (machine.bandwidth * GB)

    # As gpn_ops.distributed.parse chooses: a code of 4 bytes, and a claim of 4 or 8.
    claim = 4 if ranks << (int(n) - 1).bit_length() <= 2**31 else 8
    exchanged = 2 * (ranks - 1) / ranks * (4 + claim) * n
    keys_bytes = 50 * n  # dominant edge, score, column, and the tile's own reads and writes
    several = ranks > 1  # one rank calls gpn_ops.parse and gpn_ops.coarsen, and is done
    keys = costs["keys_ns_per_node"] * SECONDS * n / machine.threads if machine.threads else 0.0
    moved = (ranks - 1) / ranks * 16 * coarse
    # What the operator takes beside its result: keys on the CPU; keys, sorted keys and CUB's buffer on CUDA.
    scratch = 8 if machine.threads else 24
    merge = costs["coarsen_shuffled_ns_per_edge"], coarse, 40 * coarse, "coarsen", coarse
    return [
        Step(
            "parse: dominant edges of the shard",
            8 * n,
            0,
            compute(costs["dominant_shuffled_ns_per_edge"], m, 20 * m, "dominant", m),
            True,
        ),
        Step(
            "parse: keys",
            several * 24 * n,
            0,
            several * max(keys, keys_bytes / (machine.bandwidth * GB)),
            False,
        ),
        Step("parse: two all-reduces", several * 24 * n, exchanged, exchanged / (machine.ring * GB), False),
        Step(
            "parse: components",
            28 * n,
            0,
            compute(costs["components_ns_per_node"], n, 60 * n, "components", n),
            False,
        ),
        Step(
            "coarsen: the shard",
            8 * n + scratch * m + 16 * coarse,
            0,
            compute(costs["coarsen_shuffled_ns_per_edge"], m, 40 * m, "coarsen", m),
            True,
        ),
        Step(
            "coarsen: rows to their owners",
            several * (8 * n + 32 * coarse),
            moved,
            moved / (machine.link * GB),
            True,
        ),
        Step(
            "coarsen: join duplicates",
            several * (8 * n + (32 + scratch) * coarse),
            0,
            several * compute(*merge),
            True,
        ),
    ]


def measured() -> dict[str, Any]:
    path = common.RESULTS / "distributed_cpu.json"
    if not path.exists():
        raise SystemExit(f"no measured costs in {path.name}: run `python benchmarks/distributed.py` first")
    return json.loads(path.read_text())


def figure(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def tables(graph: Graph, costs: dict[str, float]) -> str:
    every = {name: steps(graph, machine, costs) for name, machine in MACHINES.items()}
    names = [step.name for step in next(iter(every.values()))]
    header = ["", *MACHINES]

    def rows(what: str, unit: float) -> list[list[str]]:
        return [
            [name, *(figure(getattr(found[position], what) / unit) for found in every.values())]
            for position, name in enumerate(names)
        ]

    edges = [20 * graph.edges / machine.ranks / GB for machine in MACHINES.values()]
    most = [
        edge + max(step.held for step in found) / GB
        for edge, found in zip(edges, every.values(), strict=True)
    ]
    memory = [
        ["the edges (16 bytes) and scores (4)", *map(figure, edges)],
        *rows("held", GB),
        ["**most at a time**", *(f"**{figure(gb)}**" for gb in most)],
        ["a rank has", *(figure(machine.memory) for machine in MACHINES.values())],
        [
            "fits",
            *("yes" if gb < m.memory else "**no**" for gb, m in zip(most, MACHINES.values(), strict=True)),
        ],
    ]
    total = [sum(step.seconds for step in found) for found in every.values()]
    fixed = [
        sum(step.seconds for step in found if not step.shrinks) / seconds
        for found, seconds in zip(every.values(), total, strict=True)
    ]
    time = [
        *rows("seconds", 1),
        ["**all steps**", *(f"**{figure(seconds)}**" for seconds in total)],
        ["of which no further rank takes away", *(f"{share:.0%}" for share in fixed)],
    ]
    wire = [
        *rows("sent", GB),
        ["**all steps**", *(figure(sum(s.sent for s in f) / GB) for f in every.values())],
    ]
    wire = [row for row in wire if any(cell != "0" for cell in row[1:])]
    sections = {
        "Memory of a rank, GB": memory,
        "Sent by a rank, GB": wire,
        "Time, s": time,
    }
    return "\n\n".join(
        f"**{title}** (estimate)\n\n{common.table(header, body)}" for title, body in sections.items()
    )


def cost_table(costs: dict[str, float]) -> str:
    rows = [[f"`{name}`", figure(cost)] for name, cost in costs.items()]
    return common.table(["measured, one thread", ""], rows)


def page_with(page: str, parts: dict[str, str]) -> str:
    """The page, with the text between the marks of each part replaced."""
    for name, text in parts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        page, count = re.subn(
            re.escape(begin) + ".*?" + re.escape(end),
            lambda _, text=text, begin=begin, end=end: f"{begin}{text}\n{end}",
            page,
            flags=re.DOTALL,
        )
        if count != 1:
            raise SystemExit(f"expected one part {name!r} in the page, found {count}")
    return page


DOCUMENTED = Graph(nodes=1e9, edges=1e10)


def parts(graph: Graph) -> dict[str, str]:
    results, costs = measured()["results"], measured()["costs"]
    return {
        "ranks": rank_table(results),
        "costs": cost_table(costs),
        "tables": tables(graph, costs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=float, default=DOCUMENTED.nodes)
    parser.add_argument("--edges", type=float, default=DOCUMENTED.edges, help="stored edges")
    parser.add_argument("--write", type=Path, help="a page with marked parts to be replaced")
    options = parser.parse_args()
    found = parts(Graph(options.nodes, options.edges))
    if options.write:
        options.write.write_text(page_with(options.write.read_text(), found))
    else:
        print("\n\n".join(found.values()))


if __name__ == "__main__":
    main()
