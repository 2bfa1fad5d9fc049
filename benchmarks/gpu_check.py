"""Checks gpn_ops on the GPU of this machine and reports the results: `make gpu`.

    python benchmarks/gpu_check.py [--quick] [--only tests] [--again]

Builds the CUDA library for the card of this machine. Runs the tests, some of them also under NVIDIA's
compute-sanitizer, the operators in CUDA graphs and the benchmarks, and trains a model on both devices. Writes
`gpu-report/`: README.md (figures beside predictions, failures), report.json, results/ with plots, and
logs/ of every step. Steps that passed are not run again, except the build: stop at any time, the same command
resumes.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import common
import torch
from pages import sections

ROOT = Path(__file__).resolve().parent.parent
PASSED, FAILED, SKIPPED = "passed", "FAILED", "skipped"
ISSUES = "https://github.com/gpn-ops/gpn_ops/issues"


# Without it every step below would pass, on plain PyTorch.
LOADS = """
import sys, torch, gpn_ops.library
torch.cuda.init()
print("the CUDA library:", gpn_ops.library.cuda_status())
sys.exit(not gpn_ops.library.cuda_loaded())
"""


class Step(NamedTuple):
    """One command, and its line of the verdict."""

    name: str
    group: str
    command: Sequence[str]
    environment: Mapping[str, str] = MappingProxyType({})
    skip: str = ""  # why it cannot run here


def benchmarks(quick: bool) -> list[str]:
    """The benchmarks whose results the report shows."""
    names = [section.command for section in sections.SECTIONS if not section.command.startswith("epoch.py")]
    for of_the_cpu in (" --instructions", " --processor-time"):
        names = [name.replace(of_the_cpu, "") for name in names]
    names = [name for name in names if "--busy" not in name]  # what processors have to share, a card has not
    without_file = [name for name in names if "--hubs" not in name or common.hub_file()]
    return [f"{name} --quick" if quick else name for name in without_file]


def steps(options: argparse.Namespace) -> list[Step]:
    """All steps, in order."""
    device, output = options.device, options.output
    python = sys.executable
    pytest = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--device", device)
    results = ("--device", device, "--output", str(output / "results"))
    data = [] if options.data_root is None else ["--data-root", str(options.data_root)]
    on_cuda = device == "cuda"

    build = (python, "setup.py", "--quiet", "build_libraries", "--inplace")
    made = [Step("build", "build", build if device == "cpu" else (python, "-m", device))]
    if on_cuda:
        # The library serves all cards that torch sees, or none.
        cards = sorted({torch.cuda.get_device_capability(k) for k in range(torch.cuda.device_count())})
        archs = ";".join(f"{major}.{minor}" for major, minor in cards)
        made = [
            Step("build", "build", build, {"GPN_OPS_CUDA": "1", "TORCH_CUDA_ARCH_LIST": archs}),
            Step("library", "build", (python, "-c", LOADS)),
        ]
    tests = ["tests/test_cuda.py", "tests/test_mask.py"] if options.quick else ["tests"]
    few = ("-k", "not peak_memory and not at_size and not side_stream") if options.quick else ()
    found = [
        *made,
        Step("environment", "build", (python, "gpn_ops/collect_env.py")),
        Step("tests", "tests", (*pytest, *tests, *few)),
        Step("graphs", "CUDA graphs", (*pytest, "tests/test_cuda.py", "-k", "capture or no_synchronisation")),
    ]
    missing = "compute-sanitizer is not installed (it comes with the CUDA toolkit)"
    sanitized = ("-k", "not capture and not peak_memory and not out_of_range")
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        sanitizer = ("compute-sanitizer", "--tool", tool, "--error-exitcode", "1")
        files = ("tests/test_parse.py", "tests/test_cuda.py")
        found.append(
            Step(
                tool,
                "compute-sanitizer",
                (*sanitizer, "--target-processes", "application-only", *pytest, *sanitized, *files),
                {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
                "" if on_cuda and shutil.which("compute-sanitizer") else missing,
            )
        )
    for command in benchmarks(options.quick):
        script, *others = command.split()
        if script in ("training.py", "static.py"):
            others += data
        name = "-".join(
            ["benchmark", script.removesuffix(".py"), *(o.strip("-") for o in command.split()[1:])]
        )
        # torch's compiler knows no other devices.
        why = "inductor has no such device" if script == "static.py" and device not in ("cuda", "cpu") else ""
        measures = (python, f"benchmarks/{script}", *others, *results)
        found.append(Step(name, "benchmarks", measures, skip=why))
    for each in dict.fromkeys((device, "cpu")):
        train = (python, "-m", "models.train", options.dataset, "--folds", "0", "--device", each, "--quiet")
        chosen = [*data, *(part for setting in options.set for part in ("--set", setting))]
        found.append(
            Step(f"train-{each}", "training", (*train, *chosen, "--output", str(output / "models" / each)))
        )
    return [step for step in found if not options.only or step.group in options.only]


def run(step: Step, output: Path) -> dict[str, Any]:
    """Runs a step with its output in a log; returns the outcome."""
    record: dict[str, Any] = {"group": step.group, "command": list(step.command)}
    if step.skip:
        return {**record, "outcome": SKIPPED, "why": step.skip}
    log = output / "logs" / f"{step.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    start = time.monotonic()
    with log.open("w") as file:
        done = subprocess.run(
            step.command,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, **step.environment},
        )
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if done.returncode < 0:  # Such as the system's, where memory ran out: the log does not say so.
        lines.append(f"ended by signal {-done.returncode} ({signal.strsignal(-done.returncode)})")
    return {
        **record,
        "outcome": PASSED if done.returncode == 0 else FAILED,
        "code": done.returncode,
        "seconds": round(time.monotonic() - start, 1),
        "last": lines[-1][-300:] if lines else "",
    }


def verdict(steps: Sequence[Step], records: dict[str, Any], name: str) -> list[str]:
    """At most ten lines: one for the card, one per group, one for what to do next."""
    lines = [f"gpn_ops on {name}"]
    failed = []
    for group in dict.fromkeys(step.group for step in steps):
        outcomes = {step.name: records[step.name]["outcome"] for step in steps if step.group == group}
        bad = [name for name, outcome in outcomes.items() if outcome == FAILED]
        failed += bad
        told = PASSED if PASSED in outcomes.values() else SKIPPED
        told = f"{FAILED}: {', '.join(bad)}" if bad else told
        if told == SKIPPED:
            told += f": {next(records[name]['why'] for name in outcomes)}"
        lines.append(f"  {group}: {told}"[:200])
    if failed:
        lines.append(f"Please report it: {ISSUES}, with the folder {{output}} as an archive.")
    else:
        lines.append("All well. Figures beside their predictions: {output}/README.md")
    return lines


def page(output: Path, lines: list[str], records: dict[str, Any], device: str) -> str:
    """The report, in Markdown."""
    parts = ["# gpn_ops on a GPU", "\n".join(["```", *lines, "```"])]
    environment = output / "logs" / "environment.log"
    if environment.exists():
        parts += ["## The machine", f"```\n{environment.read_text().strip()}\n```"]
    rows = [
        [name, record["outcome"], record.get("seconds", "-"), record.get("why") or record.get("last", "")]
        for name, record in records.items()
    ]
    parts += ["## Steps", common.table(["step", "outcome", "seconds", "its last line"], rows)]
    for name, record in records.items():
        if record["outcome"] == FAILED:
            log = (output / "logs" / f"{name}.log").read_text(errors="replace").splitlines()[-40:]
            command = " ".join(record["command"])
            parts += [f"## {name} failed", f"`{command}`", "\n".join(["```", *log, "```"])]
    for section in sections.SECTIONS:
        path = output / "results" / f"{section.stem}_{device}.json"
        if path.exists():
            content = json.loads(path.read_text())
            parts += [f"## {section.title}", sections.machine_line(content), section.module.report(content)]
            plots = sorted(path.parent.glob(f"{path.stem}*.svg"))
            parts += [f"![{plot.stem}](results/{plot.name})" for plot in plots]
    trained = sorted((output / "models").rglob("runs.jsonl"))
    runs = [json.loads(line) for path in trained for line in path.read_text().splitlines()]
    if runs:
        keys = ["device", "dataset", "model", "test", "val", "epoch", "epochs", "seconds"]
        rows = [[str(run.get(key, "-")) for key in keys] for run in runs]
        parts += ["## The same training on both devices", common.table(keys, rows)]
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device",
        default="cuda",
        help="the accelerator that torch finds, or cpu to try the check itself (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="a few tests, small sizes")
    parser.add_argument("--only", action="append", default=[], help="only this line of the verdict")
    parser.add_argument("--again", action="store_true", help="forget the steps that have ended")
    parser.add_argument("--dataset", default="PROTEINS", help="what models.train trains on (%(default)s)")
    parser.add_argument(
        "--data-root",
        type=Path,
        help="a folder with TUDataset/<name>/raw (default: data sets are downloaded)",
    )
    parser.add_argument("--set", action="append", default=[], help="a setting of models.train")
    parser.add_argument("--output", type=Path, default=ROOT / "gpu-report", help="(default: gpu-report)")
    options = parser.parse_args(arguments)
    options.output = options.output.resolve()
    options.data_root = options.data_root and options.data_root.resolve()
    device = torch.device(options.device)
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if device.type != "cpu" and (accelerator is None or accelerator.type != options.device):
        return _stop(f"torch {torch.__version__} finds no {options.device.upper()} device on this machine")
    if options.quick and not options.set:
        options.set = ["max_epochs=2"]

    options.output.mkdir(parents=True, exist_ok=True)
    machine = common.machine(device)
    card = {"name": machine["processor"]} if device.type == "cpu" else common.card(device)
    key = {"commit": machine["commit"], "card": card["name"], "quick": options.quick}
    file = options.output / "report.json"
    known = json.loads(file.read_text()) if file.exists() and not options.again else {}
    records = known.get("steps", {}) if {name: known.get(name) for name in key} == key else {}
    wanted = steps(options)
    for number, step in enumerate(wanted, 1):
        ended = records.get(step.name, {})
        # What is built may be gone: any `make build` between two calls leaves the CPU's library alone.
        has_passed = ended.get("outcome") == PASSED and ended.get("command") == list(step.command)
        if has_passed and step.group != "build":
            continue
        print(f"[{number}/{len(wanted)}] {step.name} ...", flush=True)
        records[step.name] = run(step, options.output)
        told = records[step.name]
        print(f"    {told['outcome']}: {told.get('why') or told.get('last', '')}", flush=True)
        _write(file, json.dumps({**key, "card_facts": card, "steps": records}, indent=1) + "\n")
    lines = [line.format(output=options.output) for line in verdict(wanted, records, card["name"])]
    _write(options.output / "README.md", page(options.output, lines, records, options.device))
    print("\n".join(["", *lines]))
    return 1 if any(records[step.name]["outcome"] == FAILED for step in wanted) else 0


def _write(path: Path, text: str) -> None:
    """All of it or nothing, whenever the process ends."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def _stop(text: str) -> int:
    print(f"error: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
