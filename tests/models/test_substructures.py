"""Clusters of molecules against rings, bonds and functional groups: counted by hand."""

import re

import pytest
import torch

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")
pytest.importorskip("rdkit", reason="molecules need rdkit")

from rdkit import Chem
from test_data import write_tox21

from models import config as configs
from models import data, files, substructures
from models.substructures import BONDS, MAKE_UP, Counts, Substructures, make_up
from models.training import make_model

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")

# Numbers of the atoms: C0 C1(=O2) O3 C4 c5 c6 c7 c8 c9 c10, and a ring of three that is not aromatic.
BENZYL_ACETATE = "CC(=O)OCc1ccccc1"
RING = frozenset(range(5, 11))
ESTER = frozenset({0, 1, 2, 3, 4})


def known(smiles):
    return substructures.substructures(Chem.MolFromSmiles(smiles), substructures.fragments())


def sets(*clusters):
    return [frozenset(each) for each in clusters]


def test_fragments_are_rdkits():
    found = substructures.fragments()
    assert len(found) > 40
    assert all(pattern.GetNumAtoms() > 2 for pattern in found.values())
    assert "esters" in found
    assert "carbonyl O" not in found  # Two atoms, of which one has no other bond.


def test_substructures_of_benzyl_acetate():
    found = known(BENZYL_ACETATE)
    assert found.rings == found.systems == [RING]
    assert found.groups["esters"] == [ESTER]
    assert found.groups["benzene rings"] == [RING]
    assert not found.groups["amides"]
    kinds = {
        (0, 1): BONDS[5],
        (1, 2): BONDS[4],
        (1, 3): BONDS[6],
        (3, 4): BONDS[6],
        (4, 5): BONDS[3],
    }
    ring = dict.fromkeys([(5, 6), (6, 7), (7, 8), (8, 9), (9, 10), (5, 10)], BONDS[0])
    assert found.bonds == kinds | ring


def test_fused_rings_and_bonds_between_rings():
    found = known("c1ccc2ccccc2c1C1CC1")  # naphthalene and cyclopropane
    assert sorted(map(len, found.rings)) == [3, 6, 6]
    assert sorted(map(len, found.systems)) == [3, 10]
    counts = [list(found.bonds.values()).count(name) for name in BONDS]
    assert counts == [11, 3, 1, 0, 0, 0, 0]


def test_a_cage_has_as_many_rings_as_bonds_beyond_a_tree():
    """RDKit's RingInfo has all six faces of a cube, and hundreds of rings of a larger cage."""
    cubane = Chem.MolFromSmiles("C12C3C4C1C5C2C3C45")
    assert len(cubane.GetRingInfo().AtomRings()) == 6
    found = substructures.substructures(cubane, {})
    assert [len(ring) for ring in found.rings] == [4] * (12 - 7)
    assert found.systems == [frozenset(range(8))]
    assert list(found.bonds.values()) == [BONDS[1]] * 12


def test_rings_that_a_third_one_joins():
    first, second, third = sets({0, 1, 2}, {4, 5, 6}, {2, 3, 4})
    assert substructures.joined([first, second, third]) == [frozenset(range(7))]
    assert sorted(map(len, substructures.joined([first, second]))) == [3, 3]


def test_clusters_of_atoms():
    """Numbers of clusters of every level, as trees have them."""
    levels = substructures.clusters_of_atoms([torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0, 1, 1])])
    assert levels == [sets({0, 1}, {2}, {3, 4}), sets({0, 1}, {2, 3, 4})]


@pytest.mark.parametrize(
    ("cluster", "number"),
    [
        ({0}, 0),
        (RING, 1),
        ({5, 6, 7}, 2),
        (ESTER, 3),
        ({0, 1}, 4),
        ({4, 5, 6}, 5),
        (RING | {4}, 5),
    ],
)
def test_what_a_cluster_is_made_of(cluster, number):
    found = known(BENZYL_ACETATE)
    groups = {atoms for each in found.groups.values() for atoms in each}
    assert make_up(frozenset(cluster), found, groups) == MAKE_UP[number]


def test_clusters_of_several_rings():
    rings = sets({0, 1, 2}, {2, 3, 4}, {6, 7, 8})
    found = Substructures({}, rings, substructures.joined(rings), {})
    assert make_up(frozenset({4, 6}), found, set()) == MAKE_UP[6]
    assert make_up(frozenset({0, 1, 2, 3, 4}), found, set()) == MAKE_UP[1]
    assert make_up(frozenset({0, 1, 2}), found, set()) == MAKE_UP[1]
    assert make_up(frozenset({1, 2, 3}), found, set()) == MAKE_UP[2]


def test_counts_by_hand():
    found = known(BENZYL_ACETATE)
    counts = Counts()
    # At level 1 the ring is cut in two; at level 2 it is whole, and the ester alone.
    counts.add([sets({0}, {1, 2}, {3, 4}, {5, 6, 7}, {8, 9, 10}), sets(ESTER, RING)], found)
    # Another molecule of the same kind: all of it one cluster.
    counts.add([sets(ESTER | RING)], found)
    counts.add([], known("C"))  # without bonds
    assert [counts.bonds[name] for name in BONDS] == [12, 0, 0, 2, 2, 2, 4]
    assert [counts.bonds_inside[name] for name in BONDS] == [4 + 6, 0, 0, 1, 2, 1, 1 + 2]
    assert [counts.clusters[name] for name in MAKE_UP] == [1, 0, 2, 0, 2, 1, 0]
    assert counts.size == 22
    assert counts.found["ring of 6"] == counts.found["esters"] == 2
    assert [counts.whole["ring of 6", level] for level in (1, 2)] == [1, 2]
    assert [counts.whole["esters", level] for level in (1, 2)] == [1, 2]
    assert counts.exact["ring of 6"] == counts.exact["esters"] == 1
    assert counts.found["fused rings"] == 0


def test_as_many_clusters_at_random():
    bonds = [(atom, atom + 1) for atom in range(11)]
    start = sets(*({atom, atom + 1} for atom in range(0, 12, 2)))
    wanted = [sets(*[{0}] * 4), sets({0}), sets({0})]  # Their number counts.
    first, second, third = substructures.as_many(start, wanted, bonds)
    assert (len(first), second, third) == (4, sets(range(12)), sets(range(12)))
    assert sorted(atom for each in first for atom in each) == list(range(12))
    # Of the clusters to start from, neighbours are joined: each still is a run of atoms.
    assert all(each == frozenset(range(min(each), max(each) + 1)) for each in first)
    assert all(any(each <= larger for larger in first) for each in start)
    assert substructures.as_many(start, wanted, bonds)[0] == first
    assert set(substructures.as_many(start, [sets(*[{0}] * 9)], bonds)[0]) == set(start)
    # In two parts that no bond joins, there is nothing left to join.
    assert len(substructures.as_many(start, [sets({0})], bonds[:4])[0]) == 4


def test_a_table_leaves_out_what_is_rare():
    counts = Counts()
    for _ in range(3):
        counts.add([sets(ESTER, RING)], known(BENZYL_ACETATE))
    counts.add([sets({0, 1, 2})], known("C1CC1"))
    text = substructures.tables({"one": counts, "two": counts}, at_least=3)
    (ring,) = re.findall(r"^\| ring of 6 .*$", text, re.MULTILINE)
    assert ring == "| ring of 6 | 3 | 100.0 % | 100.0 % | 100.0 % | 100.0 % | 100.0 % | 100.0 % |"
    assert "ring of 3" not in text
    assert "ring of 3" in substructures.tables({"one": counts}, at_least=1)
    assert "| in an aromatic ring | 18 | 100.0 % | 100.0 % |" in text
    assert "| in a chain: double or triple | 3 |" in text


def test_neighbouring_clusters_have_colours_of_their_own():
    clusters = sets({0, 1}, {2, 3}, {4}, {5, 6})
    bonds = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (0, 6)]
    colours = substructures.colours(clusters, bonds)
    assert set(colours) == {0, 1, 2, 3, 5, 6}
    assert colours[0] == colours[1]
    assert len({colours[0], colours[2], colours[5]}) == 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the files of Tox21, and weights of a model that was not trained."""
    folder = tmp_path_factory.mktemp("molecules")
    write_tox21(folder / "root")
    config = configs.load("Tox21", ["hidden=8", "gnn_layers=1", "encoder_layers=2"])
    graphs = data.load(config, folder / "root", folder / "cache")
    torch.manual_seed(1)
    state = {"config": config.to_dict(), "model": make_model(config, graphs).state_dict()}
    files.save(state, folder / "weights.pt")
    return folder, config, graphs, state["model"]


def test_atoms_are_rdkits(trained):
    """What is counted needs one numbering: bonds join the same atoms in both."""
    _, _, graphs, _ = trained
    assert len(graphs.smiles) == graphs.num_graphs
    for k, smiles in enumerate(graphs.smiles):
        bonds = {(min(pair), max(pair)) for pair in graphs.take(torch.tensor([k])).edge_index.t().tolist()}
        assert set(known(smiles).bonds) == bonds


def test_clusters_are_those_of_the_trees(trained):
    _, config, graphs, weights = trained
    models = substructures.ways(config, graphs, weights)
    assert list(models) == ["trained", "untrained", "at random"]
    index = list(range(graphs.num_graphs))
    found = {name: list(substructures.parsed(model, graphs, index)) for name, model in models.items()}
    for levels_of in found.values():
        for k, levels in enumerate(levels_of):
            num_atoms = int(graphs.node_ptr[k + 1] - graphs.node_ptr[k])
            assert bool(levels) == (int(graphs.edge_ptr[k + 1] - graphs.edge_ptr[k]) > 0)
            for level in levels:
                assert sorted(atom for each in level for atom in each) == list(range(num_atoms))
    # The tree of one molecule by its own, and that in the batch.
    alone = list(substructures.parsed(models["trained"], graphs, [13]))
    assert alone == [found["trained"][13]]
    assert found["trained"] != found["at random"]


def test_command(trained, tmp_path, capsys):
    folder, *_ = trained
    common = ["--data-root", str(folder / "root"), "--data-cache", str(folder / "cache")]
    weights = ["--weights", str(folder / "weights.pt")]
    picture = tmp_path / "molecules.svg"
    command = ["Tox21", *weights, *common, "--part", "train", "--at-least", "1", "--output", str(picture)]
    assert substructures.main([*command, "--draw", "0,2"]) == 0
    printed = capsys.readouterr().out
    # In the training set, of 18 without a ring, are methane three times and salt twice.
    assert "13 of 18 molecules (train set of Tox21) have bonds." in printed
    assert "| bond | number | trained | untrained | at random |" in printed
    assert picture.read_text().startswith("<?xml")
    assert substructures.main([*command, "--draw", "2,3,99"]) == 1
    assert "--draw: expected molecules with bonds below 18" in capsys.readouterr().err
    assert substructures.main(["HIV", *weights, *common]) == 1
    assert "--weights: expected GPN on HIV, got gpn on Tox21" in capsys.readouterr().err
