"""The pooling layer as a pooler of torch-geometric-pool (``tgp``). Not imported by ``gpn_ops.nn``."""

import inspect
from typing import Any

import torch
from torch import Tensor

try:
    from tgp.lift import BaseLift
    from tgp.select import SelectOutput
    from tgp.src import PoolingOutput, SRCPooling
    from tgp.utils import connectivity_to_edge_index
except ImportError as error:
    if (error.name or "").partition(".")[0] == "tgp":
        text = "gpn_ops.nn.tgp needs torch-geometric-pool: pip install torch-geometric-pool"
    else:  # A dependency of it is missing, such as torch_scatter.
        text = f"gpn_ops.nn.tgp needs torch-geometric-pool, which is installed but fails to import: {error}"
    raise ImportError(text, name=error.name) from error

from .pooling import ParsePooling


class ParsePooler(SRCPooling):
    r""":class:`gpn_ops.nn.ParsePooling` with the interface of a torch-geometric-pool pooler.

    Args:
        in_channels (int): Size of each node's features.
        **options (optional): The options of :class:`gpn_ops.nn.ParsePooling`, by name.
    """

    def __init__(self, in_channels: int, **options: Any) -> None:
        super().__init__(lifter=BaseLift())
        self.layer = ParsePooling(in_channels, **options)

    # tgp's get_pooler passes on the arguments that a signature names, except keyword-only ones.
    __init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            parameter.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for parameter in inspect.signature(ParsePooling.__init__).parameters.values()
        ]
    )

    @property
    def is_dense(self) -> bool:
        """Assignments are sparse: every node is in one cluster."""
        return False

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        self.layer.reset_parameters()

    def forward(
        self,
        x: Tensor,
        adj: Tensor | None = None,
        edge_weight: Tensor | None = None,
        so: SelectOutput | None = None,
        batch: Tensor | None = None,
        attn: Tensor | None = None,
        lifting: bool = False,
        **_: Any,
    ) -> PoolingOutput | Tensor:
        r"""Forward pass, as in :class:`tgp.poolers.TopkPooling`.

        Returns:
            PoolingOutput: The coarse graph. With :obj:`lifting`, instead the features :obj:`x` of the
            clusters, lifted to the nodes of :obj:`so`.
        """
        if lifting:
            return self.lift(x_pool=x, so=so)
        if adj is None:
            raise ValueError("adj: expected the connectivity of the graph, got None")
        edge_index, edge_weight = connectivity_to_edge_index(adj, edge_weight)
        out = self.layer(x, edge_index, edge_weight, batch, attn)
        assignment = SelectOutput(
            s=torch.sparse_coo_tensor(
                torch.stack([torch.arange(x.size(0), device=x.device), out.cluster]),
                x.new_ones(x.size(0)),
                (x.size(0), out.x.size(0)),
                is_coalesced=True,
                check_invariants=False,
            ),
            batch=batch,
        )
        return PoolingOutput(
            x=out.x,
            edge_index=out.edge_index,
            edge_weight=out.edge_attr,
            batch=None if batch is None else out.batch,
            so=assignment,
        )

    def extra_repr_args(self) -> dict[str, Any]:
        """Shown by ``repr`` beside the four steps."""
        return {"layer": self.layer}
