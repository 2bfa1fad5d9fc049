"""docs/scaling.md holds what benchmarks/scaling.py prints, and the model behind it adds up."""

from pathlib import Path

import pytest

pytest.importorskip("tqdm", reason="benchmarks show their progress")

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "scaling.md").read_text()


@pytest.fixture
def scaling(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import scaling

    return scaling


def test_the_page_has_the_tables(scaling):
    assert scaling.page_with(PAGE, scaling.parts(scaling.DOCUMENTED)) == PAGE


def test_the_page_has_a_place_for_each_table(scaling):
    with pytest.raises(SystemExit, match="expected one part 'costs' in the page, found 0"):
        scaling.page_with(PAGE.replace("<!-- costs -->", ""), scaling.parts(scaling.DOCUMENTED))


def test_what_shrinks_with_ranks_does_so(scaling):
    costs = scaling.measured()["costs"]
    few, many = (
        scaling.steps(scaling.DOCUMENTED, scaling.EPYC._replace(ranks=ranks), costs) for ranks in (8, 64)
    )
    for before, after in zip(few, many, strict=True):
        if before.shrinks:
            assert after.seconds < before.seconds / 6
        else:
            assert before.seconds <= after.seconds < 1.2 * before.seconds


@pytest.mark.parametrize(("ranks", "nodes", "per_node"), [(2, 2**30, 8), (4, 2**30, 12), (8, 1e9, 12)])
def test_the_all_reduces_carry_what_parse_exchanges(scaling, ranks, nodes, per_node):
    costs = scaling.measured()["costs"]
    graph, machine = scaling.Graph(nodes, 10 * nodes), scaling.EPYC._replace(ranks=ranks)
    step = next(s for s in scaling.steps(graph, machine, costs) if s.name == "parse: two all-reduces")
    assert step.sent == pytest.approx(2 * (ranks - 1) / ranks * per_node * nodes)


def test_measured_payload_is_that_of_the_model(scaling):
    for result in scaling.measured()["results"]:
        facts = 4096 / result["num_nodes"]
        assert result["parse"]["payload_bytes_per_node"] == pytest.approx(8 + facts)
        if result["ranks"] > 1 and result["num_nodes"] >= 100_000:
            ring = 2 * (result["ranks"] - 1) / result["ranks"] * 8
            assert result["parse"]["wire_bytes_per_node"] == pytest.approx(ring, rel=0.1)


def test_what_the_page_says_about_the_tables(scaling):
    """The walls: memory on one DGX, and the part of the time that ranks do not divide."""
    costs = scaling.measured()["costs"]

    def most(name: str, call: str) -> float:
        machine = scaling.MACHINES[name]
        found = scaling.steps(scaling.DOCUMENTED, machine, costs)
        held = max(step.held for step in found if step.name.startswith(call))
        return held / 1e9 + 20 * scaling.DOCUMENTED.edges / machine.ranks / 1e9

    assert most("1 DGX H100 (8 GPUs)", "parse") < 80 < most("1 DGX H100 (8 GPUs)", "coarsen")
    assert most("2 DGX H100 (16 GPUs)", "coarsen") < 80
    servers = scaling.steps(scaling.DOCUMENTED, scaling.MACHINES["8 servers, 400 Gb/s"], costs)
    by_node = [step for step in servers if not step.shrinks]
    assert 0.4 < sum(step.seconds for step in by_node) / sum(step.seconds for step in servers) < 0.6
    assert max(by_node, key=lambda step: step.seconds).name == "parse: two all-reduces"
