"""What OpenVINO's executor says, and reads in files, where OpenVINO is not installed."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest

from csdf_edge.testing import executor_models as models
from nodes.executors.base import ExecutorError
from nodes.executors.openvino.compiler import explain
from nodes.executors.openvino.pages import drop_pages, pages_dropped
from nodes.executors.registry import open_executor

UNKNOWN = (
    "Check 'false' failed at src/frontends/common_translators/src/unconverted_ops_report.cpp:151:\n"
    "FrontEnd API failed with OpConversionFailure:\nModel wasn't fully converted.\nSummary:\n"
    "-- No conversion rule found for operations: {operators}\n"
)


def test_where_it_is_missing_its_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(ExecutorError, match=r"not installed: `pip install 'csdf-edge\[openvino\]'"):
        open_executor("openvino", tmp_path)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (
            UNKNOWN.format(operators="Frobnicate-17"),
            "it has no operator Frobnicate (layer 'n1'); pin the layer to a node with another "
            "engine, or use the executor `onnxruntime` on this node",
        ),
        (
            UNKNOWN.format(operators="com.microsoft.QLinearLeakyRelu-1, Optional-17"),
            "it has no operator QLinearLeakyRelu; pin the layer",
        ),
        (
            "Exception from src/inference/src/cpp/infer_request.cpp:224:\n"
            "Exception from src/plugins/intel_cpu/src/graph.cpp:1628:\nNode y of type ROIPooling\n"
            "Check '0 <= roi && roi <= 1' failed at src/plugins/intel_cpu/src/nodes/roi.cpp:633:\n"
            "takes incorrect roi_ind, max roi_ind = 1\n",
            "Node y of type ROIPooling takes incorrect roi_ind, max roi_ind = 1",
        ),
        ("", "it does not say why"),
    ],
)
def test_engine_messages_become_clauses(tmp_path: Path, message: str, says: str) -> None:
    graph = models.save(models.unknown_operator(), tmp_path)
    assert explain(message, graph).startswith(says)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux has this list")
def test_pages_of_a_file_are_dropped_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * 4096)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        content = bytes(mapped)
        assert resident_kilobytes(path) == 1024
        drop_pages([tmp_path / "another"])
        assert resident_kilobytes(path) == 1024
        drop_pages([path])
        assert resident_kilobytes(path) == 0
        assert bytes(mapped) == content


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux has this list")
def test_pages_that_are_read_while_they_are_dropped_have_their_content(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    content = bytes(range(256)) * 4096
    path.write_bytes(content)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        with pages_dropped([path]):
            assert all(bytes(mapped) == content for _ in range(20))
        assert resident_kilobytes(path) == 0


def resident_kilobytes(path: Path) -> int:
    """What of a mapped file is in this process's memory."""
    after = Path("/proc/self/smaps").read_text().partition(f"{path}\n")[2]
    return int(after.partition("Rss:")[2].split()[0])
