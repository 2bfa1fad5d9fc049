"""The built package: what the libraries import, what the wheel says, what a broken installation reports."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import pytest
import torch

import gpn_ops
from gpn_ops import library
from gpn_ops.ops import plain

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = [
    pytest.param(
        file,
        id=file.stem,
        marks=pytest.mark.skipif(not file.exists(), reason=f"{file.name} was not built"),
    )
    for file in (library.CPU_LIBRARY, library.CUDA_LIBRARY)
]
needs_binutils = pytest.mark.skipif(
    not (shutil.which("nm") and shutil.which("readelf")), reason="nm and readelf (binutils) are not installed"
)


EMPTY = tempfile.TemporaryDirectory()


def run(*command: object, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        # Not the root, where Python would prefer the checkout's package, nor where setuptools finds others.
        cwd=EMPTY.name,
    )


def dynamic_symbols(library: Path, *options: str) -> set[str]:
    """Demangled names of the dynamic symbol table, with ``@VERSION`` where they have one."""
    lines = run("nm", "-D", "-C", *options, library).stdout.splitlines()
    return {re.sub(r"^[0-9a-f]*\s+[A-Za-z] ", "", line) for line in lines}


# ------------------------------------------------------------------------------------ the libraries


@needs_binutils
@pytest.mark.parametrize("library", LIBRARIES)
def test_imports_only_the_stable_interface_of_torch(library):
    imported = dynamic_symbols(library, "--undefined-only")
    # System libraries version their symbols, torch and Python do not.
    foreign = {name for name in imported if "@" not in name}
    weak_hooks = {"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__gmon_start__"}
    assert any(name.startswith("aoti_torch_") for name in foreign), "the symbol table was not read"
    assert {name for name in foreign - weak_hooks if not re.fullmatch(r"(aoti_)?torch_\w+", name)} == set()


@needs_binutils
@pytest.mark.parametrize("library", LIBRARIES)
def test_shares_no_torch_class_with_other_libraries(library):
    symbols = dynamic_symbols(library)
    assert symbols, "the symbol table was not read"
    assert {name for name in symbols if re.search(r"\b(at|c10|caffe2|torch)::", name)} == set()


@needs_binutils
@pytest.mark.parametrize("library", LIBRARIES)
def test_names_its_dependencies_without_a_path(library):
    section = run("readelf", "-d", library).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", section)
    assert {name for name in needed if "torch" in name} <= {"libtorch.so", "libtorch_cpu.so"}
    assert {name for name in needed if re.search("c10|cuda|python", name)} == set()
    assert "RPATH" not in section
    assert "RUNPATH" not in section


# What glibc, libstdc++ and libgcc of manylinux_2_28 have (AlmaLinux 8), from the policies of auditwheel.
MANYLINUX_2_28 = {"GLIBC": "2.28", "GLIBCXX": "3.4.25", "CXXABI": "1.3.11", "GCC": "7.0.0"}


@needs_binutils
@pytest.mark.parametrize("library", LIBRARIES)
def test_loads_on_systems_of_manylinux_2_28(library):
    def number(version: str) -> tuple[int, ...]:
        return tuple(map(int, version.split(".")))

    imported = dynamic_symbols(library, "--undefined-only")
    versions = {name: re.search(r"@([A-Z]+)_([\d.]+)$", name) for name in imported if "@" in name}
    assert len(versions) > 20, "the symbol table was not read"
    assert all(versions.values()), versions
    newer = {name for name, v in versions.items() if number(v[2]) > number(MANYLINUX_2_28[v[1]])}
    assert newer == set()


def test_build_info_describes_the_build():
    info = library.build_info()
    assert info["version"] == gpn_ops.__version__
    assert info["torch"].startswith("2.")
    assert (info["cuda"] is not None) == library.CUDA_LIBRARY.exists()


# ----------------------------------------------------------------------------------------- the wheel


def test_wheel_serves_every_python_of_the_platform():
    # A build leaves a distribution of its own in the checkout, one that knows of no wheel.
    found = [dist.read_text("WHEEL") for dist in metadata.distributions(name="gpn_ops")]
    wheel = next(text for text in found if text is not None)
    tags = re.findall(r"^Tag: (.*)$", wheel, re.MULTILINE)
    assert [tag.rsplit("-", 1)[0] for tag in tags] == ["py3-none"]
    assert not tags[0].endswith("-any")
    assert "Root-Is-Purelib: false" in wheel


def test_version_is_the_same_everywhere():
    assert metadata.version("gpn_ops") == gpn_ops.__version__


@pytest.mark.skipif(
    os.environ.get("GPN_OPS_TEST_INSTALLED") != "1", reason="GPN_OPS_TEST_INSTALLED=1: a wheel is under test"
)
def test_installed_package_is_under_test():
    assert ROOT / "gpn_ops" != library.DIRECTORY


def test_unknown_switch_is_an_error():
    done = run(sys.executable, ROOT / "setup.py", "--quiet", "build_libraries", GPN_OPS_CUDA="maybe")
    assert done.returncode != 0
    assert "GPN_OPS_CUDA is 'maybe', expected one of auto, 1, 0" in done.stderr


# ------------------------------------------------------------------------------------ building for CUDA

# The environment's own: the system's may be too old.
CMAKE = shutil.which("cmake", path=Path(sys.executable).parent)
needs_cmake = pytest.mark.skipif(CMAKE is None, reason="cmake is not installed in this environment")

# What `nvcc --list-gpu-code` of each version knows of what we build for, and some that we do not.
KNOWN = {
    "12.0": "50 52 53 60 61 62 70 72 75 80 86 87 89 90",
    "12.6": "50 52 53 60 61 62 70 72 75 80 86 87 89 90",
    "12.8": "50 52 53 60 61 62 70 72 75 80 86 87 89 90 100 101 120",
    "13.0": "75 80 86 87 88 89 90 100 110 103 120 121",
}


def stub_nvcc(directory: Path, version: str, otherwise: str = "exit 1") -> Path:
    """A compiler that says what it is and what it knows, and refuses to compile."""
    nvcc = directory / "nvcc"
    codes = "\\n".join(f"sm_{number}" for number in KNOWN[version].split())
    nvcc.write_text(
        "#!/bin/sh\n"
        f'case "$1" in\n--version) echo "Cuda compilation tools, release {version}, V{version}.1"; exit ;;\n'
        f"--list-gpu-code) printf '{codes}\\n'; exit ;;\nesac\n"
        f'echo "the stub refuses: $*" >&2\n{otherwise}\n'
    )
    nvcc.chmod(0o755)
    return nvcc


def chosen_archs(directory: Path, version: str, *settings: str, **environ: str) -> tuple[str, str]:
    """The architectures that the build would ask a compiler for, and what it says about the choice."""
    script = directory / "choose.cmake"
    script.write_text(
        f"include({ROOT}/cmake/cuda_archs.cmake)\n"
        f"gpn_ops_choose_cuda_archs({stub_nvcc(directory, version)})\n"
        'execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${CMAKE_CUDA_ARCHITECTURES}")\n'
    )
    done = run(CMAKE, *settings, "-P", script, **{"TORCH_CUDA_ARCH_LIST": "", **environ})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), " ".join(done.stderr.split())


@needs_cmake
@pytest.mark.parametrize(
    ("version", "archs"),
    [
        ("12.0", "75-real;80-real;86-real;89-real;90-real;90-virtual"),
        ("12.6", "75-real;80-real;86-real;89-real;90-real;90-virtual"),
        ("12.8", "75-real;80-real;86-real;89-real;90-real;100-real;120-real;100-virtual"),
        ("13.0", "75-real;80-real;86-real;89-real;90-real;100-real;120-real;100-virtual"),
    ],
)
def test_default_architectures_are_those_that_the_compiler_knows(tmp_path, version, archs):
    assert chosen_archs(tmp_path, version) == (archs, "")
    # Every GPU from 7.5 on is served, by PTX where no code fits.
    for capability in [(7, 5), (8, 0), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 1), (13, 0)]:
        assert library.code_for(archs, capability) is not None, capability


@needs_cmake
@pytest.mark.parametrize(
    ("wanted", "archs"),
    [
        ("8.0;8.6+PTX", "80-real;86-real;86-virtual"),
        ("8.0 8.6+PTX", "80-real;86-real;86-virtual"),
        ("8.0, 9.0a", "80-real;90a-real"),
        ("9.0;9.0", "90-real"),
    ],
)
def test_architectures_in_the_form_of_torch(tmp_path, wanted, archs):
    assert chosen_archs(tmp_path, "12.6", TORCH_CUDA_ARCH_LIST=wanted) == (archs, "")


@needs_cmake
def test_architectures_that_are_names_or_unknown_are_ignored_aloud(tmp_path):
    archs, said = chosen_archs(tmp_path, "12.6", TORCH_CUDA_ARCH_LIST="Ampere 9.0 10.0+PTX")
    assert archs == "90-real"
    assert "TORCH_CUDA_ARCH_LIST: ignored Ampere, 10.0+PTX. Expected numbers such as 8.0 or 9.0+PTX" in said
    archs, said = chosen_archs(tmp_path, "13.0", TORCH_CUDA_ARCH_LIST="7.0 Volta")
    assert archs == chosen_archs(tmp_path, "13.0")[0]
    assert "ignored 7.0, Volta" in said


@needs_cmake
def test_our_own_switch_goes_before_that_of_torch(tmp_path):
    chosen = chosen_archs(tmp_path, "12.6", "-DGPN_OPS_CUDA_ARCHS=80-real;90", TORCH_CUDA_ARCH_LIST="8.6")
    assert chosen == ("80-real;90", "")


@pytest.fixture
def checkout(tmp_path):
    """A copy of what a build needs, so that the real build directory stays as it is."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ("CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, copy)
    for name in ("cmake", "csrc", "gpn_ops"):
        ignored = shutil.ignore_patterns("*.so", "_build_info.json", "__pycache__")
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    return copy


def torch_with_cuda(directory: Path, cuda: str | None) -> str:
    """A folder for PYTHONPATH whose torch was built with this CUDA, it says; the build does not import it."""
    real, copy = Path(torch.__file__).parent, directory / "torch"
    copy.mkdir(parents=True, exist_ok=True)
    (copy / "__init__.py").touch()
    (copy / "version.py").write_text(f"__version__ = '{torch.__version__}'\ncuda = {cuda!r}\n")
    for name in ("include", "lib"):
        if not (copy / name).exists():
            (copy / name).symlink_to(real / name)
    return str(directory)


def configure(checkout: Path, *settings: str, **environ: str) -> subprocess.CompletedProcess[str]:
    ninja = shutil.which("ninja", path=Path(sys.executable).parent) or "ninja"
    settings = (f"-DPython3_EXECUTABLE={sys.executable}", f"-DCMAKE_MAKE_PROGRAM={ninja}", *settings)
    return run(CMAKE, "-S", checkout, "-B", checkout / "build", "-G", "Ninja", *settings, **environ)


@needs_cmake
def test_auto_leaves_cuda_alone_where_torch_has_none(checkout, tmp_path):
    nvcc = stub_nvcc(tmp_path, "13.0", "touch " + str(tmp_path / "asked"))
    done = configure(checkout, CUDACXX=str(nvcc), PYTHONPATH=torch_with_cuda(tmp_path / "torch", None))
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "asked").exists()
    info = json.loads((checkout / "build" / "_build_info.json").read_text())
    assert info["cuda"] is None
    assert info["without_cuda"] == f"torch {torch.__version__} has no CUDA"


@needs_cmake
def test_cuda_on_request_with_a_compiler_that_refuses_is_an_error(checkout, tmp_path):
    nvcc = stub_nvcc(tmp_path, "12.6")
    done = configure(
        checkout,
        "-DGPN_OPS_CUDA=ON",
        CUDACXX=str(nvcc),
        PYTHONPATH=torch_with_cuda(tmp_path / "torch", None),
    )
    assert done.returncode != 0
    assert "CUDA architectures: 75-real;80-real;86-real;89-real;90-real;90-virtual" in done.stdout
    assert "is not able to compile a simple test program" in done.stderr


@needs_cmake
@pytest.mark.slow
def test_auto_goes_on_without_cuda_where_its_build_fails(checkout, tmp_path):
    environ = {
        "GPN_OPS_CUDA": "auto",
        "PYTHONPATH": torch_with_cuda(tmp_path / "torch", "12.6"),
        "CUDACXX": str(stub_nvcc(tmp_path, "12.6")),
    }
    build = (sys.executable, checkout / "setup.py", "--quiet", "build_libraries", "--inplace")

    def assert_cpu_product(said: str) -> None:
        done = run(*build, **environ)
        assert done.returncode == 0, done.stderr
        assert "WARNING: the CUDA library could not be built, see above" in done.stderr
        assert said in done.stderr
        info = json.loads((checkout / "gpn_ops" / "_build_info.json").read_text())
        assert (info["cuda"], info["without_cuda"]) == (None, "its build failed")
        assert not (checkout / "gpn_ops" / "libgpn_ops_cuda.so").exists()
        program = (
            "import gpn_ops, torch; e = torch.tensor([[0, 1], [1, 0]]); "
            "print(gpn_ops.parse(e, torch.ones(2), 3).tolist(), gpn_ops.library.DIRECTORY)"
        )
        loaded = run(sys.executable, "-c", program, PYTHONPATH=str(checkout))
        assert loaded.stdout == f"[0, 0, 1] {checkout / 'gpn_ops'}\n", loaded.stderr

    assert_cpu_product("is not able to compile a simple test program")
    if (real := shutil.which("nvcc")) is not None:
        # One that works until it gets to our sources.
        shutil.rmtree(checkout / "build" / "cmake" / "CMakeFiles")
        (checkout / "build" / "cmake" / "CMakeCache.txt").unlink()
        otherwise = f'case "$*" in *csrc/cuda*) exit 1 ;; esac\nexec {real} "$@"'
        stub_nvcc(tmp_path, "13.0", otherwise)
        assert_cpu_product("csrc/cuda")
    (checkout / "csrc" / "schema.cpp").write_text("this is not C++")
    done = run(*build, **environ)
    assert done.returncode != 0
    assert "schema.cpp" in done.stderr


# ------------------------------------------------------------------------------- broken installations


@pytest.fixture
def package_copy(tmp_path):
    """A copy of the package's Python files without its libraries."""
    copy = tmp_path / "gpn_ops"
    shutil.copytree(library.DIRECTORY, copy, ignore=shutil.ignore_patterns("*.so", "_build_info.json"))
    return copy


def import_error(package: Path) -> str:
    done = run(sys.executable, "-c", "import gpn_ops", PYTHONPATH=str(package.parent))
    assert done.returncode != 0
    return done.stderr.splitlines()[-1]


def test_missing_library(package_copy):
    message = import_error(package_copy)
    assert message.startswith("ImportError: gpn_ops: the operator library is missing")
    assert str(package_copy / "libgpn_ops.so") in message
    assert "pip install --no-build-isolation -e ." in message


def test_checkout_that_hides_an_installed_package(package_copy, tmp_path):
    installed = tmp_path / "site-packages"
    (installed / "gpn_ops").mkdir(parents=True)
    (installed / "gpn_ops" / "libgpn_ops.so").touch()
    (installed / "gpn_ops-0.1.0.dist-info").mkdir()
    (installed / "gpn_ops-0.1.0.dist-info" / "METADATA").write_text("Name: gpn_ops\nVersion: 0.1.0\n")
    done = run(sys.executable, "-c", "import gpn_ops", PYTHONPATH=f"{package_copy.parent}:{installed}")
    assert f"It hides the gpn_ops that is installed in {installed / 'gpn_ops'}" in done.stderr
    assert "pip install --no-build-isolation -e ." in done.stderr


def test_library_of_another_version(package_copy):
    (package_copy / "libgpn_ops.so").write_text("")
    (package_copy / "_build_info.json").write_text(json.dumps({"version": "0.0.0"}))
    message = import_error(package_copy)
    assert f"was built for gpn_ops 0.0.0, but this is gpn_ops {gpn_ops.__version__}" in message
    assert str(package_copy / "libgpn_ops.so") in message
    assert "pip install --no-build-isolation -e ." in message


def test_library_that_does_not_load(package_copy):
    (package_copy / "libgpn_ops.so").write_text("not a library")
    (package_copy / "_build_info.json").write_text(json.dumps(library.build_info()))
    message = import_error(package_copy)
    assert f"does not load with torch {torch.__version__} (gpn_ops needs torch >= 2.10)" in message
    assert "file too short" in message  # what the system's loader said
    assert "pip install --no-build-isolation -e ." in message


# ------------------------------------------------------------------------------------- when CUDA loads


class Machine:
    """What the loader asks torch and the driver, with other answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.monkeypatch = monkeypatch
        self.library = tmp_path / "libgpn_ops_cuda.so"
        self.loaded: list[Path] = []
        monkeypatch.delenv("GPN_OPS_LOAD_CUDA", raising=False)
        monkeypatch.setattr(library, "_cuda_reason", None)
        monkeypatch.setattr(library, "CUDA_LIBRARY", self.library)
        monkeypatch.setattr(torch.ops, "load_library", self.loaded.append)

    def load(
        self,
        built: str | None = "13.0",
        archs: str = "75-real;80-real;90-real;90-virtual",
        torch_cuda: str | None = "13.0",
        driver: tuple[int, int] | None = (13, 0),
        gpus: Sequence[tuple[int, int]] = ((9, 0),),
    ) -> str:
        """The status after the import, and after torch has started CUDA where it would."""
        if built is not None:
            self.library.touch()
        started: list[Callable[[], None]] = []
        info = {"cuda": built, "cuda_archs": archs, "without_cuda": "" if built else "nvcc was not found"}
        self.monkeypatch.setattr(library, "build_info", lambda: info)
        self.monkeypatch.setattr(library, "driver_version", lambda: driver)
        self.monkeypatch.setattr(torch.version, "cuda", torch_cuda)
        self.monkeypatch.setattr(torch.cuda, "_lazy_call", started.append)
        self.monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
        self.monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: gpus[index])
        self.monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"model {index}")
        library._load_cuda()
        if started:
            assert library.cuda_status() == library.WAITING
            assert not library.cuda_loaded()
            assert self.loaded == []
        for call in started:
            call()
        assert library.cuda_loaded() == (self.loaded == [self.library])
        return library.cuda_status()


@pytest.fixture
def machine(monkeypatch, tmp_path):
    return Machine(monkeypatch, tmp_path)


@pytest.mark.parametrize("torch_cuda", ["12.8", None])
def test_cuda_not_built(machine, torch_cuda):
    reason = machine.load(built=None, torch_cuda=torch_cuda)
    assert "built without CUDA (nvcc was not found)" in reason
    assert "GPN_OPS_CUDA=1 pip install" in reason


@pytest.mark.parametrize("torch_cuda", ["12.6", "12.8", "13.0", "14.0"])
@pytest.mark.parametrize("built", ["12.9", "13.0"])
def test_cuda_version_of_torch_does_not_matter(machine, built, torch_cuda):
    assert machine.load(built=built, torch_cuda=torch_cuda) == "loaded"


def test_cuda_is_not_loaded_without_cuda_in_torch(machine):
    assert f"torch {torch.__version__} is a build without CUDA" in machine.load(torch_cuda=None)


@pytest.mark.parametrize("torch_cuda", ["12.8", None])
def test_cuda_is_loaded_on_demand(machine, monkeypatch, torch_cuda):
    monkeypatch.setenv("GPN_OPS_LOAD_CUDA", "1")
    assert machine.load(torch_cuda=torch_cuda, gpus=[(5, 0)], driver=(11, 0)) == "loaded"


@pytest.mark.parametrize(
    ("archs", "capability", "code"),
    [
        ("75-real;80-real", (7, 5), "cubin"),
        ("75-real;80-real", (8, 6), "cubin"),  # a higher minor version of the same major one
        ("86-real", (8, 0), None),
        ("75-real;80-real", (9, 0), None),
        ("75-real;80-real;80-virtual", (9, 0), "ptx"),
        ("80-real;80-virtual", (7, 5), None),
        ("90", (9, 0), "cubin"),
        ("90", (12, 0), "ptx"),
        ("100-real;120-real;100-virtual", (11, 0), "ptx"),
        ("100-real;120-real;100-virtual", (12, 1), "cubin"),
        ("100-real;120-real;120-virtual", (11, 0), None),
        ("90a-real;90a-virtual", (9, 0), "cubin"),
        ("90a-real;90a-virtual", (10, 0), None),
        ("native", (6, 1), "cubin"),
    ],
)
def test_code_for_a_gpu(archs, capability, code):
    assert library.code_for(archs, capability) == code


def test_gpu_without_code_gets_the_plain_path(machine):
    reason = machine.load(archs="80-real;90-real", gpus=[(9, 0), (7, 5)])
    assert (
        "built for 80-real;90-real, which has no code for GPU 1, model 1 (compute capability 7.5)" in reason
    )
    assert "GPN_OPS_CUDA_ARCHS=75" in reason


def test_driver_of_an_older_major_version_gets_the_plain_path(machine):
    reason = machine.load(driver=(12, 9), torch_cuda="12.8")
    assert "built with CUDA 13.0 and needs a driver for CUDA 13.0 or newer on GPU 0, model 0" in reason
    assert "the driver is for 12.9" in reason


def test_driver_of_an_older_minor_version_runs_code_but_compiles_no_ptx(machine):
    assert "needs a driver for CUDA 13.2" in machine.load(built="13.2", driver=(13, 0), gpus=[(11, 0)])
    assert machine.load(built="13.2", driver=(13, 0), gpus=[(9, 0)]) == "loaded"


@pytest.mark.skipif(
    torch._C._dispatch_has_kernel_for_dispatch_key("gpn::parse", "CUDA"), reason="the CUDA library is loaded"
)
def test_plain_path_on_cuda_warns_once_and_says_why(machine, monkeypatch):
    """What the dispatcher does with a CUDA tensor, here with one that only says it is."""
    machine.load(archs="80-real", gpus=[(7, 5)])
    plain._warn_of_missing_cuda_kernels.cache_clear()
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True))
    cuda = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    edge_index, scores = torch.tensor([[0, 1, 2], [1, 0, 1]]), torch.tensor([0.5, 0.5, 0.1])
    with pytest.warns(UserWarning, match="without its CUDA kernels.* no code for GPU 0, model 0"):
        cluster = torch.ops.gpn.parse.default.redispatch(cuda, edge_index, scores, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.ops.gpn.parse.default.redispatch(cuda, edge_index, scores, 4)
    assert cluster.tolist() == [0, 0, 0, 1]


@pytest.mark.skipif(not shutil.which("cc"), reason="cc is not installed")
def test_driver_version(tmp_path):
    source = tmp_path / "driver.c"
    source.write_text("int cuDriverGetVersion(int* version) { *version = 12080; return 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", tmp_path / "libcuda.so.1"], check=True)
    command = "from gpn_ops import library; print(library.driver_version())"
    done = run(sys.executable, "-c", command, LD_LIBRARY_PATH=str(tmp_path))
    assert done.stdout == "(12, 8)\n", done.stderr


def test_import_does_not_start_cuda():
    """A process that has asked for its GPUs must not fork."""
    command = (
        "import torch, gpn_ops; assert not torch.cuda.is_initialized(); print(torch.cuda._is_in_bad_fork())"
    )
    assert run(sys.executable, "-c", command).stdout == "False\n"


def test_cuda_library_that_does_not_load(monkeypatch, tmp_path):
    file = tmp_path / "libgpn_ops_cuda.so"
    file.write_text("not a library")
    monkeypatch.setattr(library, "_cuda_reason", None)
    monkeypatch.setattr(library, "CUDA_LIBRARY", file)
    monkeypatch.setattr(library, "build_info", lambda: {"cuda": "13.0"})
    monkeypatch.setenv("GPN_OPS_LOAD_CUDA", "1")
    library._load_cuda()
    reason = library.cuda_status()
    assert f"{file} does not load with torch {torch.__version__}" in reason
    assert "file too short" in reason


# ----------------------------------------------------------------------------------------- collect_env


def test_collect_env_reports_the_build():
    done = run(sys.executable, "-m", "gpn_ops.collect_env", GPN_OPS_CUDA="0")
    assert done.returncode == 0, done.stderr
    report = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert report["gpn_ops"] == gpn_ops.__version__
    assert report["CPU library"] == f"loaded from {library.CPU_LIBRARY}"
    assert report["CUDA library"] == library.cuda_status()
    assert f"compiler {library.build_info()['compiler']}" in report["built with"]
    assert report["torch"] == torch.__version__
    assert report["GPN_OPS_CUDA"] == "0"
    assert {"GPUs", "Python", "platform", "C++ compiler", "nvcc", "torch_geometric"} <= report.keys()


def test_collect_env_works_by_path_when_the_library_is_missing(package_copy):
    done = run(sys.executable, package_copy / "collect_env.py", PYTHONPATH=str(package_copy.parent))
    assert done.returncode == 0, done.stderr
    assert "CPU library: NOT LOADED: gpn_ops: the operator library is missing" in done.stdout
    assert f"torch: {torch.__version__}" in done.stdout
