"""Layers for PyTorch Geometric."""

try:
    import torch_geometric  # noqa: F401
except ImportError as error:
    raise ImportError(
        "gpn_ops.nn needs PyTorch Geometric: pip install torch_geometric, or gpn_ops with its extra 'pyg'"
    ) from error

from .connect import ConnectClusters
from .conv import Adjacency, UndirectedGCNConv
from .dropout import Dropout
from .hierarchy import HierarchyOutput, ParseHierarchy
from .multiset import DeepSets, Reduce
from .pad import Buckets, Capacity, PaddedBatch, halving, measured, pad
from .pooling import ParsePooling, PoolOutput
from .scorer import EdgeScorer
from .select import SelectParse
from .static import CapturedCall, CapturedTraining, StaticForm
from .tree import Level, ParseTree

__all__ = [
    "Adjacency",
    "Buckets",
    "Capacity",
    "CapturedCall",
    "CapturedTraining",
    "ConnectClusters",
    "DeepSets",
    "Dropout",
    "EdgeScorer",
    "HierarchyOutput",
    "Level",
    "PaddedBatch",
    "ParseHierarchy",
    "ParsePooling",
    "ParseTree",
    "PoolOutput",
    "Reduce",
    "SelectParse",
    "StaticForm",
    "UndirectedGCNConv",
    "halving",
    "measured",
    "pad",
]
