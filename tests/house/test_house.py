"""The house gets better, never worse; and what ARCHITECTURE.md and CONTRIBUTING.md name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house import words
from tests.house.habits import patched_globals, privates
from tests.house.measures import Measure, code_lines, read_maxima, read_source, walk
from tests.house.source import ROOT, House

PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")


@pytest.fixture(scope="module")
def house() -> House:
    return House()


def grown(measures: list[Measure], table: str) -> list[str]:
    """Return what is above its maximum."""
    values = {one.name: one.value for one in measures}
    maxima = read_maxima(table).items()
    return [f"{name}: {values[name]} > {most}" for name, most in maxima if values[name] > most]


def test_no_measure_of_the_source_grows(house: House) -> None:
    measures = list(read_source(house))
    unheld = {one.name for one in measures} - read_maxima("source").keys()
    assert {name.partition(" ")[0] for name in unheld} == {"lines"}
    assert grown(measures, "source") == []


def test_no_step_walks_further() -> None:
    assert grown(list(walk()), "walks") == []


def test_no_word_to_avoid_is_used_more_often(house: House) -> None:
    assert words.grown("names", words.names(house), words.NAMES) == []
    assert words.grown("prose", words.prose(house), words.PROSE) == []


def test_a_cycle_through_functions_and_types_is_found(tmp_path: Path) -> None:
    house = planted(tmp_path, a="def f():\n    import ninelives.b", b="import ninelives.c", c=TYPED)
    assert house.cycles() == [["ninelives.a", "ninelives.b", "ninelives.c"]]
    assert len(house.late_edges("ninelives")) == 2


def test_words_to_avoid_are_found_in_names_and_prose(tmp_path: Path) -> None:
    code = """# for ever
class Told:
    def _hear(self, *, look_up, in_line): self.asked_at = fail("it was told\\nanew")"""
    house = planted(
        tmp_path,
        whereabouts='"""Whoever is\n    told."""',
        code=code,
        **{"stores/shared": "_line = 1", "views/records_text": "place = 1", "views/other": "place = 1"},
    )
    found = words.names(house)
    assert {word: len(where) for word, where in found.items()} == {
        "told": 1, "hear": 1, "asked": 1, "whereabouts": 1, "line": 1, "place": 1
    }  # fmt: skip
    assert found["line"] == ["ninelives.stores.shared: _line"]
    assert found["place"] == ["ninelives.views.other: place"], "the other is public"
    assert {word: len(where) for word, where in words.prose(house).items()} == {
        "told": 2, "whoever": 1, "for ever": 1, "anew": 1
    }  # fmt: skip
    (refused,) = words.grown("prose", {"told": ["a: 1"]}, words.PROSE)
    assert refused == "told, 1 times instead of 0; use: reported, delivered; at a: 1"


def test_privates_and_patches_are_found(tmp_path: Path) -> None:
    patches = "from ninelives import a\nvars(a)['x'] = a.y = 1\nsetattr(a, 'z', 2)\na.b._own"
    house = planted(tmp_path, a="", c="_own = 1", **{"d/e": patches})
    assert len(patched_globals(house)) == 3
    assert privates(house)[0] == ["ninelives.d.e: _own"]


def test_comments_docstrings_and_empty_lines_are_no_code(tmp_path: Path) -> None:
    house = planted(
        tmp_path, a='"""Says\n\nwhat."""\n\n# why\nx = 1  # so\n\ndef f():\n    """Do."""\n    return x\n'
    )
    assert code_lines(house.modules["ninelives.a"]) == 3


TYPED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ninelives.a import A"


def planted(directory: Path, **modules: str) -> House:
    """Return a house of a few modules."""
    root = directory / "ninelives"
    for name, text in {"__init__": "", **modules}.items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return House(directory)


NAMED = re.compile(r"`((?:[\w.-]+/)+|(?:[\w.-]+/)*[\w.-]+\.(?:py|toml|sql|md))(?::(\w+))?`")


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for path, name in NAMED.findall(text):
        found = [base / path for base in (ROOT, ROOT / "src" / "ninelives") if (base / path).exists()]
        assert found, f"{page}: {path}"
        if name:
            defined = re.compile(rf"^\s*(async def|def|class) {name}\b|^{name}\b.* = ", re.MULTILINE)
            assert defined.search(found[0].read_text(encoding="utf-8")), f"{page}: {path}:{name}"
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (ROOT / target).exists(), f"{page}: {target}"


def test_every_crash_mark_is_on_the_page() -> None:
    page = (
        (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## 10.")[2].partition("## 11.")[0]
    )
    source = ROOT / "src" / "ninelives"
    marked = {path: path.read_text(encoding="utf-8").count("# CRASH:") for path in source.rglob("*.py")}
    missing = [
        str(path) for path, marks in marked.items() if marks and f"`{path.relative_to(source)}`" not in page
    ]
    assert missing == []
    counted = sum(int(marks) for marks in re.findall(r"^\| `[^|]+\| (\d+) \|", page, re.MULTILINE))
    assert counted == sum(marked.values())
    assert [row for row in page.splitlines() if row.startswith("|") and re.search(r"\|\s*\|$", row)] == []


def test_the_commands_are_as_many_as_both_pages_say() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    commands = contributing.partition("```sh\n")[2].partition("```")[0].count("make ")
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    assert f"\n{words[commands].capitalize()} commands are enough:" in contributing
    assert f"(CONTRIBUTING.md), in {words[commands]} commands" in (ROOT / "README.md").read_text(
        encoding="utf-8"
    )
