"""Compares the clusters of a trained model of molecules with rings, functional groups and bonds.

    python -m models.train Tox21 --keep-model
    python -m models.substructures Tox21 --weights results/Tox21/gpn/weights/seed0-fold0.pt

Parses molecules (by default those of the test set) with the trained model, with the untrained model, and at
random, and prints three tables: the bonds inside first-level clusters, the composition of these clusters, and
the rings and functional groups that lie within one cluster. At random means with random scores; neighbouring
clusters are then merged at random until there are as many as the trained model has, because larger clusters
keep more together in any case. Rings and bonds are those of RDKit. Functional groups are its fragment
descriptors with patterns of at least three atoms. --draw writes a picture of some molecules, with atoms in
the colour of their first-level cluster.
"""

import argparse
import csv
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from gpn_ops.visualisation import one_graph

from . import config as configs
from . import data, files
from .ablations import RandomScores
from .common import attempt, numbers, positive, table
from .data import Graphs
from .pictures import read_weights
from .training import make_model, prepare, seed_everything

Atoms = frozenset[int]
PARTS = ("train", "val", "test")
BATCH = 64
# Light enough to read the atoms' letters on: of neighbouring clusters, two with one colour are rare.
COLOURS = ((0.55, 0.78, 0.95), (0.98, 0.75, 0.45), (0.60, 0.88, 0.72), (0.95, 0.70, 0.83), (0.95, 0.90, 0.45),
           (0.75, 0.72, 0.93), (0.80, 0.80, 0.80))  # fmt: skip


# ------------------------------------------------------------------------------------------------------------
# Molecules
# ------------------------------------------------------------------------------------------------------------


class Substructures(NamedTuple):
    """The bonds, rings and functional groups of a molecule."""

    bonds: dict[tuple[int, int], str]
    """The kind of every bond, the smaller atom first."""
    rings: list[Atoms]
    """A smallest set of smallest rings: as many as there are bonds beyond a tree."""
    systems: list[Atoms]
    """Rings that share atoms, together."""
    groups: dict[str, list[Atoms]]
    """Functional groups of three atoms or more, by name."""


def fragments() -> dict[str, Any]:
    """RDKit's fragment descriptors: the pattern of atoms and bonds of each.

    Patterns of two atoms, such as a hydroxyl group, are left out: one atom has no other bond and is always in
    the cluster of the other.
    """
    from rdkit import Chem, RDConfig

    found = {}
    lines = Path(RDConfig.RDDataDir, "FragmentDescriptors.csv").read_text().splitlines()
    for row in csv.reader((line for line in lines if not line.startswith("#")), delimiter="\t"):
        if len(row) > 2 and (pattern := Chem.MolFromSmarts(row[2])) is not None:
            name = row[1].removeprefix("Number of ").strip()
            found |= {name: pattern} if pattern.GetNumAtoms() > 2 else {}
    return found


def substructures(molecule: Any, patterns: dict[str, Any]) -> Substructures:
    """The substructures of an RDKit molecule."""
    from rdkit import Chem

    # RingInfo has every smallest ring: in a cage of rings, hundreds of large ones that go round it.
    rings = [frozenset(ring) for ring in Chem.GetSSSR(molecule)]
    return Substructures(
        {
            tuple(sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))): kind(bond)
            for bond in molecule.GetBonds()
        },
        rings,
        joined(rings),
        {
            name: [frozenset(match) for match in molecule.GetSubstructMatches(pattern)]
            for name, pattern in patterns.items()
        },
    )


BONDS = (
    "in an aromatic ring",
    "in another ring",
    "between two rings",
    "between a ring and a chain",
    "in a chain: double or triple",
    "in a chain: C-C, single",
    "in a chain: to another element, single",
)


def kind(bond: Any) -> str:
    """One of :data:`BONDS`."""
    ends = bond.GetBeginAtom(), bond.GetEndAtom()
    in_ring = sum(atom.IsInRing() for atom in ends)
    if bond.IsInRing():
        return BONDS[0 if bond.GetIsAromatic() else 1]
    if in_ring > 0:
        return BONDS[2 if in_ring == 2 else 3]
    if bond.GetBondTypeAsDouble() > 1:
        return BONDS[4]
    return BONDS[5 if all(atom.GetAtomicNum() == 6 for atom in ends) else 6]


def joined(rings: Iterable[Atoms]) -> list[Atoms]:
    """Merges rings that share atoms."""
    found: list[Atoms] = []
    for ring in rings:
        apart = [other for other in found if not other & ring]
        found = [*apart, ring.union(*(other for other in found if other & ring))]
    return found


# ------------------------------------------------------------------------------------------------------------
# Clusters
# ------------------------------------------------------------------------------------------------------------


def clusters_of_atoms(assignments: list[torch.Tensor]) -> list[list[Atoms]]:
    """The atoms of every cluster, level by level, from the clusters of every level, finest first."""
    found = []
    of_atom = None
    for assignment in assignments:
        of_atom = assignment if of_atom is None else assignment[of_atom]
        members: dict[int, list[int]] = {}
        for atom, cluster in enumerate(of_atom.tolist()):
            members.setdefault(cluster, []).append(atom)
        found.append([frozenset(each) for each in members.values()])
    return found


@torch.no_grad()
def parsed(model: nn.Module, graphs: Graphs, index: Sequence[int]) -> Iterator[list[list[Atoms]]]:
    """The clusters of every molecule, level by level; none for a molecule without bonds."""
    for part in torch.tensor(index, dtype=torch.int64).split(BATCH):
        batch = graphs.take(part)
        tree = model(batch.x, batch.edge_index, batch.edge_attr, batch.batch, batch.num_graphs).tree
        for k in range(batch.num_graphs):
            yield clusters_of_atoms(one_graph(tree, k)[1]) if int(tree.height[k]) > 0 else []


def as_many(
    start: list[Atoms], levels: list[list[Atoms]], bonds: Iterable[tuple[int, int]]
) -> list[list[Atoms]]:
    """Random clusters, as many at each level as given. The first level starts from the given clusters, each
    further one from the level before; neighbours merge at random. A level that starts with fewer has
    fewer."""
    draw = random.Random(0)
    parts = {atom: each for each in start for atom in each}
    order = sorted(bonds)
    draw.shuffle(order)
    found = []
    clusters = set(start)
    for level in levels:
        while len(clusters) > len(level) and order:
            first, second = order.pop()
            one, other = parts[first], parts[second]
            if one is not other:
                clusters -= {one, other}
                clusters.add(one | other)
                parts |= dict.fromkeys(one | other, one | other)
        found.append(list(clusters))
    return found


@dataclass
class Counts:
    """Counts over molecules that have bonds."""

    bonds: Counter[str] = field(default_factory=Counter)
    bonds_inside: Counter[str] = field(default_factory=Counter)
    """Those whose ends are in one cluster of the first level."""
    clusters: Counter[str] = field(default_factory=Counter)
    """Clusters of the first level, by :func:`make_up`."""
    size: int = 0
    """The sum of their sizes."""
    found: Counter[str] = field(default_factory=Counter)
    """Rings and groups, by name."""
    whole: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Those that are in one cluster of a level, counted from 1."""
    exact: Counter[str] = field(default_factory=Counter)
    """Those that are a cluster of some level, with nothing else in it."""

    def add(self, levels: list[list[Atoms]], known: Substructures) -> None:
        if not levels:
            return
        self.size += sum(map(len, levels[0]))
        of_atom = [{atom: number for number, each in enumerate(level) for atom in each} for level in levels]
        for (first, second), name in known.bonds.items():
            self.bonds[name] += 1
            self.bonds_inside[name] += of_atom[0][first] == of_atom[0][second]
        groups = {atoms for found in known.groups.values() for atoms in found}
        for each in levels[0]:
            self.clusters[make_up(each, known, groups)] += 1
        for name, atoms in named(known):
            self.found[name] += 1
            self.exact[name] += any(atoms in level for level in levels)
            for number in range(1, LEVELS + 1):
                cluster_of = of_atom[min(number, len(of_atom)) - 1]
                self.whole[name, number] += len({cluster_of[atom] for atom in atoms}) == 1


RANDOM = "at random"
LEVELS = 2  # Of so many, counted from the lowest, the tables tell.
MAKE_UP = (
    "one atom",
    "a whole ring, or several that are fused, and nothing else",
    "part of one ring, or of several that are fused",
    "a functional group without ring atoms, and nothing else",
    "other atoms of chains only",
    "a ring or part of it, and atoms of chains",
    "parts of two rings that are not fused",
)


def make_up(cluster: Atoms, known: Substructures, groups: set[Atoms]) -> str:
    """One of :data:`MAKE_UP`."""
    if len(cluster) == 1:
        return MAKE_UP[0]
    touched = [system for system in known.systems if system & cluster]
    if len(touched) > 1:
        return MAKE_UP[6]
    if not touched:
        return MAKE_UP[3 if cluster in groups else 4]
    if not cluster <= touched[0]:
        return MAKE_UP[5]
    return MAKE_UP[1 if cluster in (*known.rings, *touched) else 2]


def named(known: Substructures) -> Iterator[tuple[str, Atoms]]:
    """Rings by size, fused systems, groups by name."""
    for ring in known.rings:
        yield f"ring of {len(ring)}", ring
    for system in known.systems:
        if system not in known.rings:
            yield "fused rings", system
    for name, found in known.groups.items():
        for atoms in found:
            yield name, atoms


# ------------------------------------------------------------------------------------------------------------
# Tables
# ------------------------------------------------------------------------------------------------------------


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def tables(counts: dict[str, Counts], at_least: int) -> str:
    """Markdown, a column per way of parsing. Substructures rarer than ``at_least`` are left out."""
    (first, *_), ways = counts.values(), list(counts.values())
    bonds = [
        [
            name,
            f"{first.bonds[name]:,}",
            *(percent(each.bonds_inside[name], each.bonds[name]) for each in ways),
        ]
        for name in BONDS
    ]
    total = [sum(each.clusters.values()) for each in ways]
    make = [
        [name, *(percent(each.clusters[name], whole) for each, whole in zip(ways, total, strict=True))]
        for name in MAKE_UP
    ]
    sizes = [
        "atoms a cluster",
        *(f"{each.size / whole:.2f}" for each, whole in zip(ways, total, strict=True)),
    ]
    names = [name for name, count in first.found.most_common() if count >= at_least]
    rings = [name for name in names if "ring" in name.split() or "rings" in name.split()]
    order = [*sorted(rings), *(name for name in names if name not in rings)]
    whole = [
        [
            name,
            f"{first.found[name]:,}",
            *(percent(each.whole[name, 1], each.found[name]) for each in ways),
            *(percent(each.whole[name, 2], each.found[name]) for each in ways),
            *(percent(each.exact[name], each.found[name]) for each in ways),
        ]
        for name in order
    ]
    columns = [f"{what}: {name}" for what in ("level 1", "level 2", "alone") for name in counts]
    return "\n\n".join(
        [
            table(["bond", "number", *counts], bonds),
            table(["cluster of the first level", *counts], [*make, sizes]),
            table(["substructure", "number", *columns], whole),
        ]
    )


# ------------------------------------------------------------------------------------------------------------
# The picture
# ------------------------------------------------------------------------------------------------------------


def colours(clusters: list[Atoms], bonds: Iterable[tuple[int, int]]) -> dict[int, int]:
    """A colour number for every atom in a cluster of two or more. Neighbouring clusters differ if there are
    enough colours."""
    of_atom = {atom: number for number, each in enumerate(clusters) for atom in each}
    around: dict[int, set[int]] = {}
    for first, second in bonds:
        if of_atom[first] != of_atom[second]:
            around.setdefault(of_atom[first], set()).add(of_atom[second])
            around.setdefault(of_atom[second], set()).add(of_atom[first])
    chosen: dict[int, int] = {}
    for number, each in enumerate(clusters):
        if len(each) > 1:
            taken = {chosen.get(other) for other in around.get(number, ())}
            free = [colour for colour in range(len(COLOURS)) if colour not in taken]
            chosen[number] = min(free or range(len(COLOURS)), key=lambda c: [*chosen.values()].count(c))
    return {atom: chosen[number] for atom, number in of_atom.items() if number in chosen}


def draw(molecules: list[Any], clusterings: list[list[Atoms]], titles: list[str], width: int = 300) -> str:
    """An SVG with three molecules per row. The atoms of a cluster and the bonds inside it share a background
    colour; single atoms have none."""
    from rdkit.Chem.Draw import MolDraw2DSVG, rdDepictor

    columns, height = min(len(molecules), 3), width * 4 // 5
    picture = MolDraw2DSVG(columns * width, -(-len(molecules) // columns) * height, width, height)
    options: Any = picture.drawOptions()
    options.legendFontSize = 15
    options.drawMolsSameScale = False  # A large molecule would make the others too small to read.
    options.fixedBondLength = 24  # At most: small molecules would be giants.
    options.highlightBondWidthMultiplier = 16
    options.highlightRadius = 0.35
    atom_colours, bond_colours = [], []
    for molecule, clusters in zip(molecules, clusterings, strict=True):
        rdDepictor.Compute2DCoords(molecule)
        ends = {bond.GetIdx(): (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()}
        of_atom = colours(clusters, ends.values())
        inside = [bond for bond, pair in ends.items() if any(set(pair) <= each for each in clusters)]
        atom_colours.append({atom: COLOURS[colour] for atom, colour in of_atom.items()})
        bond_colours.append({bond: COLOURS[of_atom[ends[bond][0]]] for bond in inside})
    picture.DrawMolecules(
        molecules,
        legends=[f"{title}: {len(found)} clusters" for title, found in zip(titles, clusterings, strict=True)],
        highlightAtoms=[list(each) for each in atom_colours],
        highlightBonds=[list(each) for each in bond_colours],
        highlightAtomColors=atom_colours,
        highlightBondColors=bond_colours,
    )
    picture.FinishDrawing()
    return str(picture.GetDrawingText())


# ------------------------------------------------------------------------------------------------------------
# The command
# ------------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    manual = argparse.ArgumentParser(
        prog="python -m models.substructures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    manual.add_argument("dataset", choices=data.MOLECULES, help="as for models.train")
    manual.add_argument("--weights", type=Path, required=True, help="saved by models.train --keep-model")
    manual.add_argument("--part", choices=PARTS, default="test", help="which molecules (default: test)")
    manual.add_argument("--most", type=positive, default=None, help="take the first so many of these alone")
    manual.add_argument(
        "--at-least", type=positive, default=30, help="leave out rarer substructures (default: 30)"
    )
    manual.add_argument(
        "--draw", type=numbers, default=[], help="molecules to draw, by their place in the part"
    )
    manual.add_argument("--data-root", type=Path, default=Path("data"), help="raw data (default: data)")
    manual.add_argument("--data-cache", type=Path, default=Path("data"), help="prepared data (default: data)")
    manual.add_argument(
        "--output",
        type=Path,
        default=Path("results/molecules.svg"),
        help="the picture (default: %(default)s)",
    )
    manual.add_argument("--threads", type=positive, default=1, help="CPU threads (default: 1)")
    return manual


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return attempt(lambda: _tell(options))


def ways(config: configs.Config, graphs: Graphs, weights: dict[str, torch.Tensor]) -> dict[str, nn.Module]:
    """The trained model, the untrained model, and the model with random scores."""
    seed_everything(0, 0)
    untrained = make_model(config, graphs).eval()
    trained, random_scores = make_model(config, graphs).eval(), make_model(config, graphs).eval()
    try:
        trained.load_state_dict(weights)
        random_scores.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"--weights: they do not fit the data set: {error}") from error
    random_scores.levels.pool.select.scorer = RandomScores().eval()  # type: ignore[union-attr, assignment]
    return {"trained": trained, "untrained": untrained, RANDOM: random_scores}


def _tell(options: argparse.Namespace) -> int:
    from rdkit import Chem

    prepare(torch.device("cpu"), options.threads)
    config, weights = read_weights(options.weights)
    if config.dataset != options.dataset or config.model != "gpn":
        raise ValueError(
            f"--weights: expected GPN on {options.dataset}, got {config.model} on {config.dataset}"
        )
    graphs = data.load(config, options.data_root, options.data_cache)
    split = graphs.split(0, 0)
    index = split[PARTS.index(options.part)].tolist()[: options.most]
    molecules = [Chem.MolFromSmiles(graphs.smiles[k]) for k in index]
    patterns = fragments()
    known = [substructures(molecule, patterns) for molecule in molecules]
    counts: dict[str, Counts] = {}
    levels_of: list[list[list[Atoms]]] = []
    for name, model in ways(config, graphs, weights).items():
        counts[name] = Counts()
        found = list(parsed(model, graphs, index))
        levels_of = levels_of or found
        if name == RANDOM:
            found = [
                as_many(drawn[0], levels, each.bonds) if drawn else []
                for drawn, levels, each in zip(found, levels_of, known, strict=True)
            ]
        for levels, each in zip(found, known, strict=True):
            counts[name].add(levels, each)
    with_bonds = sum(bool(levels) for levels in levels_of)
    print(
        f"{with_bonds:,} of {len(index):,} molecules ({options.part} set of {options.dataset}) have bonds.\n"
    )
    print(tables(counts, options.at_least))
    if options.draw:
        chosen = [k for k in options.draw if k < len(index) and levels_of[k]]
        if len(chosen) < len(options.draw):
            raise ValueError(f"--draw: expected molecules with bonds below {len(index)}, got {options.draw}")
        picture = draw(
            [molecules[k] for k in chosen],
            [levels_of[k][0] for k in chosen],
            [f"molecule {index[k]}" for k in chosen],
        )
        options.output.parent.mkdir(parents=True, exist_ok=True)
        with files.named(options.output):
            options.output.write_text(picture)
        print(f"\nDrawn in {options.output}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
