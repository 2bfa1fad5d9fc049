"""Dropout with cheap random numbers."""

import torch
from torch import Tensor

from gpn_ops.ops.tiles import kept

from ._inputs import check_probability


class Dropout(torch.nn.Module):
    r"""As :class:`torch.nn.Dropout`, several times faster on the CPU.

    There an element is dropped by 16 random bits, four elements sharing a word of the generator, so the
    probability is rounded to a multiple of :math:`2^{-16}`.

    Args:
        p (float): The probability with which an element is dropped. (default: :obj:`0.5`)

    Example:
        >>> import torch
        >>> from gpn_ops.nn import Dropout
        >>> Dropout(0.25)(torch.ones(1000, 1000)).mean().round(decimals=1)
        tensor(1.)
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        check_probability("p", p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        r"""Forward pass."""
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """:class:`Dropout` as a function."""
    if not training or p == 0:
        return x
    if torch.compiler.is_compiling():  # The compiler has cheap random numbers of its own.
        return torch.nn.functional.dropout(x, p)
    return x * kept(x, p)
