"""Every process that runs Python is started in one place, which keeps the current folder out."""

import ast

from tests.architecture.source import PACKAGES, Source, called, sources

OURS = sources(*PACKAGES, "csdf_edge")
PLACE = "nodes/host/process.py"


def attributes(source: Source) -> set[str]:
    return {ast.unparse(node) for node in source.nodes if isinstance(node, ast.Attribute)}


def test_the_interpreter_and_the_own_command_line_are_named_in_one_place() -> None:
    for source in OURS:
        named = attributes(source) & {"sys.executable", "sys.orig_argv", "sys._base_executable"}
        allowed = {PLACE: {"sys.executable", "sys.orig_argv"}}
        allowed["nodes/host/sandbox.py"] = {"sys.executable"}  # which it allows to be started
        assert named <= allowed.get(source.name, set()), source.name
        assert not source.uses("sys.executable"), source.name


def test_a_module_is_run_by_name_in_one_place() -> None:
    """On boards, `launch upgrade` does it in the home of the account that it signs in to."""
    namers = {
        source.name
        for source in OURS
        for node in source.nodes
        if isinstance(node, ast.Constant) and node.value == "-m"
    }
    assert namers == {PLACE, "launcher/upgrade/layout.py"}


def test_nothing_else_of_the_standard_library_starts_python() -> None:
    """`multiprocessing` starts `python -c`, which has the current folder first on its path too."""
    for source in OURS:
        for module in ("multiprocessing", "concurrent.futures.ProcessPoolExecutor", "pty"):
            assert not source.uses(module), source.name
        assert not attributes(source) & {"futures.ProcessPoolExecutor", "venv.create"}, source.name


def test_programs_are_replaced_and_forked_in_few_places() -> None:
    starters = ("os.exec", "os.fork", "os.spawn", "os.posix_spawn", "os.system", "os.popen")
    found = {
        source.name for source in OURS for call in source.calls if called(call).startswith(starters)
    }
    assert found == {PLACE, "nodes/slots/settings.py", "nodes/slots/agent_process.py"}


def modules_started() -> set[str]:
    """The first argument of every call of `python_command`."""
    found = set()
    for source in (source for source in OURS if "python_command(" in source.text):
        values = {
            ast.unparse(node.targets[0]): node.value.value
            for node in source.nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        }
        for call in source.calls:
            if called(call) == "python_command":
                first = call.args[0]
                value = first.value if isinstance(first, ast.Constant) else values[first.id]  # type: ignore[attr-defined]
                assert isinstance(value, str), source.name
                found.add(value)
    return found
