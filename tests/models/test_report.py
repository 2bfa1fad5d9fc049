"""The report: figures worked out by hand, what is missing is said, and settings do not mix."""

import json

import pytest

pytest.importorskip("yaml", reason="models needs pyyaml")
pytest.importorskip("torch_geometric", reason="models needs torch_geometric")
pytest.importorskip("tqdm", reason="models needs tqdm")

import yaml

from models import config, report, train
from models.training import digest


def record(dataset="PROTEINS", model="gpn", seed=0, fold=0, test=75.0, changed=None, digest=None, **more):
    changed = changed or {}
    return {
        "dataset": dataset,
        "model": model,
        "metric": "accuracy",
        "fold": fold,
        "seed": seed,
        "epoch": 40,
        "val": 70.0,
        "test": test,
        "height": 3.0,
        "epochs": 90,
        "seconds": 30.0,
        "digest": digest or f"{dataset} {model} {report.settings(changed)}",
        "changed": changed,
        "command": f"python -m models.train {dataset}",
        "commit": "abc1234",
        "torch": "2.13.0",
        "threads": 1,
        "processes": 1,
        "device": "cpu",
        **more,
    }


def folds(tests, **common):
    return [record(fold=fold, test=test, **common) for fold, test in enumerate(tests)]


def write(folder, records):
    for each in records:
        path = folder / each["dataset"] / each["model"] / "runs.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(each) + "\n")


def only(records):
    (group,) = report.groups(records)
    return report.summary(group)


def rows(text, *starts):
    """The cells of the rows of all tables that begin with these cells."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [line for line in lines if line[: len(starts)] == list(starts)]


# ------------------------------------------------------------------------------------------------------------
# Figures
# ------------------------------------------------------------------------------------------------------------


def test_deviation_over_seeds_of_the_means_over_folds():
    # Seed means 75 and 77, though folds differ by 20: mean 76, deviation sqrt(2).
    records = folds([65, 85] * 5) + folds([67, 87] * 5, seed=1)
    result = only(records)
    assert result.mean == 76
    assert result.deviation == pytest.approx(2**0.5)
    assert result.over == "seeds"
    assert result.error is None
    assert result.cell() == "76.00 ± 1.41 (20)"


def test_one_seed_has_a_deviation_over_folds_and_says_so():
    # Squares of the differences: 10 * 100; over nine: sqrt(111.1).
    result = only(folds([65, 85] * 5))
    assert result.deviation == pytest.approx((1000 / 9) ** 0.5)
    assert result.cell() == "75.00 ± 10.54 over folds (10)"
    assert result.complete


def test_unfinished_seed_says_how_many_folds():
    result = only(folds([70, 72, 74, 76, 78, 80, 82]))
    assert not result.complete
    assert result.cell() == "76.00 ± 4.32 over folds (7 of 10 folds)"


def test_unfinished_seed_beside_a_finished_one_is_left_out():
    result = only(folds([75] * 10) + folds([99] * 3, seed=1))
    assert (result.mean, result.runs) == (75, 10)
    assert result.cell() == "75.00 ± 0.00 over folds (10; 3 of unfinished seeds left out)"


def test_several_unfinished_seeds():
    result = only(folds([70] * 3) + folds([80] * 1, seed=1))
    assert result.mean == 72.5
    assert "4 runs, no seed with all 10 folds" in result.cell()


def test_node_tasks_average_seeds_first_and_deviate_over_splits():
    # Splits 80 and 84 (means of two seeds), five of each: mean 82, deviation sqrt(40 / 9).
    records = folds([79, 83] * 5, dataset="Cora") + folds([81, 85] * 5, dataset="Cora", seed=1)
    result = only(records)
    assert result.mean == 82
    assert result.over == "splits"
    assert result.deviation == pytest.approx((40 / 9) ** 0.5)
    assert result.error == pytest.approx((40 / 9) ** 0.5 / 10**0.5)
    assert result.cell() == "82.00 ± 2.11 (20)"
    assert "3 of 10 splits" in only(folds([80, 81, 82], dataset="Cora")).cell()


@pytest.mark.parametrize("dataset", ["ogbg-molpcba", "HIV", "Tox21"])
def test_one_run_is_complete_where_the_data_has_one_split(dataset):
    result = only([record(dataset=dataset, metric="ap", test=26.5)])
    assert result.complete
    assert result.cell() == "26.50 (1)"
    two = only([record(dataset=dataset, test=26.0), record(dataset=dataset, test=27.0, seed=1)])
    assert two.over == "seeds"
    assert two.cell() == "26.50 ± 0.71 (2)"


def test_repeated_run_counts_once_and_the_last_wins():
    result = only([*folds([70] * 10), record(fold=3, test=80.0)])
    assert result.runs == 10
    assert result.mean == 71


def test_costs_are_means():
    records = folds([75] * 10)
    records[0] |= {"epochs": 190, "seconds": 130.0, "height": 4.0}
    result = only(records)
    assert (result.epochs, result.seconds, result.height) == (100, 40, pytest.approx(3.1))
    for each in records:
        del each["height"]
    assert only(records).height is None


# ------------------------------------------------------------------------------------------------------------
# Reached or not
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("test", "reached"), [(74.88, "yes"), (74.87, "no")])
def test_graph_sets_may_be_one_deviation_of_the_paper_below(test, reached):
    text = report.report(folds([test] * 10))
    # 75.62 - 0.74
    assert rows(text, "PROTEINS", "GPN")[0][2:4] == ["74.88", reached]


@pytest.mark.parametrize(("shift", "reached"), [(-0.66, "yes"), (-0.68, "no")])
def test_node_sets_may_be_one_standard_error_over_the_splits_below(shift, reached):
    # Deviation sqrt(40 / 9) = 2.108 over ten splits: error 0.667.
    text = report.report(folds([88.07 + shift + step for step in (-2, 2) * 5], dataset="Cora"))
    assert rows(text, "Cora", "GPN")[0][2:5] == ["0.67", "87.40", reached]


def test_unfinished_is_reached_so_far():
    text = report.report(folds([76.0] * 3))
    assert rows(text, "PROTEINS", "GPN")[0][3] == "yes, so far"


def test_baselines_have_nothing_to_reach():
    text = report.report(folds([76.0] * 10, model="topk"))
    assert rows(text, "PROTEINS", "TopK")[0][2:4] == ["", ""]
    assert rows(text, "TopK, paper") == [["TopK, paper", "71.10 ± 0.90"]]


# ------------------------------------------------------------------------------------------------------------
# Tables
# ------------------------------------------------------------------------------------------------------------


def test_methods_in_rows_and_data_sets_in_columns():
    records = [
        *folds([80.0] * 10, dataset="NCI1"),
        *folds([75.0] * 10),
        *folds([73.0] * 10, model="gcn"),
        *folds([88.0] * 10, dataset="Cora"),
        record(dataset="ogbg-molpcba", metric="ap", test=26.5),
        *folds([85.0] * 10, dataset="my.module:Mine('data')"),
    ]
    text = report.report(records)
    titles = [line for line in text.splitlines() if line.startswith("#")]
    assert titles == [
        "# Results",
        "## Graph classification",
        "## Node classification",
        "## Molecules",
        "## Commands",
    ]
    header, node_header, molecule_header = rows(text, "method")
    assert header == ["method", "PROTEINS", "NCI1", "Mine('data')"]
    assert node_header == ["method", "Cora"]
    assert molecule_header == ["method", "ogbg-molpcba (ap)"]
    gpn, *_ = rows(text, "GPN")
    assert gpn[1:3] == ["75.00 ± 0.00 over folds (10)", "80.00 ± 0.00 over folds (10)"]
    assert rows(text, "GPN, paper")[0][1:3] == ["75.62 ± 0.74", "80.87 ± 0.43"]
    assert rows(text, "GCN")[0][1] == "73.00 ± 0.00 over folds (10)"
    assert "- `python -m models.train NCI1`: commit abc1234, torch 2.13.0, cpu, threads: 1, runs: 10" in text


def test_cells_that_were_not_run_say_what_they_would_take():
    estimates = {"edgepool": {"DD": 20.0, "PROTEINS": 1.5}, "topk": {"PROTEINS": 3.0}, "gmt": {"Cora": 1.0}}
    records = [
        *folds([75.0] * 10),
        *folds([77.0] * 10, dataset="DD"),
        *folds([70.0] * 10, dataset="PROTEINS", model="topk"),
    ]
    text = report.report(records, estimates=estimates)
    assert rows(text, "EdgePool") == [["EdgePool", "not run: about 1.5 h", "not run: about 20 h"]]
    assert rows(text, "TopK") == [["TopK", "70.00 ± 0.00 over folds (10)"]]  # It was run.
    assert rows(text, "EdgePool, paper")[0][2] == "72.77 ± 3.99"
    assert "GMT" not in text
    assert "*Not run*" in text
    assert "*Not run*" not in report.report(records)


def test_estimates_of_a_folder(tmp_path):
    assert report.read_estimates(tmp_path) == {}
    (tmp_path / "estimates.yaml").write_text("edgepool:\n  DD: 20\n")
    assert report.read_estimates(tmp_path) == {"edgepool": {"DD": 20}}


def test_published_figures_stand_below_ours():
    records = [*folds([78.5] * 10, dataset="Minesweeper", metric="auc"), *folds([86.0] * 10, dataset="Cora")]
    text = report.report(records)
    order = [row[0] for row in rows(text.partition("## Node")[2]) if len(row) == 3]
    assert order[:3] == ["method", "---", "GPN"]
    assert order[-1] == "GAT-sep (Platonov et al.)"
    assert rows(text, "GCN (Platonov et al.)") == [["GCN (Platonov et al.)", "", "89.75 ± 0.52"]]
    assert "Platonov" not in report.report(folds([86.0] * 10, dataset="Cora"))


def test_ablation_beside_the_paper():
    records = [
        *folds([75.0] * 10),
        *folds([74.0] * 10, changed={"conv": "gat"}),
        *folds([70.0] * 10, changed={"complete": True}),
        *folds([71.0] * 10, changed={"multiset": "mean", "patience": 100}),
        *folds([88.0] * 10, dataset="CiteSeer", changed={"complete": True}),
    ]
    text = report.report(records)
    assert rows(text, "settings") == [["settings", "PROTEINS", "CiteSeer"]]
    assert rows(text, "conv=gat")[0][1] == "74.00 ± 0.00 over folds (10)"
    assert rows(text, "conv=gat, paper") == [["conv=gat, paper", "75.41 ± 0.91", "77.16 ± 1.50"]]
    assert rows(text, "complete=true, paper") == [["complete=true, paper", "74.12 ± 1.63", "out of memory"]]
    # Not what the paper did: no figure of the paper's beside it.
    assert rows(text, "multiset=mean, patience=100")[0][1] == "71.00 ± 0.00 over folds (10)"
    assert not rows(text, "multiset=mean, patience=100, paper")
    # Changed runs do not count for the original.
    assert rows(text, "GPN")[0][1] == "75.00 ± 0.00 over folds (10)"


def test_changed_settings_have_a_table_of_their_own():
    changed = {"hidden": 64, "clip": None}
    records = [
        *folds([75.0] * 10),
        *folds([60.0] * 10, changed=changed),
        *folds([50.0] * 9, model="gcn", changed={"conv": "gat"}),
    ]
    text = report.report(records)
    (mine,) = rows(text, "PROTEINS", "GPN", "`hidden=64, clip=none`")
    assert mine[3:] == ["60.00 ± 0.00 over folds (10)", "74.88", "no", "90", "30", "3.00"]
    (baseline,) = rows(text, "PROTEINS", "GCN", "`conv=gat`")
    assert "9 of 10 folds" in baseline[3]
    assert baseline[4:6] == ["", ""]
    assert "## Ablation" not in text


def test_what_was_tuned_stands_apart_from_the_authors_scoring_and_the_rest():
    averaged = train.changed(config.load("Cora-averaged"))
    sets = {
        "Authors' scoring": [{"directed_scores": True}],
        "Tuned on validation": [averaged, averaged | {"deepsets_layers": 1}],
        "Other settings": [{"directed_scores": True, "hidden": 64}, averaged | {"input_dropout": 0.1}],
    }
    runs = [
        run
        for each in sets.values()
        for changed in each
        for run in folds([80.0] * 10, dataset="Cora", changed=changed)
    ]
    sections = report.report(runs).split("\n## ")
    for title, each in sets.items():
        (section,) = [section for section in sections if section.startswith(f"{title}\n")]
        found = {row[2] for row in rows(section, "Cora", "GPN")}
        assert found == {f"`{report.settings(changed)}`" for changed in each}


def test_one_level_only_is_an_ablation():
    text = report.report(folds([80.0] * 10) + folds([70.0] * 10, changed={"max_height": 1}))
    assert rows(text, "max_height=1") == [["max_height=1", "70.00 ± 0.00 over folds (10)"]]


def test_digests_do_not_mix_even_if_no_setting_was_changed():
    # As after a change of the preset: the larger group is the cell, the other is listed.
    text = report.report(folds([75.0] * 10, digest="new") + folds([50.0] * 4, digest="old"))
    assert rows(text, "GPN")[0][1] == "75.00 ± 0.00 over folds (10)"
    (other,) = rows(text, "PROTEINS", "GPN", "none (another version of the preset, old)")
    assert other[3] == "50.00 ± 0.00 over folds (4 of 10 folds)"


def test_own_node_task():
    records = folds([80.0, 82.0], dataset="my.module:Mine", changed={"task": "node"})
    text = report.report(records)
    assert rows(text, "GPN") == [["GPN", "81.00 ± 1.41 (2)"]]
    assert "## Node classification" in text


def test_list_of_runs():
    records = [record(seed=1, fold=2, test=71.234), record(seed=0, fold=9, test=70.0)]
    assert "## Runs" not in report.report(records)
    listed = rows(report.report(records, with_runs=True).partition("## Runs")[2], "PROTEINS")
    assert [row[3:6] for row in listed] == [["0", "9", "70.00"], ["1", "2", "71.23"]]


# ------------------------------------------------------------------------------------------------------------
# The command and its files
# ------------------------------------------------------------------------------------------------------------


def test_broken_lines_are_skipped_with_a_warning(tmp_path, capsys):
    write(tmp_path, folds([75.0] * 10))
    path = tmp_path / "PROTEINS" / "gpn" / "runs.jsonl"
    path.write_text(path.read_text() + '{"fold": 3}\n[1]\n{"dataset": "PROT')
    assert len(report.read(tmp_path)) == 10
    warned = capsys.readouterr().err.splitlines()
    assert len(warned) == 3
    for number, line in zip((11, 12, 13), warned, strict=True):
        assert f"runs.jsonl, line {number}: skipped" in line


def test_command(tmp_path, capsys):
    write(tmp_path / "results" / "deeper", folds([75.0] * 10))
    page = tmp_path / "pages" / "report.md"
    assert report.main([str(tmp_path / "results"), "--markdown", str(page), "--runs"]) == 0
    assert page.read_text() == capsys.readouterr().out
    assert "## Runs" in page.read_text()


def test_nothing_to_report(tmp_path, capsys):
    assert report.main([str(tmp_path / "missing")]) != 0
    assert "there is no folder" in capsys.readouterr().err
    assert report.main([str(tmp_path)]) != 0
    assert "no finished runs" in capsys.readouterr().err


def test_figures_of_the_paper_are_those_of_known_sets_and_methods():
    paper = yaml.safe_load(report.PAPER.read_text())
    assert set(paper["methods"]) == set(report.NAMES) - {"gin"}  # which the paper has not
    for figures in [*paper["methods"].values(), *paper["ablation"].values()]:
        assert set(figures) <= set(config.presets())
        for figure in figures.values():
            assert figure == "out of memory" or 0 < figure[1] < figure[0] < 100
    for key in paper["ablation"]:
        changed = config.load("PROTEINS", [key]).to_dict()
        assert changed != config.load("PROTEINS").to_dict()


def test_the_page_of_results_is_what_the_committed_runs_give():
    results = report.PAPER.with_name("results")
    page = report.PAPER.parents[1] / "docs" / "results.md"
    records = report.read(results)
    assert page.read_text() == report.report(records, estimates=report.read_estimates(results))
    readme = (report.PAPER.parents[1] / "README.md").read_text()
    command = "python -m models.report models/results --readme README.md"
    assert readme == report.readme(readme, records), command


def test_readme_gets_its_table_between_its_marks(tmp_path, capsys):
    page = tmp_path / "README.md"
    page.write_text(f"before\n{report.START}\nold\n{report.END}\nafter\n")
    results = str(report.PAPER.with_name("results"))
    assert report.main([results, "--readme", str(page)]) == 0
    text = page.read_text()
    assert text.startswith(f"before\n{report.START}\n| data set | here | paper | reached |\n")
    assert text.endswith(f"|\n{report.END}\nafter\n")
    assert "| PROTEINS |" in text
    assert "GIN" not in text
    page.write_text("no marks")
    assert report.main([results, "--readme", str(page)]) == 1
    assert "expected the marks" in capsys.readouterr().err
    assert page.read_text() == "no marks"


@pytest.mark.parametrize(
    "preset", ["PROTEINS", "Cora", "CiteSeer", "Cora-tuned", "Cora-averaged", "PubMed-tuned"]
)
def test_committed_runs_are_of_the_presets_as_they_are(preset):
    settings = config.load(preset)
    records = report.read(train.run_folder(report.PAPER.with_name("results"), settings))
    assert len(records) >= 10
    assert {record["digest"] for record in records} == {digest(settings)}


def test_committed_settings_have_the_digests_they_are_named_by():
    """What digests are made of must not change: finished runs would be made again."""
    found = sorted(report.PAPER.with_name("results").rglob("settings-*.yaml"))
    assert found
    for path in found:
        assert digest(config.load(str(path), trust=True)) == path.stem.partition("-")[2], path
