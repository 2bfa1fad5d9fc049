"""Graph Parsing Networks: the paper's models, built from the layers of ``gpn_ops.nn``."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from gpn_ops import ops
from gpn_ops.nn import Capacity, Dropout, ParseHierarchy, ParsePooling, Reduce
from gpn_ops.nn.tree import Level, ParseTree

from .ablations import RandomScores, Unmasked
from .blocks import GNN, MLP
from .molecules import MoleculeEncoder


class Prediction(NamedTuple):
    """What every model returns."""

    out: Tensor
    """``[num_graphs, out_channels]``, or a row per node for a node classifier."""
    height: Tensor | None = None
    """int64 ``[num_graphs]``: the number of pooling levels of every graph, where the model has such."""
    extra_loss: Tensor | float = 0.0
    """Added to the loss."""
    tree: ParseTree | None = None
    """How the graphs were pooled."""


def hierarchy(
    hidden: int,
    *,
    gnn_layers: int,
    multiset_gnn_layers: int | None,
    deepsets_layers: int,
    scorer_layers: int,
    dropout: float,
    drop_edge: float,
    self_loops: bool,
    act_last: bool,
    conv: str,
    multiset: str,
    weighted: bool,
    max_height: int | None,
    recompute: bool | str,
    directed_scores: bool,
    readout: str,
    scores: str = "learned",
    mask: bool = True,
) -> ParseHierarchy:
    """The recurrent part of all models: the same weights at every level.

    ``multiset_gnn_layers=None`` pools the output of the GNN that scores the edges, 0 the features themselves.
    """
    if weighted and conv != "gcn":
        raise ValueError(f"weighted: expected conv gcn, got {conv!r}")

    def block(num_layers: int) -> GNN:
        return GNN(hidden, num_layers, dropout, act_last, conv, recompute is True)

    pool = ParsePooling(
        hidden,
        multiset=multiset,
        scorer_layers=scorer_layers,
        multiset_layers=deepsets_layers,
        dropout=dropout,
        drop_edge=drop_edge,
        self_loops=self_loops,
        weighted=weighted,
        recompute=recompute,
        directed_scores=directed_scores,
    )
    if scores == "random":
        pool.select.scorer = RandomScores()
    multiset_gnn: nn.Module | None = None
    if multiset_gnn_layers is not None:
        multiset_gnn = block(multiset_gnn_layers) if multiset_gnn_layers > 0 else nn.Identity()
    gnn = block(gnn_layers) if gnn_layers > 0 else None
    return ParseHierarchy(pool if mask else Unmasked(pool), gnn, multiset_gnn, max_height, Reduce(readout))


class GraphClassifier(nn.Module):
    """Input MLP, levels of pooling until every graph stops shrinking, output MLP.

    Args:
        in_channels: Size of each node's features.
        out_channels: The number of classes.
        hidden: Size of all hidden features.
        mlp_layers: The number of layers of the input and of the output MLP.
        dropout: Dropout probability in all blocks.
        act_last: Whether ReLU and dropout follow the last layer of a block.
        recompute: Which blocks backward recomputes: True, all of them; False, none; "auto", MLPs with many
            rows.
        input_dropout: Dropout probability of the input features.
        readout: How the remaining nodes become the vector of the graph: ``sum``, ``mean`` or ``max``.
        levels: Further settings of :func:`hierarchy`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: int,
        mlp_layers: int,
        dropout: float,
        act_last: bool,
        recompute: bool | str = "auto",
        input_dropout: float = 0.0,
        readout: str = "sum",
        **levels,
    ) -> None:
        super().__init__()
        self.input_dropout = Dropout(input_dropout)
        self.encoder = MLP(in_channels, hidden, hidden, mlp_layers, dropout, act_last, recompute)
        self.levels = hierarchy(
            hidden, dropout=dropout, act_last=act_last, readout=readout, recompute=recompute, **levels
        )
        self.head = MLP(hidden, hidden, out_channels, mlp_layers, dropout)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        capacity: Sequence[Capacity] | None = None,
    ) -> Prediction:
        x = self.encoder(self.input_dropout(x))
        out, tree = self.levels(x, edge_index, batch=batch, batch_size=batch_size, capacity=capacity)
        return Prediction(self.head(out), tree.height, tree=tree)


class NodeClassifier(nn.Module):
    """Encoder and decoder: up the pooling tree, and down again with a skip connection at every level.

    On the way down, a cluster's features, divided by the number of its inner edges, go to its nodes. The
    input features of the level are added, and a GNN of the decoder follows.

    Arguments as in :class:`GraphClassifier`; ``decoder_layers`` is the number of layers of the decoder's GNN.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: int,
        mlp_layers: int,
        dropout: float,
        act_last: bool,
        decoder_layers: int,
        conv: str,
        recompute: bool | str = "auto",
        input_dropout: float = 0.0,
        **levels,
    ) -> None:
        super().__init__()
        self.input_dropout = Dropout(input_dropout)
        self.encoder = MLP(in_channels, hidden, hidden, mlp_layers, dropout, act_last, recompute)
        self.levels = hierarchy(
            hidden,
            dropout=dropout,
            act_last=act_last,
            conv=conv,
            readout="sum",
            recompute=recompute,
            **levels,
        )
        self.decoder = GNN(hidden, decoder_layers, dropout, act_last, conv, recompute is True)
        self.head = MLP(hidden, hidden, out_channels, mlp_layers, dropout)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        capacity: Sequence[Capacity] | None = None,
    ) -> Prediction:
        x = self.encoder(self.input_dropout(x))
        tree = self.levels(x, edge_index, batch=batch, batch_size=batch_size, capacity=capacity).tree
        return Prediction(self.head(tree.decode(x, self.decode)), tree.height, tree=tree)

    def decode(self, z: Tensor, level: Level) -> Tensor:
        """One step down: from the features of a level's clusters to those of its nodes."""
        z = z / level.inner_edges.unsqueeze(-1).to(z.dtype)
        return self.decoder(ops.lift(z, level.cluster) + level.x, level.edge_index, level.edge_attr)


# ------------------------------------------------------------------------------------------------------------
# Molecules
# ------------------------------------------------------------------------------------------------------------


class MoleculeClassifier(nn.Module):
    """For molecules with categorical atoms and bonds, and many tasks: atom encoder and bond-aware
    convolutions instead of the input MLP. The molecule's vector is the sum over levels of mean features.

    Args:
        atom_sizes: The number of values of every feature of an atom.
        bond_sizes: The same for bonds.
        out_channels: The number of tasks.
        encoder_layers: The number of bond-aware convolutions.
        hidden, mlp_layers, dropout, act_last, levels: As in :class:`GraphClassifier`.
    """

    def __init__(
        self,
        atom_sizes: list[int],
        bond_sizes: list[int],
        out_channels: int,
        *,
        hidden: int,
        mlp_layers: int,
        dropout: float,
        act_last: bool,
        encoder_layers: int,
        **levels,
    ) -> None:
        super().__init__()
        self.encoder = MoleculeEncoder(atom_sizes, bond_sizes, hidden, encoder_layers, dropout)
        self.levels = hierarchy(hidden, dropout=dropout, act_last=act_last, readout="mean", **levels)
        self.head = MLP(hidden, hidden, out_channels, mlp_layers, dropout)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Prediction:
        x = self.encoder(x, edge_index, edge_attr)
        roots, tree = self.levels(x, edge_index, batch=batch, batch_size=batch_size)
        for level in tree.levels:
            roots = roots + ops.reduce(level.x, level.batch, roots.size(0), "mean")
        return Prediction(self.head(roots), tree.height, tree=tree)
