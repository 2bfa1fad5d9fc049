"""The models as the paper's settings describe them, word by word: one graph at a time, one node, edge and
cluster at a time, in Python. Takes the weights of a model, and none of its code.
"""

import torch
from torch import Tensor


class Literal:
    """A model's weights, and the settings that they go with.

    ``draws``, if given, is called with the number of undirected edges of a level and returns for each a
    number in [0, 1): those below ``drop_edge`` are dropped.
    """

    def __init__(self, model, draws=None, **settings) -> None:
        self.weights = {name: value.detach() for name, value in model.state_dict().items()}
        self.draws = draws
        self.settings = settings

    def __getattr__(self, name):
        return self.settings[name]

    # ---- blocks

    def linear(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return torch.stack([weight @ row + bias for row in x])

    def norm(self, name: str, x: Tensor) -> Tensor:
        mean = x.mean(dim=1, keepdim=True)
        variance = ((x - mean) ** 2).mean(dim=1, keepdim=True)
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return (x - mean) / (variance + 1e-5).sqrt() * weight + bias

    def mlp(self, name: str, x: Tensor, num_layers: int, act_last: bool = False) -> Tensor:
        """Linear (LayerNorm, ReLU, dropout, Linear)*: Linear is every fourth, and LayerNorm comes next."""
        x = self.linear(f"{name}.0", x)
        for k in range(1, num_layers):
            x = self.linear(f"{name}.{4 * k}", self.norm(f"{name}.{4 * k - 3}", x).relu())
        if act_last and num_layers > 1:
            x = self.norm(f"{name}.{4 * num_layers - 3}", x).relu()
        return x

    def gnn(self, name: str, x: Tensor, edges: dict, num_layers: int) -> Tensor:
        """``edges`` has the weight of every directed edge, self-loops left out."""
        if num_layers == 0:
            return x
        size = [1.0] * len(x)
        for (i, j), weight in edges.items():
            if i != j:
                size[i] += weight
        out = x
        for k in range(num_layers):
            z = out @ self.weights[f"{name}.convs.{k}.lin.weight"].t()
            rows = [z[i] / size[i] for i in range(len(x))]
            for (i, j), weight in edges.items():
                if i != j:
                    rows[i] = rows[i] + weight * z[j] / (size[i] * size[j]) ** 0.5
            out = torch.stack(rows) + self.weights[f"{name}.convs.{k}.bias"]
            if k < num_layers - 1 or self.act_last:
                out = out.relu()
        return self.norm(f"{name}.norm", x + out)

    def score(self, a: Tensor, b: Tensor) -> Tensor:
        name, z = "levels.pool.select.scorer", (a * b).view(1, -1)
        for k in range(self.scorer_layers):
            if k > 0:
                z = self.norm(f"{name}.norms.{k - 1}", z).relu()
            z = self.linear(f"{name}.lins.{k}", z)
        return z.sigmoid().view(())

    def deepsets(self, rows: Tensor) -> Tensor:
        """One cluster."""

        def residual(part: int, z: Tensor) -> Tensor:
            out = z
            for k in range(self.deepsets_layers):
                out = self.linear(f"levels.pool.multiset.lins{part}.{k}", out if k == 0 else out.relu())
            return self.norm(f"levels.pool.multiset.norm{part}", z + out)

        return residual(2, residual(1, rows).sum(dim=0, keepdim=True)).view(-1)

    # ---- one level

    def parse(self, h: Tensor, edges: dict) -> tuple[list[list[int]], dict]:
        """The clusters, each a sorted list of nodes, in the order of their smallest; and the edges that took
        part, with their scores."""
        taking_part = [*edges]
        if self.self_loops:
            taking_part += [(i, i) for i in range(len(h)) if (i, i) not in edges]
        pairs = sorted({(min(edge), max(edge)) for edge in taking_part})
        if self.draws is not None:
            draws = self.draws(len(pairs))
            pairs = [pair for pair, draw in zip(pairs, draws, strict=True) if draw >= self.drop_edge]
        of_pair = {pair: self.score(h[pair[0]], h[pair[1]]) for pair in pairs}
        scores = {
            edge: of_pair[min(edge), max(edge)] for edge in taking_part if (min(edge), max(edge)) in of_pair
        }
        joined = [{i} for i in range(len(h))]
        for i in range(len(h)):
            own = [(edge, score) for edge, score in scores.items() if edge[0] == i]
            if own:
                (_, j), _ = max(own, key=lambda item: float(item[1]))  # the first of equal ones
                union = joined[i] | joined[j]
                for node in union:
                    joined[node] = union
        return [sorted(joined[i]) for i in range(len(h)) if min(joined[i]) == i], scores

    def level(self, x: Tensor, edges: dict):
        """Returns the clusters and their features, their numbers of inner edges, and the coarse edges."""
        h = self.gnn("levels.gnn", x, edges, self.gnn_layers)
        to_pool = h
        if self.multiset_gnn_layers is not None:
            to_pool = self.gnn("levels.multiset_gnn", x, edges, self.multiset_gnn_layers)
        clusters, scores = self.parse(h, edges)
        of_node = {node: number for number, members in enumerate(clusters) for node in members}
        features, inner_edges = [], []
        for number, members in enumerate(clusters):
            rows = to_pool[members]
            reductions = {
                "deepsets": self.deepsets,
                "sum": lambda rows: rows.sum(dim=0),
                "mean": lambda rows: rows.mean(dim=0),
                "max": lambda rows: rows.amax(dim=0),
            }
            inside = [score for (i, j), score in scores.items() if of_node[i] == of_node[j] == number]
            features.append(reductions[self.multiset](rows) * (sum(inside) if inside else 1))
            inner_edges.append(max(len(inside), 1))
        coarse: dict = {}
        for (i, j), weight in edges.items():
            ends = of_node[i], of_node[j]
            if ends[0] != ends[1] and (i, j) in scores:
                coarse[ends] = coarse.get(ends, 0.0) + weight if self.weighted else 1.0
        return clusters, torch.stack(features), inner_edges, dict(sorted(coarse.items()))

    def levels(self, x: Tensor, edges: dict) -> list:
        """Of every level: features that came in, edges, clusters, inner edges; of the last: what is left."""
        found: list = []
        while self.max_height is None or len(found) < self.max_height:
            clusters, features, inner_edges, coarse = self.level(x, edges)
            if len(clusters) == len(x):
                break
            found.append((x, edges, clusters, inner_edges, features))
            x, edges = features, coarse
        return [*found, (x,)]

    # ---- models

    def graph(self, x: Tensor, edges: dict) -> tuple[Tensor, int]:
        """The output for a graph, and its height."""
        *levels, (left,) = self.levels(self.mlp("encoder", x, self.mlp_layers, self.act_last), edges)
        reductions = {"sum": left.sum(0), "mean": left.mean(0), "max": left.amax(0)}
        return self.mlp("head", reductions[self.readout].view(1, -1), self.mlp_layers).view(-1), len(levels)

    def node(self, x: Tensor, edges: dict) -> tuple[Tensor, int]:
        x = self.mlp("encoder", x, self.mlp_layers, self.act_last)
        *levels, (decoded,) = self.levels(x, edges)
        for features, graph, clusters, inner_edges, _ in reversed(levels):
            rows = features.clone()
            for number, members in enumerate(clusters):
                for node in members:
                    rows[node] = features[node] + decoded[number] / inner_edges[number]
            decoded = self.gnn("decoder", rows, graph, self.decoder_layers)
        return self.mlp("head", decoded, self.mlp_layers), len(levels)

    def molecule(self, x: Tensor, edges: dict) -> tuple[Tensor, int]:
        """Here ``x`` and the values of ``edges`` are lists of categories."""

        def embedded(name: str, categories: Tensor) -> Tensor:
            return sum(
                self.weights[f"{name}.embeddings.{k}.weight"][category]
                for k, category in enumerate(categories.tolist())
            )

        x = torch.stack([embedded("encoder.atoms", row) for row in x])
        size = [1 + sum(i == node for i, _ in edges) for node in range(len(x))]
        for k in range(self.encoder_layers):
            z = self.linear(f"encoder.convs.{k}.lin", x)
            root = self.weights[f"encoder.convs.{k}.root"]
            rows = [(z[i] + root).relu() / size[i] for i in range(len(x))]
            for (i, j), bond in edges.items():
                message = (z[j] + embedded(f"encoder.convs.{k}.bonds", bond)).relu()
                rows[i] = rows[i] + message / (size[i] * size[j]) ** 0.5
            names = ("running_mean", "running_var", "weight", "bias")
            mean, variance, weight, bias = (self.weights[f"encoder.norms.{k}.{name}"] for name in names)
            x = (torch.stack(rows) - mean) / (variance + 1e-5).sqrt() * weight + bias
            x = x.relu() if k < self.encoder_layers - 1 else x
        *levels, (left,) = self.levels(x, dict.fromkeys(edges, 1.0))
        total = left.mean(dim=0) + sum(level[0].mean(dim=0) for level in levels)
        return self.mlp("head", total.view(1, -1), self.mlp_layers).view(-1), len(levels)
