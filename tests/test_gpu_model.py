"""The cost model of a GPU: its rule, its counts beside the emulation's, what it carries on, and the guard."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def gpu_model(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import emulation
    import gpu_model

    if emulation.find_cmake() is None:
        pytest.skip("needs cmake")
    return gpu_model


@pytest.fixture
def saved():
    return json.loads((ROOT / "benchmarks" / "results" / "gpu_model.json").read_text())


def test_the_time_is_that_of_the_rule(gpu_model):
    kernels = [
        gpu_model.Kernel("moves", 2, 1, 1008e6, 1),  # 1 ms of an RTX 4090's peak bandwidth
        gpu_model.Kernel("multiplies", 1, 0, 1, 82.6e9),  # 1 ms of its peak operations
    ]
    cost = gpu_model.summary(kernels)
    assert cost["host_ms"] == pytest.approx(3 * 0.005 + 0.015)
    assert cost["ms"]["RTX 4090"] == pytest.approx(1 / 0.8 + 1 / 0.6)
    assert cost["ms"]["H100"] == pytest.approx(1008 / 3350 / 0.8 + 82.6 / 67 / 0.6)
    many = gpu_model.summary([gpu_model.Kernel("small", 1000, 0, 1, 1)])
    assert many["ms"]["RTX 4090"] == pytest.approx(5.0)


def test_an_operator_without_a_rule_is_named(gpu_model):
    with pytest.raises(NotImplementedError, match="has no erfinv"), gpu_model.Tally():
        torch.rand(3).erfinv()


def noted(gpu_model, function):
    tally = gpu_model.Tally()
    with gpu_model.as_on_cuda(tally), tally:
        function()
    return tally.noted


def test_waits_are_found_where_cuda_waits(gpu_model):
    x = torch.arange(6.0)
    kernels = noted(gpu_model, lambda: x[x > 2])
    assert [(kernel.name, kernel.launches, kernel.waits) for kernel in kernels] == [
        ("gt", 1, 0),
        ("index", 6, 1),
    ]
    assert [kernel.waits for kernel in noted(gpu_model, lambda: x.tolist())] == [1]
    assert [kernel.waits for kernel in noted(gpu_model, lambda: int(x[0]))] == [1]


def test_what_is_on_the_host_costs_the_device_nothing(gpu_model):
    x = torch.arange(6.0)
    kernels = noted(gpu_model, lambda: [float(x.cpu()[k]) for k in range(3)])
    assert [(kernel.name, kernel.waits) for kernel in kernels] == [("to_host", 1)] * 3
    assert noted(gpu_model, lambda: int(torch.randint(5, (), device="cpu"))) == []
    assert noted(gpu_model, lambda: bool(torch.ones(3, dtype=torch.bool)[1])) == []
    assert len(noted(gpu_model, lambda: torch.ones(3, device=x.device))) == 1


def test_bytes_are_those_of_the_elements(gpu_model):
    x, index = torch.randn(10, 4), torch.tensor([1, 1, 2])
    (kernel,) = noted(gpu_model, lambda: x.index_select(0, index))
    assert kernel.bytes == 3 * 8 + 2 * 3 * 4 * 4
    (kernel,) = noted(gpu_model, lambda: x + torch.ones_like(x[:1]).expand(10, 4))[-1:]
    assert kernel.bytes == 2 * 160 + 16
    (kernel,) = noted(gpu_model, lambda: x @ x.t())
    assert kernel.operations == 2 * 10 * 4 * 10


def test_ours_are_those_of_the_emulation_at_all_channels(gpu_model, monkeypatch):
    """Launches exactly; bytes, which are carried on from few channels, to a sector a row."""
    import emulation
    import gpu_cases

    for module in (gpu_model, gpu_cases):
        monkeypatch.setattr(module, "CHANNELS", 32)
    calls = gpu_model.run("ParsePooling", "layer", gpu_model.Load("", emulation.Workload(6, 12, 20), 1))[
        0
    ].calls
    for call, exact, kernels in zip(calls, emulation.count(calls), gpu_model.count_ours(calls), strict=True):
        assert sum(kernel.launches for kernel in kernels) == exact["launches"], call.operator
        assert sum(kernel.waits for kernel in kernels) == exact["waits"], call.operator
        total = sum(kernel.bytes for kernel in kernels)
        assert total == pytest.approx(exact["bytes_touched"], rel=0.02), call.operator


def test_pairs_of_one_node_share_a_product(gpu_model):
    """Counted by the sizes that the sources have."""
    files = ("launch.cuh", "mlp.cuh", "edge_logits.cuh")
    sources = "".join((ROOT / "csrc" / "cuda" / file).read_text() for file in files)

    def constant(name):
        return int(re.search(rf"\b{name} = (?:sizeof.* : )?(\d+)", sources)[1])

    assert constant("kRows") * constant("kMlpThreads") // constant("kWarp") == gpu_model.ROWS
    assert 1 << constant("piece_bits") == gpu_model.CHUNK
    assert constant("kPairsOfNode") == gpu_model.PAIRS_OF_NODE

    def saved_products(*counts):
        first = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        call = SimpleNamespace(
            arguments={"pairs": first.expand(2, -1), "parameters": [torch.empty(4, 4)]},
        )
        return gpu_model.saved_operations(call) / (2 * 4 * 4)

    assert saved_products(100, 156) == 256 - 2 * 9  # eight times 32 rows, one of them of two nodes
    assert saved_products(*[1] * 256) == 0
    assert saved_products(*[1] * 256, 40) == 40 - 2 * 2
    assert saved_products(2, 1) == 0


def test_bytes_grow_with_the_workload(gpu_model):
    """A run with half the nodes and edges, doubled."""
    import emulation

    costs = []
    for workload, scale in (
        (emulation.Workload(1, 1000, 2000), 400),
        (emulation.Workload(1, 2000, 4000), 200),
    ):
        parts = gpu_model.phases("ParsePooling", "layer", gpu_model.Load("", workload, scale))
        costs.append(gpu_model.summary(parts["forward"] + parts["backward"]))
    small, large = costs
    assert small["waits"] == large["waits"]
    assert small["bytes"] == pytest.approx(large["bytes"], rel=0.05)
    assert small["operations"] == pytest.approx(large["operations"], rel=0.05)
    # Three sorts are too large for one block now.
    assert small["launches"] <= large["launches"] <= small["launches"] + 3 * 7


@pytest.mark.parametrize("form", ["layer", "hierarchy"])
def test_guard(gpu_model, saved, form):
    """Whoever changes what a layer costs on a GPU runs ``python benchmarks/gpu_model.py`` anew."""
    (expected,) = (
        entry["both"]
        for entry in saved["results"]
        if (entry["method"], entry["form"], entry["workload"]) == ("ParsePooling", form, "a")
    )
    costs = gpu_model.modelled("ParsePooling", form, "a")
    cost = costs["both"]
    assert cost["waits"] == expected["waits"]
    for name in ("launches", "bytes"):
        assert cost[name] == pytest.approx(expected[name], rel=0.05), name
    if form == "hierarchy":  # a wait a level, and one for the first pairs
        assert costs["forward"]["launches"] <= 60 * (cost["waits"] - 1)


def test_a_step_as_one_graph(gpu_model):
    """Launched once, as nothing in it waits; a step that does is refused."""
    import emulation
    from gpu_cases import CAPTURED, Load

    load = Load("", emulation.Workload(6, 12, 16), 1)
    parts = gpu_model.phases("ParsePooling", CAPTURED, load)
    kernels = parts["forward"] + parts["backward"]
    cost = gpu_model.as_one_graph(kernels)
    assert (cost["launches"], cost["waits"]) == (1, 1)
    assert cost["kernels"] > 500
    assert cost["ms"]["H100"] == max(0.02, cost["device_ms"]["H100"])
    with pytest.raises(AssertionError, match="cannot wait for the host"):
        gpu_model.as_one_graph([*kernels, gpu_model.Kernel("item", 1, 1, 8, 0)])


def test_a_captured_step_takes_at_most_half_the_time(saved):
    """By the model, beside the dynamic form of the same classifier."""
    both = {
        entry["form"]: entry["both"]["ms"] for entry in saved["results"] if entry["method"] == "ParsePooling"
    }
    for card, milliseconds in both["captured"].items():
        assert milliseconds <= both["classifier"][card] / 2


def test_a_layer_holds_less_than_top_k(gpu_model, saved):
    """By the model, at 10^5 nodes now and at 10^6 as saved."""
    now = gpu_model.count_memory(gpu_model.HELD_SCALES[:1])
    held = {(entry["method"], entry["nodes"]): entry["bytes"] for entry in saved["memory"]}
    for entry in now:
        assert entry["bytes"] == pytest.approx(held[entry["method"], entry["nodes"]], rel=0.05)
    for nodes in (10**5, 10**6):
        assert held["ParsePooling", nodes] < held["TopK", nodes]


def test_memory_is_that_of_what_lives(gpu_model):
    tally = gpu_model.Tally()
    with gpu_model.as_on_cuda(tally), tally:
        x = torch.zeros(1000, device=torch.device("cpu"))
        y = x + 1  # beside x
        del x
        z = y[:10].exp()  # a view, and then y alone lives beside this
    assert tally.most_held == 8000
    assert tally.bytes_held() == 4040
    assert z.numel() == 10


def test_a_run_of_some_rows_leaves_the_others(gpu_model, saved):
    """It replaces the rows that it counted, and the tables that it was asked for."""
    assert gpu_model.updated(saved, {"results": []}) == saved
    row = next(row for row in saved["results"] if (row["method"], row["form"]) == ("TopK", "hierarchy"))
    new = row | {"both": {"launches": 1}}
    changed = gpu_model.updated(saved, {"results": [new], "memory": []})
    assert changed["results"][saved["results"].index(row)] == new
    assert [row for row in changed["results"] if row != new] == [r for r in saved["results"] if r != row]
    assert (changed["operators"], changed["memory"]) == (saved["operators"], [])
    other = row | {"workload": "b"}  # which is counted only if asked for
    grown = gpu_model.updated(saved, {"results": [other]})["results"]
    assert grown.index(other) == grown.index(row) + 7
    assert gpu_model.updated(saved | {"rule": {}}, {"results": [new]})["results"] == [new]
    assert gpu_model.updated({}, {"results": [new]})["operators"] == []


def test_the_command_counts_what_is_asked_for(gpu_model, monkeypatch, tmp_path, capsys):
    path = tmp_path / "gpu_model.json"
    cost = gpu_model.summary([gpu_model.Kernel("small", 1000, 0, 1, 1)])
    row = {"method": "TopK", "form": "layer", "workload": "b"}
    path.write_text(json.dumps(gpu_model.updated({}, {"results": [row | {"both": cost}]})))

    def run(*words):
        monkeypatch.setattr("sys.argv", ["gpu_model.py", "--output", str(tmp_path), *words])
        gpu_model.main()
        return json.loads(path.read_text())

    def modelled(method, form, workload):
        return {"method": method, "form": form, "workload": workload, "both": cost | {"kernels": 7}}

    monkeypatch.setattr(gpu_model, "modelled", modelled)
    memory = [{"method": m, "nodes": 10, "bytes": 10**6} for m in gpu_model.HELD]
    monkeypatch.setattr(gpu_model, "ALSO", {"operators": list, "memory": lambda: memory})
    some = run("--method", "TopK", "--workload", "a", "--form", "layer", "--card", "H100")
    assert [row["workload"] for row in some["results"]] == ["a", "b"]
    assert some["results"][1]["both"]["ms"].keys() == gpu_model.CARDS.keys()
    assert some["memory"] == []
    printed = capsys.readouterr().out
    assert "H100" in printed
    assert "RTX" not in printed
    assert run("--workload", "b", "--method", "TopK", "--also", "memory")["memory"] == memory
    everything = run()
    assert len(everything["results"]) == 39
    assert everything["results"][-1]["form"] == "captured"
    assert everything["memory"] == memory


def test_the_page_has_the_result(gpu_model, saved):
    page = (ROOT / "docs" / "cuda.md").read_text()
    assert gpu_model.report(saved) in page
    assert gpu_model.rule_table() in page
