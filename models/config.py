"""Settings of a training run: one flat YAML file per data set; ``--set`` changes any value."""

import ast
import dataclasses
import math
import re
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

PRESETS = Path(__file__).parent / "presets"  # paper/ and own/
# The models, and what tables call them.
NAMES = {
    "gpn": "GPN",
    "topk": "TopK",
    "sag": "SAG",
    "asap": "ASAP",
    "edgepool": "EdgePool",
    "mincut": "MinCut",
    "diffpool": "DiffPool",
    "gcn": "GCN",
    "gin": "GIN",
    "gmt": "GMT",
}


class ImportPath(NamedTuple):
    """The parts of ``package.module:Class(root, key=value)``; the arguments are literals."""

    module: str
    name: str
    arguments: list[Any]
    keywords: dict[str, Any]


def import_path(text: str) -> ImportPath:
    """Parses an import path without running anything.

    Raises:
        ValueError: if it is not an import path.
    """
    module, _, call = text.partition(":")
    try:
        if not all(part.isidentifier() for part in module.split(".")):
            raise ValueError(f"{module!r} is no name of a module")
        tree = ast.parse(call, mode="eval").body
        if isinstance(tree, ast.Name):
            return ImportPath(module, tree.id, [], {})
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            keywords = {keyword.arg: ast.literal_eval(keyword.value) for keyword in tree.keywords}
            arguments = [ast.literal_eval(argument) for argument in tree.args]
            named = {name: value for name, value in keywords.items() if name is not None}
            if len(named) < len(tree.keywords):
                raise ValueError("every keyword needs a name of its own")
            return ImportPath(module, tree.func.id, arguments, named)
        raise ValueError("neither a name nor a call")
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(
            f"dataset: expected package.module:Class, with literal arguments if any, got {text!r}: {error}"
        ) from error


def short_name(dataset: str) -> str:
    """The name of a data set; for an import path, the class and its arguments."""
    return dataset.partition(":")[2] or dataset


def folder_name(dataset: str) -> str:
    """The folder of a data set; for an import path, the class."""
    return short_name(dataset).partition("(")[0]


@dataclass(frozen=True)
class Trial:
    """Settings for our own trials, which are not in the paper (docs/experiments.md). Off by default."""

    input_dropout: float = 0.0
    """Dropout probability of the input features (graph and node tasks)."""
    directed_scores: bool = False
    """Whether training scores the two directions of an edge separately, as in the authors' code."""
    average: float = 0.0
    """The decay of an exponential average of the weights over the steps, which is measured and kept in place
    of the weights; 0 for none."""
    scores: str = "learned"
    """The scores for parsing: learned or random."""
    mask: bool = True
    """Whether clusters are multiplied by the sum of the scores inside them (equation 4). Otherwise the scorer
    learns nothing."""

    def __post_init__(self) -> None:
        if not 0 <= self.input_dropout <= 1:
            raise ValueError(f"input_dropout: expected from 0 to 1, got {self.input_dropout}")
        if self.scores not in ("learned", "random"):
            raise ValueError(f"scores: expected learned or random, got {self.scores!r}")
        if not 0 <= self.average < 1:
            raise ValueError(f"average: expected at least 0 and less than 1, got {self.average}")

    def to_dict(self) -> dict[str, Any]:
        """The settings that are on. Those that are off affect neither a run nor its digest."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value != getattr(Trial, key)}


@dataclass(frozen=True)
class Config:
    """All settings. The defaults are the values that most presets share.

    YAML, ``--set`` and saved files have flat settings: those of trials are listed among the others.
    """

    dataset: str
    """Name of the data set, or import path of a PyG data set class, with arguments:
    ``package.module:Class(root, name="x")``."""
    task: str = "graph"
    """graph, node or molecule."""
    model: str = "gpn"
    """gpn, or one of the baselines (graph tasks; gcn and gin, molecules too)."""

    hidden: int = 128
    """Size of all hidden features."""
    gnn_layers: int = 3
    """Layers of the GNN whose output edges are scored on."""
    multiset_gnn_layers: int | None = None
    """Layers of the GNN whose output is pooled; 0 pools the features themselves, none uses the output of the
    other GNN."""
    decoder_layers: int = 2
    """Layers of the decoder's GNN (node tasks)."""
    deepsets_layers: int = 1
    """Layers of each of the two MLPs of DeepSets."""
    scorer_layers: int = 2
    """Layers of the MLP that scores edges."""
    mlp_layers: int = 2
    """Layers of the input and of the output MLP."""
    encoder_layers: int = 5
    """Bond-aware convolutions (molecules)."""
    dropout: float = 0.0
    drop_edge: float = 0.0
    """The probability with which training drops an undirected edge before parsing."""
    self_loops: bool = False
    """Whether self-loops compete while parsing."""
    act_last: bool = False
    """Whether ReLU and dropout follow the last layer of a block."""
    conv: str = "gcn"
    """gcn, gat or gin."""
    multiset: str = "deepsets"
    """deepsets, sum, mean or max."""
    degree: bool = True
    """Whether a node's degree, one-hot, is one of its features (graph tasks)."""
    complete: bool = False
    """Whether every graph is replaced by the complete graph on its nodes."""
    weighted: bool = False
    """Whether coarse graphs carry summed weights (equation 2)."""
    readout: str = "sum"
    """The reduction of the remaining nodes to the vector of a graph: sum, mean or max (graph tasks)."""
    max_height: int | None = None
    """The maximum number of levels."""
    recompute: bool | str = "auto"
    """Whether backward computes the input MLP and the MLPs of pooling again, to save memory. auto: if their
    results are large. Results are the same."""
    num_levels: int = 3
    """Pooling levels (baselines)."""
    ratio: float = 0.5
    """Share of the nodes that a level keeps (baselines)."""

    lr: float = 5e-4
    weight_decay: float = 1e-4
    warmup: int = 50
    """Epochs of linear warm-up before a cosine decay to 0 over all epochs; 0 keeps the rate constant."""
    clip: float | None = 1.0
    """Largest norm of the gradient."""
    batch_size: int = 128
    max_epochs: int = 500
    patience: int = 50
    """Epochs without a lower validation loss before training stops."""
    eval_every: int = 1
    """Epochs between measurements, from the first epoch on; the last one is always measured."""
    metric: str = "accuracy"
    """accuracy; ap (average precision) or auc (area under the ROC curve), averaged over tasks or of two
    classes."""
    select: str = "loss"
    """The criterion for the reported epoch: the lowest validation loss or the highest validation metric."""
    double: bool = False
    """float64 instead of float32."""
    trial: Trial = Trial()

    def __post_init__(self) -> None:
        """Checks everything that does not depend on the data.

        Raises:
            ValueError: for a value out of range or not among the choices.
        """
        if ":" in self.dataset:
            import_path(self.dataset)
        elif not re.fullmatch(r"[A-Za-z0-9][\w.-]*", self.dataset, re.ASCII):
            raise ValueError(
                f"dataset: expected one of {', '.join(presets())}, another TUDataset's name, a YAML file, or "
                f"an import path such as package.module:Class(root), got {self.dataset!r}"
            )
        for key in CHOICES:
            check_choice(key, getattr(self, key))
        for key, (lowest, highest) in LIMITS.items():
            value = getattr(self, key)
            if value is None or (lowest <= value <= highest and math.isfinite(value)):
                continue
            limits = f"at least {lowest}" if highest == math.inf else f"from {lowest} to {highest}"
            raise ValueError(f"{key}: expected {limits}, got {value}")
        if not 0 < self.ratio < 1:
            raise ValueError(f"ratio: expected more than 0 and less than 1, got {self.ratio}")
        if self.clip == 0:
            raise ValueError("clip: expected none or more than 0, got 0.0")

    @staticmethod
    def from_dict(settings: dict[str, Any]) -> "Config":
        """Makes a configuration from flat settings."""
        trial = {key: value for key, value in settings.items() if key in TRIAL_TYPES}
        rest = {key: value for key, value in settings.items() if key not in TRIAL_TYPES}
        return Config(**rest, trial=Trial(**trial))

    def replace(self, **values: Any) -> "Config":
        return Config.from_dict({**self.to_dict(), **values})

    def to_dict(self) -> dict[str, Any]:
        """Flat settings, with only those trials that are on."""
        settings = {key: getattr(self, key) for key in TYPES}
        return {**settings, **self.trial.to_dict()}

    def to_yaml(self) -> str:
        """A line for every setting, as :func:`load` reads them, with only those trials that are on."""
        return "".join(
            f"{key}: {'none' if value is None else value}\n" for key, value in self.to_dict().items()
        )


CHOICES = {
    "task": ("graph", "node", "molecule"),
    "model": tuple(NAMES),
    "metric": ("accuracy", "ap", "auc"),
    "select": ("loss", "metric"),
}
# The smallest and the largest value. What a model is made of, such as conv, its layers check.
LIMITS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("hidden", "deepsets_layers", "scorer_layers", "mlp_layers"), (1, math.inf)),
    **dict.fromkeys(("gnn_layers", "multiset_gnn_layers", "decoder_layers", "encoder_layers"), (0, math.inf)),
    **dict.fromkeys(("dropout", "drop_edge"), (0, 1)),
    **dict.fromkeys(("max_height", "lr", "weight_decay", "warmup", "clip"), (0, math.inf)),
    **dict.fromkeys(("num_levels", "batch_size", "max_epochs", "patience", "eval_every"), (1, math.inf)),
}
# Settings that change how a result is computed, not which: runs do not differ by them. The values are those
# that the digests of runs on disk were made with.
NEUTRAL = {"recompute": False}
TYPES = {key: kind for key, kind in typing.get_type_hints(Config).items() if key != "trial"}
TRIAL_TYPES = typing.get_type_hints(Trial)


def check_choice(key: str, value: str) -> None:
    """Raises a ValueError if a value is not in ``CHOICES[key]``."""
    known = CHOICES[key]
    if value not in known:
        words = f"{', '.join(known[:-1])} or {known[-1]}" if len(known) < 4 else f"one of {', '.join(known)}"
        raise ValueError(f"{key}: expected {words}, got {value!r}")


def presets(whose: str = "*") -> list[str]:
    """The names of all presets, of the ``paper``'s, or of our ``own``."""
    return sorted(path.stem for path in PRESETS.glob(f"{whose}/*.yaml"))


def _preset(name: str) -> Path:
    (path,) = PRESETS.glob(f"*/{name}.yaml")
    return path


def load(name: str, overrides: list[str] | None = None, trust: bool = False, **values: Any) -> Config:
    """The settings for a data set.

    Args:
        name: A preset's name, the path of a YAML file, the import path of a PyG data set, or the name of any
            other TUDataset, which gets the default settings.
        overrides: Settings as ``key=value``.
        trust: Whether a YAML file may name an import path, whose code will run.
        values: Settings as they are.

    Raises:
        ValueError: for an unknown name, key, or a value of the wrong type or out of range.
    """
    from_file = False
    known = {preset.lower(): preset for preset in presets()}
    if name.lower() in known:
        settings = _read(_preset(known[name.lower()]))
    elif name.endswith((".yaml", ".yml")):
        settings = _read(Path(name))
        from_file = True
    else:
        settings = {"dataset": name}
    by_hand: dict[str, Any] = {}
    for override in overrides or []:
        key, separator, text = override.partition("=")
        if not separator:
            raise ValueError(f"--set: expected key=value, got {override!r}")
        try:
            by_hand[key.strip()] = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError):  # The parser calls itself for every bracket.
            raise ValueError(f"--set: expected key=value, got {override!r}") from None
    by_hand |= values
    settings |= by_hand
    if from_file and "dataset" not in by_hand and ":" in str(settings["dataset"]) and not trust:
        raise ValueError(
            f"{name}: dataset: expected the name of a data set, got the import path {settings['dataset']!r}, "
            "whose code would run: allow it with --trust"
        )
    return Config.from_dict({key: _checked(key, value) for key, value in settings.items()})


class _Settings(yaml.SafeLoader):
    """Rejects duplicate keys. YAML's own reader silently takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key} twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"dataset: there is no file {path}")
    try:
        settings = yaml.load(path.read_text(), _Settings)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: expected YAML, got {' '.join(str(error).split())}") from error
    if not isinstance(settings, dict) or ("dataset" not in settings and "base" not in settings):
        raise ValueError(f"{path}: expected key: value lines with at least 'dataset' or 'base'")
    if "base" in settings:
        base = str(settings.pop("base"))
        if base not in presets():
            raise ValueError(f"{path}: base: expected one of {', '.join(presets())}, got {base!r}")
        settings = {**_read(_preset(base)), **settings}
    return settings


def _checked(key: str, value: Any) -> Any:
    kind = TYPES.get(key) or TRIAL_TYPES.get(key)
    if kind is None:
        raise ValueError(
            f"settings: expected one of {', '.join(TYPES)}, or for trials one of {', '.join(TRIAL_TYPES)}, "
            f"got {key!r}"
        )
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if isinstance(value, str) and value.lower() == "none" and types.NoneType in kinds:
        return None
    if float in kinds and isinstance(value, int | str) and not isinstance(value, bool):
        try:
            return float(value)  # YAML takes 5e-4 for a string.
        except ValueError:
            pass
    if not any(type(value) is kind for kind in kinds):
        names = " or ".join("none" if kind is types.NoneType else kind.__name__ for kind in kinds)
        raise ValueError(f"{key}: expected {names}, got {value!r}")
    return value
