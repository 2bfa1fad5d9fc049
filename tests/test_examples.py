"""examples/: every script and notebook runs with its defaults, and does what it says."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")
pytest.importorskip("tqdm", reason="the examples show their progress")

EXAMPLES = Path(__file__).parent.parent / "examples"
LIBRARY = Path(importlib.util.find_spec("gpn_ops").origin).parent / "libgpn_ops.so"


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    # Graphs this small do not repay a second thread.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(EXAMPLES)
    yield
    torch.set_num_threads(threads)


def load(name):
    """The module of an example, as `import` from its folder gives it."""
    spec = importlib.util.spec_from_file_location(Path(name).name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_alone(*command, **environment):
    """What a command prints that runs in a process of its own."""
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# What each has to reach is well above guessing and well below what it does reach: other versions of torch
# round differently.
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("graph_classification", 0.9),
        ("node_classification", 0.7),
        ("graph_unet", 0.75),
        ("edge_attributes", 0.8),
        ("explain", 0.55),
        ("large_graph", 0.5),
    ],
)
def test_models_learn(name, least):
    assert load(name).main([]) > least


def test_lightning():
    pytest.importorskip("lightning", reason="the example needs lightning")
    assert load("graph_classification_lightning").main([]) > 0.9


@pytest.mark.parametrize(
    ("missing", "arguments", "message"),
    [
        (
            ["lightning"],
            ["graph_classification_lightning.py"],
            "needs PyTorch Lightning: pip install lightning",
        ),
        (["pyg_lib", "torch_sparse"], ["large_graph.py", "--loader", "cluster"], "requires .*'pyg-lib'"),
        (["pyg_lib", "torch_sparse"], ["large_graph.py", "--loader", "neighbor"], "requires .*'pyg-lib'"),
    ],
)
def test_a_missing_package_is_named(missing, arguments, message):
    """By one sentence, without a traceback."""
    block = "import runpy, sys; sys.modules |= dict.fromkeys(sys.argv.pop(1).split(',')); sys.argv.pop(0); "
    program = block + "sys.path.insert(0, 'examples'); runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", program, ",".join(missing), f"examples/{arguments[0]}", *arguments[1:]],
        capture_output=True,
        text=True,
        cwd=EXAMPLES.parent,
    )
    assert done.returncode == 1
    assert re.search(message, done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr


def test_readme_lists_every_example():
    text = (EXAMPLES / "README.md").read_text()
    files = [
        path.relative_to(EXAMPLES) for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".ipynb", ".cpp")
    ]
    assert len(files) >= 16
    assert not [str(path) for path in files if f"]({path})" not in text]


def test_ddp():
    out = run_alone(EXAMPLES / "graph_classification_ddp.py")
    assert float(re.search(r"test accuracy: (\S+) with 2 processes", out)[1]) > 0.9


def test_large_graph_by_cluster_loader(monkeypatch):
    from torch_geometric.typing import WITH_METIS

    if not WITH_METIS:  # of pyg-lib, which PyPI does not have
        pymetis = pytest.importorskip("pymetis", reason="ClusterLoader needs METIS: of pyg-lib, or pymetis")

        def metis(data, edge_index, num_nodes):
            order = edge_index[0].argsort(stable=True)
            ptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
            ptr[1:] = edge_index[0].bincount(minlength=num_nodes).cumsum(0)
            adjacency = pymetis.CSRAdjacency(ptr.tolist(), edge_index[1, order].tolist())
            return torch.tensor(pymetis.part_graph(data.num_parts, adjacency)[1])

        monkeypatch.setattr("torch_geometric.loader.ClusterData._metis", metis)
    assert load("large_graph").main(["--loader", "cluster"]) > 0.5


def test_large_graph_by_neighbor_loader():
    from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

    if not (WITH_PYG_LIB or WITH_TORCH_SPARSE):
        pytest.skip("NeighborLoader needs pyg-lib or torch-sparse")
    assert load("large_graph").main(["--loader", "neighbor"]) > 0.5


def test_compile_and_export(tmp_path):
    package = tmp_path / "pool.pt2"
    difference = load("compile_and_export").main(["--package", str(package)])
    assert set(difference) == {"compile", "export", "AOTInductor"}
    assert max(difference.values()) < 1e-5
    # The package needs the operators, and none of our Python.
    program = f"""
import sys, torch
import torch._inductor.codecache  # which torch 2.10 needs here, and does not import
torch.ops.load_library({str(LIBRARY)!r})
pool = torch._inductor.aoti_load_package({str(package)!r})
edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
print(pool(torch.randn(4, 16), edge_index)[2].tolist(), "gpn_ops" in sys.modules)
"""
    assert run_alone("-c", program).strip() == "[0, 0, 1, 1] False"


def test_deploy_without_python(tmp_path):
    """A C++ program classifies as the model does, and refuses what does not fit."""
    cmake, ninja = (shutil.which(name, path=str(Path(sys.executable).parent)) for name in ("cmake", "ninja"))
    if cmake is None or ninja is None:
        pytest.skip("needs cmake and ninja")
    package, batch = tmp_path / "classifier.pt2", tmp_path / "batch.pt"
    example = load("cpp/export")
    options = ["--hidden", "8", "--height", "2"]
    logits = example.main(["--package", str(package), "--batch", str(batch), *options])
    assert logits.isfinite().all()
    settings = [
        f"-DCMAKE_MAKE_PROGRAM={ninja}",
        f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}",
        f"-DGPN_OPS_LIBRARY={LIBRARY}",
    ]
    folder = tmp_path / "build"
    for command in (["-G", "Ninja", "-S", EXAMPLES / "cpp", "-B", folder, *settings], ["--build", folder]):
        done = subprocess.run([cmake, *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def classify(name):
        return subprocess.run(
            [folder / "classify", package, name],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={"OMP_NUM_THREADS": "1"},
        )

    done = classify(batch)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    torch.testing.assert_close(torch.tensor([[float(n) for n in row[1:]] for row in rows]), logits)
    assert [int(row[0]) for row in rows] == logits.argmax(dim=1).tolist()
    needed = subprocess.run(["ldd", folder / "classify"], capture_output=True, text=True).stdout
    assert "libgpn_ops.so" in needed
    assert "python" not in needed.replace(str(Path(torch.__file__).parent), "").replace(str(LIBRARY), "")

    # One graph that keeps more nodes than the next level has room for; more nodes than there is room for.
    edge = torch.tensor([[0, 1], [1, 0]])
    for nodes, message in ((60, "fit into every level"), (64, "fits into the sizes of the package")):
        given = {
            "x": torch.ones(nodes, 8),
            "edge_index": edge,
            "batch": torch.zeros(nodes, dtype=torch.int64),
        }
        torch.save(given, tmp_path / "large.pt")
        done = classify(tmp_path / "large.pt")
        assert done.returncode == 1
        assert "error: batch: expected" in done.stderr
        assert message in done.stderr


def test_connected_components():
    from scipy.sparse.csgraph import connected_components
    from torch_geometric.data import Data
    from torch_geometric.transforms import LargestConnectedComponents
    from torch_geometric.utils import to_scipy_sparse_matrix

    example = load("connected_components")
    parts = example.main(["--nodes", "300"])
    assert sum(part.num_nodes for part in parts) == 300
    for part in parts:
        assert connected_components(to_scipy_sparse_matrix(part.edge_index, num_nodes=part.num_nodes))[0] == 1

    # Nodes that carry their number, and edges in one direction: what was joined stays joined.
    row, col = torch.randint(40, (2, 25))
    data = Data(x=torch.arange(40).view(-1, 1), edge_index=torch.stack([row, col]))
    parts = example.take_apart(data)
    edges = torch.cat([part.x.view(-1)[part.edge_index] for part in parts], dim=1)
    assert sorted(edges.t().tolist()) == sorted(data.edge_index.t().tolist())
    expected = LargestConnectedComponents()(Data(x=data.x, edge_index=data.edge_index))
    assert example.largest_component(data).num_nodes == expected.num_nodes


def test_draw_tree(tmp_path):
    pytest.importorskip("matplotlib", reason="drawing needs matplotlib")
    path = Path(load("draw_tree").main(["--output", str(tmp_path / "tree.svg")]))
    assert path.read_text().count("<path") > 49


@pytest.mark.parametrize(
    ("name", "dataset", "family", "epochs", "least"),
    [
        ("graph_classification", "MUTAG", "TUDataset", 5, 0.6),
        ("node_classification", "Cora", "Planetoid", 15, 0.3),
    ],
)
def test_real_data(name, dataset, family, epochs, least, tmp_path):
    raw = EXAMPLES.parent.parent / "shared" / "data" / family / dataset / "raw"
    if not raw.exists():
        pytest.skip(f"no copy of {dataset} beside the checkout")
    (tmp_path / dataset).mkdir()
    (tmp_path / dataset / "raw").symlink_to(raw)
    arguments = ["--dataset", dataset, "--root", str(tmp_path), "--epochs", str(epochs)]
    assert load(name).main(arguments) > least


def read_notebook(name):
    nbformat = pytest.importorskip("nbformat", reason="notebooks need nbformat")
    pytest.importorskip("nbclient", reason="notebooks run by nbclient")
    pytest.importorskip("ipykernel", reason="notebooks need a kernel")
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs belong to a run, not to the file"
    return notebook


def execute(notebook, folder):
    """All outputs of its cells."""
    import nbclient

    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(folder))
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_notebook():
    pytest.importorskip("matplotlib", reason="drawing needs matplotlib")
    outputs = execute(read_notebook("tour.ipynb"), EXAMPLES)
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2


def test_notebook_that_checks_a_gpu():
    """On the CPU: all of its cells, with the shortest of the steps that the check has."""
    notebook = read_notebook("gpu_check.ipynb")
    (chosen,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    assert 'options = ["--quick"]' in chosen.source
    with tempfile.TemporaryDirectory(dir=EXAMPLES, prefix=".check-") as folder:
        chosen.source = 'options = ["--quick", "--only", "build"]'
        outputs = execute(notebook, folder)
        assert "build: passed" in "".join(output.get("text", "") for output in outputs)
        page = outputs[-1]["data"]["text/markdown"]
        assert page == (Path(folder) / "gpu-report" / "README.md").read_text()
        assert "| environment | passed |" in page


def test_what_the_notebook_installs_leaves_cuda_to_the_check(monkeypatch):
    """Which builds for one GPU, in a part of the time."""
    (cell,) = (cell for cell in read_notebook("gpu_check.ipynb").cells if "find_spec" in cell.source)
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda command, **options: ran.append((command, options)))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    exec(cell.source, {})
    command, options = ran[-1]
    assert command[-1] == f"{EXAMPLES.parent}[dev,models,bench]"
    assert options["env"]["GPN_OPS_CUDA"] == "0"
    assert options["check"]


def test_every_example_is_run_here_and_listed():
    here = Path(__file__).read_text()
    listed = (EXAMPLES / "README.md").read_text()
    for path in [*EXAMPLES.rglob("*.py"), *EXAMPLES.glob("*.ipynb"), *EXAMPLES.rglob("*.cpp")]:
        assert f"]({path.relative_to(EXAMPLES)})" in listed
        assert path.stem in here or path.stem in ("motifs", "main")
