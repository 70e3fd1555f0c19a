"""What sources, sinks and tasks share: mappings with a kind, plugins, and keys that are paths."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from launcher.config.ends.kinds import SINKS, SOURCES
from launcher.config.kinds import FileName, Kinds, file_names
from launcher.config.load import load_cluster
from launcher.config.strict import StrictModel
from launcher.errors import BadInputError

PLUGIN = """
from typing import ClassVar
from {base.__module__} import {base.__name__}

class Loud({base.__name__}):
    kind: ClassVar[str] = "loud"
    volume: int = 3
    def open(self, folder):
        raise NotImplementedError

not_a_class = 7
"""


@dataclass(frozen=True)
class Noun:
    """Where `cluster.yaml` has a mapping of one of these kinds, and how."""

    kinds: Kinds[Any]
    text: str
    where: str

    def write(self, folder: Path, keys: str) -> Path:
        path = folder / "cluster.yaml"
        path.write_text(
            f"model: builtin:yolov2\nnodes: [{{name: a}}]\n{self.text.format(f'{{{keys}}}')}\n"
        )
        return path

    def parsed(self, folder: Path, keys: str) -> Any:
        config = load_cluster(self.write(folder, keys), "cluster.yaml").config
        return config.sinks[0] if self.kinds is SINKS else config.input.source

    def mistake(self, folder: Path, keys: str) -> str:
        with pytest.raises(BadInputError) as caught:
            self.parsed(folder, keys)
        return str(caught.value).removeprefix(f"cluster.yaml, line 3, {self.where}")


@pytest.fixture(params=["sink", "source"])
def noun(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Noun:
    """With a package whose entry points are kinds, as pip would install it."""
    if request.param == "sink":
        noun = Noun(SINKS, "sinks: [{}]\ninput: {{source: '-'}}", "sinks[0]")
    else:
        noun = Noun(SOURCES, "input: {{source: {}}}", "input.source")
    (tmp_path / f"loud_{request.param}.py").write_text(PLUGIN.format(base=noun.kinds.base))
    info = tmp_path / "csdf_loud-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: csdf-loud\nVersion: 1.0\n")
    points = (("loud", "Loud"), ("alias", "Loud"), ("seven", "not_a_class"), ("gone", "Gone"))
    (info / "entry_points.txt").write_text(
        f"[{noun.kinds.group}]\n"
        + "".join(f"{kind} = loud_{request.param}:{name}\n" for kind, name in points)
    )
    monkeypatch.syspath_prepend(tmp_path)
    return noun


def test_a_plugin_is_a_kind_like_others(noun: Noun, tmp_path: Path) -> None:
    found = noun.parsed(tmp_path, "kind: loud, volume: 11")
    assert noun.kinds.as_written(found) == {"kind": "loud", "volume": 11}
    assert "volume: must be a whole number" in noun.mistake(tmp_path, "kind: loud, volume: x")
    assert "did you mean 'volume'" in noun.mistake(tmp_path, "kind: loud, volum: 1")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("gone", "the kind 'gone' of the package 'csdf-loud' cannot be imported: "),
        ("seven", "the kind 'seven' of the package 'csdf-loud' is not a {base} but loud_"),
        ("alias", "the kind 'alias' of the package 'csdf-loud' calls itself 'loud'"),
    ],
)
def test_a_broken_plugin_is_named_with_its_package(
    noun: Noun, tmp_path: Path, kind: str, sentence: str
) -> None:
    said = noun.mistake(tmp_path, f"kind: {kind}")
    assert said.startswith(f".kind: {sentence.format(base=noun.kinds.base.__name__)}")


def test_an_unknown_kind_lists_those_there_are(noun: Noun, tmp_path: Path) -> None:
    known = ", ".join((*noun.kinds.built_in, "alias", "gone", "loud", "seven"))
    assert noun.mistake(tmp_path, "kind: webcam") == (
        f".kind: there is no kind of {noun.kinds.noun} 'webcam'; the kinds are {known}"
    )


def test_reading_a_cluster_imports_no_library_of_any_kind(noun: Noun, tmp_path: Path) -> None:
    path = noun.write(tmp_path, "kind: stdout" if noun.kinds is SINKS else "kind: stdin")
    code = (
        "import sys; from pathlib import Path; from launcher.config.load import load_cluster;"
        "from launcher.config.ends.kinds import SINKS, SOURCES;"
        "[kinds.find(kind) for kinds in (SINKS, SOURCES) for kind in kinds.built_in];"
        f"load_cluster(Path({str(path)!r}));"
        "assert not {'av', 'cv2', 'paho', 'urllib3'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class _Keys(StrictModel):
    plain: FileName
    described: Annotated[FileName, Field(description="d")]
    optional: Annotated[FileName | None, Field(description="d")] = None
    missing: FileName | None = None
    text: str = "t"


def test_a_key_that_may_be_a_path_is_one_whatever_its_type_says_besides() -> None:
    keys = _Keys(plain="a", described="b", optional="c")
    assert file_names(keys) == {"plain": "a", "described": "b", "optional": "c"}
