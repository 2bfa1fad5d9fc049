"""Packages a graph classifier for a program without Python: AOTInductor compiles it in static form.

main.cpp, beside this file, loads the package, pads a batch of graphs to the sizes that the package was
compiled for, and classifies it:

    python examples/cpp/export.py --package classifier.pt2 --batch batch.pt
    torch=$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')
    library=$(python -c 'import gpn_ops.library as library; print(library.CPU_LIBRARY)')
    cmake -S examples/cpp -B build/classify -DCMAKE_PREFIX_PATH="$torch" -DGPN_OPS_LIBRARY="$library"
    cmake --build build/classify
    build/classify/classify classifier.pt2 batch.pt

Needs a C++ compiler; compiling takes a while. The model is not trained here: load your weights into it.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Linear

from gpn_ops.nn import Capacity, ParseHierarchy, ParsePooling, UndirectedGCNConv, halving, pad

BATCH_SIZE, CLASSES = 4, 3
# Room for a batch: one eighth more than the largest one, with a node of padding.
CAPACITY = Capacity(nodes=64, edges=144)


class Classifier(torch.nn.Module):
    """The logits of every graph, and whether a level overflowed, which makes all logits NaN."""

    def __init__(self, in_channels: int, hidden: int, height: int):
        super().__init__()
        self.encoder = Linear(in_channels, hidden)
        self.levels = ParseHierarchy(ParsePooling(hidden), UndirectedGCNConv(hidden, hidden))
        self.head = Linear(hidden, CLASSES)
        # Enough for connected graphs. A higher tree is an overflow too.
        self.capacity = halving(CAPACITY, BATCH_SIZE, height)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        x, tree = self.levels(self.encoder(x), edge_index, None, batch, BATCH_SIZE, self.capacity)
        assert tree.overflow is not None
        return self.head(x), tree.overflow


def rings(sizes: list[int], channels: int) -> tuple[Tensor, Tensor, Tensor]:
    """A batch of rings: features, edges, and the graph of every node."""
    node, parts = 0, []
    for size in sizes:
        ring = torch.arange(size)
        parts.append(torch.stack([ring, (ring + 1) % size]) + node)
        node += size
    edge_index = torch.cat(parts, dim=1)
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return torch.randn(node, channels), torch.cat([edge_index, edge_index.flip(0)], dim=1), batch


def main(argv: list[str] | None = None) -> Tensor:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", type=Path, default="classifier.pt2")
    parser.add_argument("--batch", type=Path, default="batch.pt", help="where to write a batch to classify")
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--height", type=int, default=5, help="the largest number of levels")
    args = parser.parse_args(argv)

    torch.manual_seed(0)
    model = Classifier(8, args.hidden, args.height).eval()
    x, edge_index, batch = rings([5, 12, 9, 20], 8)
    padded = pad(x, edge_index, None, batch, CAPACITY, BATCH_SIZE)
    inputs = (padded.x, padded.edge_index, padded.batch)
    with torch.no_grad():
        program = torch.export.export(model, inputs)
        # The package also carries the sizes that main.cpp needs.
        sizes = {"nodes": CAPACITY.nodes, "edges": CAPACITY.edges, "batch_size": BATCH_SIZE}
        torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(args.package),
            inductor_configs={"aot_inductor.metadata": {name: str(size) for name, size in sizes.items()}},
        )
        torch.save({"x": x, "edge_index": edge_index, "batch": batch}, args.batch)
        logits, overflow = model(*inputs)
    print(f"{args.package}: {sizes}, overflow {overflow.item()}")
    return logits


if __name__ == "__main__":
    print(main())
