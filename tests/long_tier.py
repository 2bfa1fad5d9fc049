"""The long tier (`make test-all`): every check that needs no GPU, some of which take an hour.

    python tests/long_tier.py                      # what has not passed yet on these sources
    python tests/long_tier.py cuda mutants-python  # these steps, passed or not
    python tests/long_tier.py --list               # what is known of each step

A step that passed is not run again as long as no tracked file has changed: stop at any time, the same command
goes on. A failed step does not keep the others from running. What came of each is in
build/long-tier/record.json, its output in a log beside it.
"""

import argparse
import datetime
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "long-tier"
RECORD = FOLDER / "record.json"
# Where planted bugs that were caught are noted: their tables go on as well.
CAUGHT = "build/long-tier/caught-{sources}"
PYTHON = sys.executable

# Two rows of steps run side by side; in each, what fails soonest comes first. What changes environments, the
# package's libraries or dist/ is in the second.
ROWS: tuple[dict[str, str], ...] = (
    {
        "cuda-old-ptxas": "make cuda-old-ptxas",
        "sanitize-undefined": "GPN_OPS_SEEDS=500 make build/cpp-undefined.tested",
        "sanitize-address": "GPN_OPS_SEEDS=500 make build/cpp-address.tested",
        "cpp-test": "GPN_OPS_SEEDS=5000 make cpp-test",
        "sanitize-thread": "GPN_OPS_SEEDS=500 make build/cpp-thread.tested",
        "mutants-cpp": f"{PYTHON} tests/cpp/mutants.py --verbose --note {CAUGHT}",
    },
    {
        "cuda": "make cuda",
        "test-wheel": "make test-wheel",
        "standin": "make standin",
        "test-slow": f"{PYTHON} -m pytest -q -m slow",
        "cuda-link": "make cuda-link",
        "test": f"{PYTHON} -m pytest -q",
        "mutants-python": f"{PYTHON} tests/mutants.py --verbose --note {CAUGHT}",
        "test-torch-2.10": "make test-torch-2.10",
        "test-torch-latest": "make test-torch-latest",
        "standin-all": "make standin-all",
    },
)
STEPS = {name: command for row in ROWS for name, command in row.items()}
lock = threading.Lock()
stopped = threading.Event()
running: set[subprocess.Popen] = set()


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def sources() -> str:
    """Names the content of all files but those that git ignores."""
    new = git("ls-files", "--others", "--exclude-standard").splitlines()
    content = [git("rev-parse", "HEAD^{tree}"), git("diff", "HEAD", "--binary")]
    content += [name + hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in new]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()[:12]


def known() -> dict[str, dict[str, str]]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def note(name: str, result: str, **more: str) -> None:
    told = {"result": result, "date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}", **more}
    with lock:
        new = RECORD.with_suffix(".new")
        new.write_text(json.dumps({**known(), name: told}, indent=1) + "\n")
        new.replace(RECORD)
        print(f"{told['date']} {name}: {result} {told.get('took', '')}", flush=True)


def run(name: str, state: str) -> None:
    if "cuda" in name and shutil.which("nvcc") is None:
        return note(name, "NOT CHECKED: nvcc was not found", sources=state)
    start, log = time.monotonic(), FOLDER / f"{name}.log"
    print(f"{datetime.datetime.now():%Y-%m-%d %H:%M} {name} ...", flush=True)
    with log.open("wb") as output:
        options = {"cwd": ROOT, "stdout": output, "stderr": subprocess.STDOUT, "start_new_session": True}
        process = subprocess.Popen(STEPS[name].format(sources=state), shell=True, **options)
        running.add(process)
        status = process.wait()
        running.discard(process)
    if stopped.is_set():
        return None
    result = "passed" if status == 0 else "FAILED"
    if status != 0:
        print("\n".join(log.read_text(errors="replace").splitlines()[-20:]), flush=True)
    if sources() != state:
        result, state = f"{result}, but the sources changed meanwhile", "changed"
    took = f"{datetime.timedelta(seconds=round(time.monotonic() - start))}"
    return note(name, result, took=took, sources=state, commit=git("rev-parse", "--short", "HEAD"))


def stop(*_: object) -> None:
    """Ends what runs, which is not recorded."""
    stopped.set()
    for process in list(running):
        os.killpg(process.pid, signal.SIGTERM)


def main() -> int:
    parser = argparse.ArgumentParser(description="Every check that needs no GPU; goes on where it stopped.")
    parser.add_argument("steps", nargs="*", help=f"only these, passed or not: {', '.join(STEPS)}")
    parser.add_argument("--list", action="store_true", help="run nothing, list what came of each step")
    options = parser.parse_args()
    if unknown := set(options.steps) - set(STEPS):
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    state = sources()

    def passed(name: str) -> bool:
        told = known().get(name, {})
        return told.get("sources") == state and not told["result"].startswith("FAILED")

    def row(names: Iterable[str]) -> None:
        for name in names:
            wanted = name in options.steps if options.steps else not passed(name)
            if wanted and not stopped.is_set():
                run(name, state)

    if not options.list:
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
        threads = [threading.Thread(target=row, args=[names]) for names in ROWS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"\n{'step':<20}{'took':>9}  {'date':<17} {'commit':<9} result")
    for name in STEPS:
        told = known().get(name, {"result": "not run"})
        other = "" if told.get("sources") in (state, None) else " (on other sources)"
        print(
            f"{name:<20}{told.get('took', ''):>9}  {told.get('date', ''):<17} {told.get('commit', ''):<9} "
            f"{told['result']}{other}"
        )
    return 0 if all(map(passed, options.steps or STEPS)) and not stopped.is_set() else 1


if __name__ == "__main__":
    sys.exit(main())
