"""Where the host has to wait for values that it reads."""

import torch


def is_host(device: torch.device) -> bool:
    return device.type == "cpu"


def reads_are_free(device: torch.device) -> bool:
    """Whether a size may be read immediately; otherwise all sizes of a level are read together, once."""
    return is_host(device) or torch.compiler.is_compiling()
