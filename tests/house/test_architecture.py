"""The tables of ARCHITECTURE.md are complete; events and options are documented."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

import ninelives as nl
from ninelives.engine.hooks import Observer
from ninelives.engine.spec.options import ActionOptions, DecisionOptions
from tests.house.source import ROOT

SOURCE = ROOT / "src" / "ninelives"
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CONSTRUCTORS = frozenset(
    [
        "ContextVar",
        "WeakKeyDictionary",
        "WeakValueDictionary",
        "WeakSet",
        "Counter",
        "deque",
        "defaultdict",
        "dict",
        "list",
        "set",
        "local",
        "Lock",
        "RLock",
        "Event",
        "Condition",
        "SimpleQueue",
    ]
)
"""A call of these at module level makes state, as an empty literal of a dict or a list does."""


def section(title: str, page: str = ARCHITECTURE) -> list[list[str]]:
    """Return the cells of the first table under a heading."""
    text = page.partition(f"\n{title}\n")[2]
    assert text, title
    rows = re.findall(r"^\|(.+)\|$", re.split(r"^#", text, maxsplit=1, flags=re.MULTILINE)[0], re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows[2:]]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text(encoding="utf-8"))


def called(node: ast.AST) -> str:
    """Return the last name of what a call calls."""
    function = node.func if isinstance(node, ast.Call) else None
    while isinstance(function, ast.Subscript):
        function = function.value
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def test_every_thread_is_in_the_table_by_its_name() -> None:
    listed = section("### Threads")
    names = {name for row in listed for name in quoted(row[0]) if name.startswith("ninelives-")}
    files = {name.partition(":")[0] for row in listed for name in quoted(row[1])}
    found, elsewhere = set[str](), set[str]()
    for path, tree in trees():
        for node in ast.walk(tree):
            if called(node) != "Thread" or not isinstance(node, ast.Call):
                continue
            given = {one.arg: one.value for one in node.keywords}.get("name")
            if isinstance(given, ast.Constant):
                found.add(str(given.value))
            elsewhere.add(path)
    assert found == names
    assert elsewhere <= files


def state_of(tree: ast.Module) -> Iterator[str]:
    """Yield the names at module level that hold what changes; locks that guard one of them do not count."""
    changed = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        is_empty = isinstance(value, ast.Dict | ast.List) and not list(ast.iter_child_nodes(value))[:-1]
        for name in [one.id for one in ast.walk(target) if isinstance(one, ast.Name)]:
            is_state = name in changed or (is_empty and name != "__all__") or called(value) in CONSTRUCTORS
            if is_state and not name.endswith("_lock"):
                yield name


def test_every_state_of_the_process_is_in_the_table() -> None:
    listed = {(path, name) for what, where, _ in section("### Process-wide state")
              for path in quoted(where) for name in quoted(what)}  # fmt: skip
    found = {(path, name) for path, tree in trees() for name in state_of(tree)}
    assert found - listed == set()
    ours = {(path, name) for path, name in listed if (SOURCE / path).is_file() and "." not in name}
    assert ours - found == set()


def test_module_level_state_is_found() -> None:
    tree = ast.parse("A: dict[str, int] = {}\nB = {1: 2}\n_n = 0\n_n_lock = Lock()\nC = ContextVar('c')\n"
                     "def f():\n    global _n\n    D = {}\n")  # fmt: skip
    assert list(state_of(tree)) == ["A", "_n", "C"]


def test_every_event_is_in_the_table_of_its_decision() -> None:
    page = (ROOT / "docs" / "decisions" / "0023-hooks.md").read_text(encoding="utf-8")
    listed = [
        name for row in re.findall(r"^\| ([a-z_, ]+) \|", page, re.MULTILINE) for name in row.split(", ")
    ]
    assert {name for name in vars(Observer) if not name.startswith("_")} == set(listed) - {"event"}


def test_every_option_of_a_step_is_documented_where_users_read_it() -> None:
    decision, action = inspect.getdoc(nl.decision) or "", inspect.getdoc(nl.action) or ""
    for name in DecisionOptions.__optional_keys__:
        assert f"`{name}`" in decision, name
        assert f"`{name}`" in action, name
    for name in ActionOptions.__optional_keys__ | {"transaction"}:
        assert re.search(rf"`{name}\b", action), name


def test_every_decision_is_in_the_table_in_order() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    text = ARCHITECTURE.partition("\n## 13. Decisions\n")[2]
    listed = re.findall(r"^\| (\d+) \| \[.*\]\(docs/decisions/(.*\.md)\)", text, re.MULTILINE)
    assert [(int(number), name) for number, name in listed] == [
        (int(page.name.partition("-")[0]), page.name) for page in pages
    ]


def test_every_suite_is_in_the_table() -> None:
    text = ARCHITECTURE.partition("\n## 11. How it is tested\n")[2].partition("\n| you change |")[0]
    suites = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert {name for name in suites if f"`tests/{name}/`" not in text} == set()


def test_every_module_of_the_command_line_is_in_its_map() -> None:
    for package in ("cli", "cli/commands", "cli/operate"):
        text = (SOURCE / package / "__init__.py").read_text(encoding="utf-8")
        modules = {path.stem for path in (SOURCE / package).glob("*.py")} - {"__init__"}
        assert {name for name in modules if f"`{name}`" not in text} == set(), package


def test_every_module_is_in_the_map_of_its_package() -> None:
    missing = []
    for package in sorted(one.parent for one in SOURCE.rglob("__init__.py") if one.parent != SOURCE):
        page = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
        files = {one.stem for one in package.glob("*.py")} - {"__init__", "__main__"}
        parts = files | {one.parent.name for one in package.glob("*/__init__.py")}
        missing += [f"{package.name}/{one}" for one in sorted(parts - set(re.findall(r"\w+", page)))]
    assert missing == []


def test_every_error_is_in_the_tree() -> None:
    tree = ast.parse((SOURCE / "core" / "errors.py").read_text(encoding="utf-8"))
    drawn = set(re.findall(r"\w+", ast.get_docstring(tree) or ""))
    assert {node.name for node in tree.body if isinstance(node, ast.ClassDef)} - drawn == set()
