"""`torch.compile`, `torch.export` and AOTInductor on a model that pools, for graphs of any size.

The package that AOTInductor writes needs no Python of gpn_ops, only `torch.ops.load_library` on
`gpn_ops/libgpn_ops.so`. The same holds for the default scorer and DeepSets. In an exported program, these
store rows of features for all edges and nodes at once; the one-layer scorer and the plain reduction used here
never do. cpp/export.py exports a whole hierarchy for a C++ program. Needs a C++ compiler; compiling takes a
while.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Linear

from gpn_ops.nn import ParsePooling


class Net(torch.nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.encoder = Linear(channels, channels)
        self.pool = ParsePooling(channels, scorer_layers=1, multiset="mean")

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out = self.pool(self.encoder(x), edge_index)
        return out.x, out.edge_index, out.cluster


def graph(num_nodes: int, channels: int) -> tuple[Tensor, Tensor]:
    row, col = torch.randint(num_nodes, (2, 3 * num_nodes))
    return torch.randn(num_nodes, channels), torch.stack([torch.cat([row, col]), torch.cat([col, row])])


def largest_difference(out: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> float:
    return max((a - b).abs().max().item() for a, b in zip(out, expected, strict=True))


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--package", help="where to write the package (default: a temporary folder)")
    args = parser.parse_args(argv)

    torch.manual_seed(0)
    model = Net(args.channels)
    sizes = (50, 80, 130)
    difference = {}

    # One compilation serves all sizes, so recompiling is an error here.
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    compiled(*graph(40, args.channels))
    with torch.compiler.set_stance("fail_on_recompile"):
        for size in sizes:
            x, edge_index = graph(size, args.channels)
            out = compiled(x, edge_index)
            out[0].sum().backward()
            found = largest_difference(out, model(x, edge_index))
            difference["compile"] = max(found, difference.get("compile", 0.0))
    print(f"torch.compile: largest difference to eager {difference['compile']:.1e}")

    model.eval()
    nodes, edges = torch.export.Dim("nodes", min=2), torch.export.Dim("edges", min=2)
    program = torch.export.export(
        model, graph(40, args.channels), dynamic_shapes={"x": {0: nodes}, "edge_index": {1: edges}}
    )
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = args.package or str(Path(folder) / "pool.pt2")
        torch._inductor.aoti_compile_and_package(program, package_path=path)
        packaged = torch._inductor.aoti_load_package(path)
        for name, function in (("export", program.module()), ("AOTInductor", packaged)):
            difference[name] = max(
                largest_difference(function(*inputs), model(*inputs))
                for inputs in (graph(size, args.channels) for size in sizes)
            )
            print(f"{name}: largest difference to eager {difference[name]:.1e}")
    return difference


if __name__ == "__main__":
    main()
