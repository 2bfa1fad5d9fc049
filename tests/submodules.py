"""Layers as modules: what the tests of every layer ask of its children.

Imported as ``import submodules``, like graphs.
"""

import copy
import functools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode


def _vmap_takes_views() -> bool:
    try:
        torch.vmap(lambda x: x.view(torch.int32))(torch.ones(2, 2))
    except RuntimeError:
        return False
    return True


NEEDS_VMAP_OF_VIEWS = pytest.mark.skipif(
    not _vmap_takes_views(), reason=f"vmap of torch {torch.__version__} does not view scores as integers"
)
CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict)
GRADIENTS = pytest.mark.parametrize("gradients", [True, False], ids=["gradients", "no gradients"])


def called(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The submodules that a layer has to call, by name: torch calls no list of modules."""
    return ((name, child) for name, child in module.named_modules() if not isinstance(child, CONTAINERS))


def check_hooks(module: torch.nn.Module, call: Callable[[torch.nn.Module], Tensor], gradients: bool) -> None:
    """A hook on any one submodule, and one on each of them, fires and does not change the result."""
    with torch.set_grad_enabled(gradients):
        expected = call(module)
        for wanted in (*([name] for name, _ in called(module)), [name for name, _ in called(module)]):
            hooked, fired = copy.deepcopy(module), set()
            for name in wanted:
                hook = functools.partial(_note, fired, name)
                hooked.get_submodule(name).register_forward_hook(hook)
            torch.testing.assert_close(call(hooked), expected)
            assert fired == set(wanted)


def _note(fired: set[str], name: str, *_: object) -> None:
    fired.add(name)


class Tripled(torch.nn.Linear):
    """A child of a user's own."""

    def forward(self, x: Tensor) -> Tensor:
        return 3 * super().forward(x)


def tripled_linears(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Copies of a layer in which one Linear triples its output: by its class, by a method of its own, by a
    hook."""
    for name, child in module.named_modules():
        if isinstance(child, torch.nn.Linear):
            for change in (_subclass, _override, _hook):
                changed = copy.deepcopy(module)
                change(changed, name)
                yield changed


def _subclass(module: torch.nn.Module, name: str) -> None:
    child = module.get_submodule(name)
    tripled = Tripled(child.in_features, child.out_features).to(child.weight)
    tripled.load_state_dict(child.state_dict())
    module.set_submodule(name, tripled)


def _override(module: torch.nn.Module, name: str) -> None:
    child = module.get_submodule(name)
    child.forward = lambda x: 3 * torch.nn.functional.linear(x, child.weight, child.bias)


def _hook(module: torch.nn.Module, name: str) -> None:
    module.get_submodule(name).register_forward_hook(lambda child, inputs, output: 3 * output)


def flops(call: Callable[[], Tensor]) -> tuple[int, int]:
    """What torch counts for a call, and for its backward."""
    with FlopCounterMode(display=False) as forward:
        out = call()
    with FlopCounterMode(display=False) as backward:
        out.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()
