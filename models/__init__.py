"""Models and training for the tasks of the Graph Parsing Networks paper; run from a checkout.

python -m models.train PROTEINS         train and test
python -m models.report results         tables beside the paper's figures
python -m models.draw tree|heights      pictures
python -m models.reconstruct ring|grid  the reconstruction task
python -m models.demo                   a small generated data set, in minutes
"""

from importlib.util import find_spec

for _module in ("matplotlib", "sklearn", "torch_geometric", "tqdm", "yaml"):
    if find_spec(_module) is None:
        raise ImportError(
            f"models needs {_module}. In the root of the checkout, install gpn_ops with its extra 'models': "
            "pip install --no-build-isolation -e '.[models]'"
        )
