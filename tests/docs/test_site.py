"""The site has every page, every link in it leads somewhere, and its written pages are current."""

from pathlib import Path

import pytest

from docs import build_site, write_commands
from tests.docs import markdown

PAGES = build_site.pages()
DECISIONS = markdown.ROOT / build_site.DECISIONS


def test_every_markdown_file_but_those_of_fixtures_is_a_page() -> None:
    names = [markdown.name(path) for path in markdown.files()]
    assert sorted(PAGES) == [name for name in names if not name.startswith("tests/")]


def test_no_page_is_in_the_navigation_twice_or_takes_the_place_of_another() -> None:
    listed = [page for group in build_site.NAVIGATION.values() for page in group]
    assert len(set(listed)) == len(listed)
    assert len(set(PAGES.values())) == len(PAGES)


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build_site.stage(folder)
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_of_the_site_resolves(page: str, staged: Path) -> None:
    path = staged / PAGES[page]
    for link in markdown.links(path):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.is_file(), f"{page} links to {link}"
        assert target.is_relative_to(staged.resolve())
        assert not anchor or anchor in markdown.anchors(target), f"{page} links to {link}"


def test_the_front_page_lists_all_others(staged: Path) -> None:
    front = (staged / "index.md").read_text(encoding="utf-8").splitlines()
    inner = (staged / "decisions" / "index.md").read_text(encoding="utf-8").splitlines()
    for place in PAGES.values():
        name = place.removesuffix(".md")
        if place.startswith("decisions/0"):
            assert Path(name).name in inner
        else:
            assert ("self" if place == "index.md" else name) in front


def test_a_link_to_a_page_that_the_navigation_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without = {**build_site.NAVIGATION, "Security": ()}
    monkeypatch.setattr(build_site, "NAVIGATION", without)
    with pytest.raises(build_site.SiteError, match=r"links to docs/security\.md, which"):
        build_site.stage(tmp_path)


def test_the_list_of_decisions_has_all_of_them_by_their_titles() -> None:
    lines = DECISIONS.read_text(encoding="utf-8").splitlines()
    expected = []
    for page in build_site.decisions():
        title = (markdown.ROOT / page).read_text(encoding="utf-8").partition("\n")[0]
        expected.append(f"- [{title.removeprefix('# ')}]({Path(page).name})")
    assert [line for line in lines if line.startswith("- ")] == expected


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    """`python -m docs.write_commands` writes it."""
    assert write_commands.PAGE.read_text(encoding="utf-8") == write_commands.page()


def test_no_document_has_a_diagram_that_needs_a_script_from_elsewhere() -> None:
    assert [path for path in markdown.files() if markdown.blocks(path, "mermaid")] == []
