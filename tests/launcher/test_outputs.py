"""Results on disk, the classes of classifiers, labels and true classes."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from launcher.errors import BadInputError
from launcher.results.journal.ranges import FrameRanges
from launcher.results.outputs import OutputFolder
from launcher.tasks.classes import is_classifier, read_labels, read_truth, top_class, top_classes
from tests.launcher.models import network_of


@pytest.mark.parametrize(
    ("shape", "yes"),
    [
        ((1, 10), True),
        ((10,), True),
        ((1, 10, 1, 1), True),
        ((4, 10), False),
        ((1, 10, 7, 7), False),
        ((1, 1), False),
        ((), False),
    ],
)
def test_a_classifier_has_one_score_per_class(shape: tuple[int, ...], yes: bool) -> None:
    assert is_classifier(network_of((1, 2), output_shape=shape)) is yes


@given(arrays.arrays(np.float32, 12, elements=st.floats(-50, 50, width=32)), st.integers(1, 20))
def test_top_classes_are_the_likeliest_and_their_probabilities_sum_to_one(
    scores: np.ndarray, count: int
) -> None:
    guesses = top_classes(scores.reshape(1, 12), count)
    assert len(guesses) == min(count, 12)
    assert scores[guesses[0].number] == scores.max()
    probabilities = [guess.probability for guess in guesses]
    assert probabilities == sorted(probabilities, reverse=True)
    assert 0 <= sum(probabilities) <= 1 + 1e-6
    if count >= 12:
        assert sum(probabilities) == pytest.approx(1, abs=1e-2)


def test_probabilities_are_left_as_they_are() -> None:
    given_ones = np.array([[0.1, 0.7, 0.2]], np.float32)
    assert top_classes(given_ones, 1)[0].probability == pytest.approx(0.7)
    assert top_class({"y": given_ones}) == 1


def test_one_output_is_a_file_per_frame_and_classes_are_a_table(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    with OutputFolder(
        folder, ("y",), input_name=lambda frame: f"{frame}.png", top=2, labels=("cat", "dog")
    ) as writer:
        writer.write(0, {"y": np.array([[0.0, 0.9, 0.1]], np.float32)})
        writer.write(1, {"y": np.array([[0.2, 0.0, 0.8]], np.float32)})
    np.testing.assert_array_equal(
        np.load(folder / "000001.npy"), np.array([[0.2, 0.0, 0.8]], np.float32)
    )
    with (folder / "classes.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["frame", "input", "rank", "class", "probability", "name"],
        ["0", "0.png", "1", "1", "0.900000", "dog"],
        ["0", "0.png", "2", "2", "0.100000", ""],
        ["1", "1.png", "1", "2", "0.800000", ""],
        ["1", "1.png", "2", "0", "0.200000", "cat"],
    ]


def test_the_table_keeps_the_rows_of_frames_that_will_not_be_written_again(tmp_path: Path) -> None:
    """Their results are no longer in the journal. A name may have a line break."""

    def opened(kept: FrameRanges) -> OutputFolder:
        return OutputFolder(tmp_path, ("y",), input_name="{}\n.png".format, top=1, kept=kept)

    scores = {"y": np.array([[0.0, 0.9, 0.1]], np.float32)}
    with opened(FrameRanges()) as writer:
        for frame in (8, 9, 10, 11):
            writer.write(frame, scores)
        writer.sync()
    with opened(FrameRanges([(0, 9)])) as writer:
        writer.write(11, scores)
        writer.sync()
    with (tmp_path / "classes.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [row[:2] for row in rows[1:]] == [[n, f"{n}\n.png"] for n in ("8", "9", "11")]


def test_a_run_that_resumes_takes_names_from_the_table_of_the_one_before(tmp_path: Path) -> None:
    """The journal has the results of a source's frames, and not their names."""

    def opened(*, resumes: bool) -> OutputFolder:
        return OutputFolder(tmp_path, ("y",), top=2, resumes=resumes)

    scores = {"y": np.array([[0.0, 0.9, 0.1]], np.float32)}
    names = {0: "a.png", 2: "two\nlines.png", 3: "", 4: "d.png"}
    with opened(resumes=True) as writer:  # there is no table yet
        for frame, name in names.items():
            writer.write(frame, scores, name)
    with opened(resumes=True) as writer:
        for frame in (0, 2, 3):
            writer.write(frame, scores)
        writer.write(5, scores, "e.png")
        writer.write(6, scores)
    with (tmp_path / "classes.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [tuple(row[:2]) for row in rows[1::2]] == [
        ("0", "a.png"), ("2", "two\nlines.png"), ("3", ""), ("5", "e.png"), ("6", "")
    ]  # fmt: skip
    with opened(resumes=False) as writer:
        writer.write(0, scores)
    assert "a.png" not in (tmp_path / "classes.csv").read_text()


def test_several_outputs_have_their_names_in_their_files(tmp_path: Path) -> None:
    names = ("score", "aux/map", "aux:map")
    with OutputFolder(tmp_path, names, input_name=str) as writer:
        writer.write(7, {name: np.array([number]) for number, name in enumerate(names)})
    found = {path.name: int(np.load(path)[0]) for path in tmp_path.iterdir()}
    assert found == {"000007.score.npy": 0, "000007.aux_map.npy": 1, "000007.aux_map.2.npy": 2}


def test_a_folder_that_cannot_be_made_is_reported_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match=r"--output .* cannot be written"):
        OutputFolder(tmp_path / "file" / "out", ("y",), input_name=str)


def test_labels_and_truth_are_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("0\n12\n3\n\n")
    assert read_labels(path) == ("0", "12", "3")
    assert read_truth(path, 3) == (0, 12, 3)
    path.write_bytes(b"\xef\xbb\xbf0\r\n12\r\n3\r\n")  # as editors of Windows save it
    assert read_labels(path) == ("0", "12", "3")
    assert read_truth(path, 3) == (0, 12, 3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1\n2\n", "has 2 classes for 3 inputs"),
        ("1\ncat\n2\n", "line 2: 'cat' is not a class"),
        ("1\n-2\n2\n", "line 2: '-2' is not a class"),
    ],
)
def test_a_truth_that_does_not_fit_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "truth.txt"
    path.write_text(text)
    with pytest.raises(BadInputError, match=sentence):
        read_truth(path, 3)
