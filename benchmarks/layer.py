"""Time of the pooling layer with all defaults, compared with the matrix products that it needs.

    python benchmarks/layer.py --device cpu|cuda [--hubs] [--quick]

A batch of 10 dense graphs (edge probability 0.2, n nodes each), or with --hubs a real graph whose largest hub
has 88,858 neighbours and a random one of the same size; 128 channels, forward without gradients. The baseline
is the bare matrix products that score each undirected edge once, with preallocated outputs. `Algorithm 1` is
the paper's listing alone, without the rest of a layer. The layer is compared with the paper's formulas before
anything is timed. See memory.py and speed.py for memory and more peers.
"""

from typing import Any

import common
import torch
from pages.layer import DENSE, report
from torch import Tensor
from torch_geometric.nn import ASAPooling, EdgePooling, SAGPooling, TopKPooling
from tqdm import tqdm

from gpn_ops import ops, reference
from gpn_ops.nn import ParsePooling

CHANNELS = 128
NUM_GRAPHS = 10
EDGE_PROBABILITY = 0.2
SIZES = (100, 200, 500, 1000)


def dense_batch(num_nodes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """10 graphs in which every pair of nodes has an edge with probability 0.2; edge_index and batch."""
    random = torch.Generator().manual_seed(0)
    parts = []
    for k in range(NUM_GRAPHS):
        upper = torch.rand(num_nodes, num_nodes, generator=random).triu(1) > 1 - EDGE_PROBABILITY
        parts.append((upper | upper.t()).nonzero().t() + k * num_nodes)
    batch = torch.arange(NUM_GRAPHS).repeat_interleave(num_nodes)
    return torch.cat(parts, dim=1).to(device), batch.to(device)


@torch.no_grad()
def validate(device: torch.device) -> None:
    """Checks that the layer agrees with the paper's formulas."""
    torch.manual_seed(0)
    edge_index, x = common.random_graph(40, 80)[0].to(device), torch.randn(40, 8, device=device)
    pool = ParsePooling(8).to(device)
    scorer, sets = pool.select.scorer, pool.multiset
    out = pool(x, edge_index)
    hidden = scorer.norms[0](scorer.lins[0](x[edge_index[0]] * x[edge_index[1]])).relu()
    scores = scorer.lins[1](hidden).sigmoid().squeeze(1)
    cluster = reference.algorithm1(edge_index, scores, 40)
    S = reference.gen(cluster)
    sums = S.t() @ sets.norm1(x + sets.lins1[0](x))
    mask = reference.mask(edge_index, scores, cluster, S.size(1)).mask
    assert torch.equal(out.cluster, cluster), "clusters differ from Algorithm 1"
    assert torch.equal(out.edge_index, reference.coarsen(edge_index, cluster).edge_index)
    torch.testing.assert_close(out.x, sets.norm2(sums + sets.lins2[0](sums)) * mask[:, None])


@torch.no_grad()
def measure(kind: str, num_nodes: int, edge_index: Tensor, batch: Tensor) -> dict[str, Any]:
    """Median seconds of the layer, its baseline and its peers, and of the layer's parts."""
    torch.manual_seed(0)
    device, n = batch.device, batch.numel()
    x = torch.randn(n, CHANNELS, device=device)
    pool = ParsePooling(CHANNELS).to(device)
    first, last = (lin.weight.t() for lin in pool.select.scorer.lins)
    pairs, slot = ops.undirected(edge_index, n)
    rows = torch.randn(pairs.size(1), CHANNELS, device=device)
    hidden, logits = torch.empty_like(rows), rows.new_empty(rows.size(0), 1)
    scores = pool.select.scorer(x, edge_index)
    cluster = ops.parse(edge_index, scores, n)
    num_clusters = ops.coarsen(edge_index, cluster).representative.numel()
    kinds = (EdgePooling, ASAPooling, SAGPooling, TopKPooling)
    edge, asap, sag, topk = (each(CHANNELS).to(device) for each in kinds)

    def bare_products() -> None:
        torch.mm(rows, first, out=hidden)
        torch.mm(hidden, last, out=logits)

    layers = {
        "bare products": bare_products,
        "ParsePooling": lambda: pool(x, edge_index, batch=batch),
        "TopKPooling": lambda: topk(x, edge_index, batch=batch),
        "SAGPooling": lambda: sag(x, edge_index, batch=batch),
    }
    if kind == DENSE:  # around hubs these run out of memory or patience, which only speed.py survives
        layers["EdgePooling"] = lambda: edge(x, edge_index, batch)
        layers["ASAPooling"] = lambda: asap(x, edge_index, batch=batch)
    if num_nodes <= 200:
        layers["Algorithm 1"] = lambda: reference.algorithm1(edge_index, scores, n)
    parts = {
        "undirected": lambda: ops.undirected(edge_index, n),
        "score": lambda: pool.select.scorer(x, pairs, directed=True),
        "lift": lambda: ops.lift(scores, slot),
        "parse": lambda: ops.parse(edge_index, scores, n),
        "coarsen": lambda: ops.coarsen(edge_index, cluster),
        "mask": lambda: ops.mask(edge_index, scores, cluster, num_clusters),
        "multiset": lambda: pool.multiset(x, cluster, num_clusters),
    }
    return {
        "kind": kind,
        "num_nodes": num_nodes,
        "seconds": {name: time.median for name, time in common.timed(layers, device, seconds=3.0).items()},
        "parts": {name: time.median for name, time in common.timed(parts, device).items()},
    }


def main() -> None:
    parser = common.arguments(__doc__)
    common.add_hubs(parser)
    options = parser.parse_args()
    device = common.prepare(options)
    validate(device)
    if options.hubs:
        results = [
            measure(kind, n, edge_index.to(device), torch.zeros(n, dtype=torch.int64, device=device))
            for kind, edge_index, _, n in common.hubs_and_random(options.quick)
        ]
    else:
        sizes = SIZES[:1] if options.quick else SIZES
        results = [measure(DENSE, n, *dense_batch(n, device)) for n in tqdm(sizes, desc="timing")]
    content = {"channels": CHANNELS, "results": results}
    print(report(content))
    stem = "layer_hubs" if options.hubs else "layer"
    common.save(options.output / f"{stem}_{device.type}.json", device, **content)


if __name__ == "__main__":
    main()
