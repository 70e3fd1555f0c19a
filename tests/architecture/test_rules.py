"""The rules of this code base that ruff, mypy and import-linter cannot see."""

import ast
import builtins
import dataclasses
import re
import subprocess
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath

import pytest

from launcher.core.session import Session
from tests.architecture.source import PACKAGES, ROOT, Source, called, sources

OURS = sources(*PACKAGES)
EVERYTHING = (*OURS, *sources("tests", "examples", "benchmarks"))
CORES = tuple(
    s for s in OURS if s.name.startswith(("nodes/core/", "nodes/protocol/", "launcher/core/"))
)

PURE = {
    *("__future__", "abc", "bisect", "collections", "dataclasses", "enum", "fractions"),
    *("functools", "hashlib", "heapq", "ipaddress", "itertools", "math", "msgpack", "numpy"),
    *("operator", "re", "signal", "statistics", "struct", "types", "typing"),
}
"""What a core may import from outside: nothing in it reaches a clock, a socket or a file."""


def test_zmq_is_imported_by_the_wire_only() -> None:
    importers = {source.name for source in OURS if source.uses("zmq")}
    assert importers == {
        f"nodes/net/{name}.py" for name in ("sockets", "listener", "waiter", "curve")
    }


@pytest.mark.parametrize(
    "engine", ["onnxruntime", "openvino", "tensorrt", "tensorrt_rtx", "tvm", "tvm_ffi"]
)
def test_an_engine_is_imported_by_its_executor_only(engine: str) -> None:
    importers = {source.name for source in OURS if source.uses(engine)}
    assert importers
    assert all(name.startswith("nodes/executors/") for name in importers)


def test_nothing_is_ever_unpickled() -> None:
    picklers = (
        "pickle",
        "cPickle",
        "_pickle",
        "cloudpickle",
        "dill",
        "joblib",
        "shelve",
        "marshal",
    )
    for source in EVERYTHING:
        assert not [name for name in picklers if source.uses(name)], source.name
        for call in source.calls:
            allowed = [word.value for word in call.keywords if word.arg == "allow_pickle"]
            writes_for_a_test = called(call) == "np.save" and source.name.startswith("tests/")
            for value in allowed:
                refused = isinstance(value, ast.Constant) and value.value is False
                assert refused or writes_for_a_test, _at(source, call)


def test_nobody_sleeps() -> None:
    for source in (*OURS, *sources("tests")):
        assert not source.uses("time.sleep"), source.name
        for call in source.calls:
            assert called(call) not in {"time.sleep", "asyncio.sleep"}, _at(source, call)


def test_nothing_is_decided_by_the_time_of_day() -> None:
    """It may jump; frames only carry it, and the doctor tells whether it can be right."""
    reads_it = {"time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.ctime"}
    tellers = {
        source.name
        for source in OURS
        for call in source.calls
        if called(call) in reads_it or "datetime" in called(call)
    }
    assert tellers == {"launcher/clock.py", "nodes/doctor/clock.py"}
    assert not [source.name for source in OURS if source.uses("datetime")]


def test_pauses_are_doubled_in_one_place_where_that_has_a_bound() -> None:
    """`2.0 ** failures` overflows after 1024 failures, which is a night."""
    doublers = {
        source.name
        for source in OURS
        if source.name.startswith(("launcher/", "nodes/"))
        for node in ast.walk(source.tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Pow)
        and isinstance(node.left, ast.Constant)
        and node.left.value == 2
        and not isinstance(node.right, ast.Constant | ast.UnaryOp)
    }
    assert doublers == {"nodes/core/pauses.py"}


def test_whole_folders_are_deleted_only_by_those_that_made_them() -> None:
    """A wrong path deletes everything: everybody else uses tmp_path or TemporaryDirectory."""
    for source in EVERYTHING:
        deletes = source.uses("shutil.rmtree") or any(
            called(call).endswith("rmtree") for call in source.calls
        )
        makers = ("nodes/cache/room.py", "launcher/service/store.py", "launcher/scratch.py")
        assert source.name in makers or not deletes, source.name


def test_cores_import_only_what_is_pure() -> None:
    assert len(CORES) > 4
    for source in CORES:
        for name in source.imports:
            top = name.partition(".")[0]
            own = name.startswith(
                (
                    "nodes.core",
                    "nodes.protocol",
                    "launcher.core",
                    "launcher.errors",
                    "launcher.quantities",
                )
            )
            assert own or top in PURE, f"{source.name} imports {name}"


def test_cores_open_no_file_print_nothing_and_draw_no_random_numbers() -> None:
    for source in CORES:
        for call in source.calls:
            name = called(call)
            assert name not in {"open", "print", "input"}, _at(source, call)
            assert not name.startswith(("np.random", "numpy.random")), _at(source, call)
            # The names of signals are pure knowledge; whatever else that module does is not.
            assert not name.startswith("signal.") or name == "signal.Signals", _at(source, call)


def test_a_session_is_changed_by_its_own_methods_only() -> None:
    fields = {field.name for field in dataclasses.fields(Session)}
    for source in CORES:
        for node in source.nodes if source.name.startswith("launcher/core/") else ():
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                assert node.attr not in fields or ast.unparse(node.value) == "self", source.name


def test_no_folder_has_more_than_twenty_modules() -> None:
    folders = Counter(str(PurePosixPath(source.name).parent) for source in OURS)
    assert {name: number for name, number in folders.items() if number > 21} == {}


def test_no_file_is_called_after_what_it_is_not_about() -> None:
    vague = {"util", "utils", "helper", "helpers", "common", "manager", "misc"}
    for source in EVERYTHING:
        path = PurePosixPath(source.name)
        assert not vague & {*path.parent.parts, *path.stem.split("_")}, source.name


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_tells_type_checkers_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_one_public_root_error(package: str) -> None:
    roots = [
        f"{source.name}: {node.name}"
        for source in sources(package)
        if source.name != "csdf/certificates/check.py"  # needs nothing of its package
        for node in source.nodes
        if isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and any(isinstance(b, ast.Name) and _is_builtin_error(b.id) for b in node.bases)
    ]
    assert len(roots) <= 1, roots


def test_a_folder_of_modules_is_a_package_with_a_docstring() -> None:
    folders = {str(PurePosixPath(source.name).parent) for source in OURS}
    packages = {
        str(PurePosixPath(source.name).parent): source
        for source in OURS
        if source.name.endswith("/__init__.py")
    }
    assert folders == set(packages)
    for source in packages.values():
        assert ast.get_docstring(source.tree), source.name


@pytest.mark.parametrize("package", PACKAGES)
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    """Neither at the top nor within a function."""
    imported = {source.module: source.imported_from(OURS) for source in sources(package)}
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_a_circle_of_imports_is_found_in_a_function_and_through_a_package() -> None:
    made = [
        Source("made/__init__.py", "from made.a import one"),
        Source("made/a.py", "def one():\n    from made import b"),
        Source("made/b.py", "import made.c"),
        Source("made/c.py", "import fractions"),
    ]
    imported = {source.module: source.imported_from(made) for source in made}
    assert imported == {
        "made": {"made.a"},
        "made.a": {"made.b"},
        "made.b": {"made.c"},
        "made.c": set(),
    }


def test_no_test_uses_a_mock() -> None:
    for source in sources("tests"):
        assert not source.uses("unittest.mock"), source.name
        assert not source.uses("mock"), source.name


OWN = "tests/architecture/test_rules.py"


@pytest.mark.parametrize("target", ["test", "fast"])
def test_every_test_is_run_in_exactly_one_of_two_parts(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition(f"\n{target}: ")[2].partition("\n\n")[0]
    recipe = recipe.replace("\\\n", "")
    commands = [line.split("/pytest ")[1:] for line in recipe.splitlines() if "/pytest" in line]
    (together, *together_again), (alone, *alone_again) = commands
    quick = " and not slow" if target == "fast" else ""
    few = f"{quick} and not further"
    assert together.startswith(f'-m "not alone{few}" --numprocesses ')
    assert "tests" not in together
    assert alone.startswith(f'-m "alone{quick}" $(ALONE)')
    again = target == "test"  # what failed, alone
    assert together_again == [f'-m "not alone{few}" $(AGAIN)'] * again
    assert alone_again == [f'-m "alone{quick}" $(AGAIN) $(ALONE)'] * again


def test_what_make_test_leaves_out_runs_elsewhere() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nfurther: ")[2].partition("\n\n")[0]
    assert '/pytest -m "further" --numprocesses ' in recipe


def test_all_tests_that_run_alone_are_in_the_files_that_make_test_names() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = makefile.partition("\nALONE := ")[2].partition("\n\n")[0]
    marked = [
        source.name
        for source in sources("tests")
        if "pytest.mark.alone" in source.text and source.name != OWN
    ]
    assert sorted(marked) == [f"tests/{path}" for path in re.findall(r"[\w/]+\.py", named)]


def test_all_tests_that_the_makefile_names_exist() -> None:
    targets = (ROOT / "Makefile").read_text().partition("\n.PHONY: ")[2].partition("\n")[0].split()
    command = ["make", "--just-print", *targets]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = set(re.findall(r"\btests/[\w./]+", printed))
    assert "tests/nodes/test_encoding.py" in named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def _is_builtin_error(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, BaseException)


def _at(source: Source, node: ast.Call) -> str:
    return f"{source.name}, line {node.lineno}: {ast.unparse(node)}"


THREADS_WITHOUT_GUARD = {
    "nodes/net/metrics.py": "the library's own loop, and its threads of connections",
    "nodes/executors/preparing/child.py": "ends its process in any case",
    "nodes/executors/openvino/pages.py": "what it does is done again where it is waited for",
}
"""Where a thread may end by an error that nobody hears of, and why."""


def test_an_error_in_a_thread_reaches_somebody() -> None:
    """Else the thread ends, and whoever waits for it waits for ever.

    What a thread runs catches `BaseException`, or `Exception` in agents, whose engines raise those,
    itself or in what it calls directly.
    """
    unguarded = []
    for source in OURS:
        functions = {node.name: node for node in source.nodes if isinstance(node, ast.FunctionDef)}
        for call in source.calls:
            if called(call) not in ("threading.Thread", "Thread"):
                continue
            (target,) = (word.value for word in call.keywords if word.arg == "target")
            name = ast.unparse(target).removeprefix("self.")
            if name not in functions or not _catches(functions[name], functions):
                unguarded.append(source.name)
        unguarded += [
            source.name
            for node in source.nodes
            if isinstance(node, ast.ClassDef)
            and "Thread" in " ".join(map(ast.unparse, node.bases))
            and not any(
                _catches(each, functions)
                for each in node.body
                if isinstance(each, ast.FunctionDef) and each.name == "run"
            )
        ]
    assert {*unguarded} == THREADS_WITHOUT_GUARD.keys()


def test_the_launcher_starts_threads_in_one_place() -> None:
    """`in_thread` and `Repeated` give each thread an owner, which sees how it ends."""
    starters = {
        source.name
        for source in OURS
        for call in source.calls
        if source.name.startswith("launcher/") and called(call) in ("threading.Thread", "Thread")
    }
    runs = {"launcher/streaming/live_run.py", "launcher/streaming/source_stream.py"}
    assert starters - runs == {"launcher/threads.py"}


def _catches(function: ast.FunctionDef, functions: dict[str, ast.FunctionDef]) -> bool:
    nodes = list(ast.walk(function))
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        called_here = functions.get(called(call).removeprefix("self."))
        if called_here is not None:
            nodes += ast.walk(called_here)
    names = {
        ast.unparse(node.type)
        for node in nodes
        if isinstance(node, ast.ExceptHandler) and node.type is not None
    }
    return bool(names & {"BaseException", "Exception"})


def test_a_home_is_looked_up_where_nobody_needs_to_have_one() -> None:
    """`Path.home()` and `Path.expanduser()` raise for users and names without a home."""
    for source in (*OURS, *sources("csdf_edge")):
        for call in source.calls:
            name = called(call)
            assert name != "Path.home", _at(source, call)
            assert (
                name == "os.path.expanduser"
                or not isinstance(call.func, ast.Attribute)
                or (call.func.attr != "expanduser")
            ), _at(source, call)
