"""Layers for PyTorch Geometric."""

try:
    import torch_geometric  # noqa: F401
except ImportError as error:
    raise ImportError("gpn_ops.nn needs PyTorch Geometric: pip install torch_geometric") from error

from .connect import ConnectClusters
from .multiset import DeepSets, Reduce
from .pooling import ParsePooling, PoolOutput
from .scorer import EdgeScorer
from .select import SelectParse
from .unpool import unpool

__all__ = [
    "ConnectClusters",
    "DeepSets",
    "EdgeScorer",
    "ParsePooling",
    "PoolOutput",
    "Reduce",
    "SelectParse",
    "unpool",
]
