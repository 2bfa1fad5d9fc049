"""Counting, by dispatch, what a CUDA graph could not hold."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Reads(TorchDispatchMode):
    """Notes what reads the device, or has a size that follows from data."""

    NAMES = (
        "_local_scalar_dense",
        "aten::equal",
        "nonzero",
        "masked_select",
        "unique",
        "bincount",
        "repeat_interleave",
    )
    OURS = ("gpn::undirected", "gpn::coarsen")

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        boolean = name.startswith("aten::index") and any(
            isinstance(i, torch.Tensor) and i.dtype == torch.bool
            for i in (args[1] if isinstance(args[1], list | tuple) else [])
        )
        if boolean or name in self.OURS or any(part in name for part in self.NAMES):
            self.found.append(name)
        return func(*args, **(kwargs or {}))
