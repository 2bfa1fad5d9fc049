"""Names the missing extra before an import fails."""

from importlib.util import find_spec

for _module in ("matplotlib", "scipy", "torch_geometric", "tqdm"):
    if find_spec(_module) is None:
        raise ImportError(
            f"benchmarks need {_module}. In the root of the checkout, install gpn_ops with its extra "
            "'bench': pip install --no-build-isolation -e '.[bench]'"
        )
