"""Every relative link leads somewhere."""

from pathlib import Path

import pytest

from tests.docs import markdown

FILES = markdown.files()


def test_the_documents_that_a_newcomer_looks_for_are_there() -> None:
    names = {markdown.name(path) for path in FILES}
    wanted = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    wanted |= {"docs/architecture.md", "docs/glossary.md", "examples/digits/README.md"}
    assert wanted <= names


@pytest.mark.parametrize("path", FILES, ids=markdown.name)
def test_relative_links_resolve(path: Path) -> None:
    for link in markdown.links(path):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), f"{markdown.name(path)} links to {link}"
        assert target.is_relative_to(markdown.ROOT), f"{link} leaves the repository"
        if anchor:
            assert target.suffix == ".md"
            assert anchor in markdown.anchors(target), f"{markdown.name(path)} links to {link}"


def test_every_decision_has_another_number_and_describes_its_consequences() -> None:
    folder = [path for path in FILES if markdown.name(path).startswith("docs/decisions/")]
    decisions = [path for path in folder if path.name != "README.md"]
    numbers = [int(path.name.partition("-")[0]) for path in decisions]
    assert numbers
    assert len(set(numbers)) == len(numbers)
    for path in decisions:
        assert {"context", "decision", "consequences"} <= markdown.anchors(path), path.name
