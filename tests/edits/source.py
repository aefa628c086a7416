"""Programs as Python: the text of a module that a person could have written, with real decorators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.edits.programs import (
    Block,
    Branch,
    Call,
    Choice,
    Decl,
    Fan,
    Help,
    Loop,
    Mapped,
    Node,
    Patched,
    Program,
    Receive,
    Sleep,
    Spawn,
    Task,
    Try,
    nodes,
    parts_of,
)

_HEAD = '''\
"""An agent made at random."""

import asyncio

import ninelives as nl
from tests.edits import ledger as world
'''
_CHILD = """
@nl.action(name="note")
async def note(to: str, n: int) -> str:
    return await world.act("child", to, n)


@nl.agent(name="child")
async def child(n: int) -> str:
    return await note("child", n)
"""


def source_of(program: Program) -> str:
    """Write a program down."""
    used = {node.step for node in nodes(program.block) if isinstance(node, Call | Mapped | Choice)}
    writer = _Writer(program)
    agent = list(_agent(program, writer))
    parts = [_HEAD, *("\n".join(_declaration(one)) for one in program.decls.values() if one.lineage in used)]
    if any(isinstance(node, Spawn) for node in nodes(program.block)):
        parts.append(_CHILD)
    parts += ["\n".join(lines) for lines in writer.helpers]
    return "\n\n".join([*(part.strip("\n") + "\n" for part in parts), "\n".join(agent) + "\n"])


def _agent(program: Program, writer: _Writer) -> Iterator[str]:
    forgets = f", forgets={list(program.forgets)!r}" if program.forgets else ""
    yield f'@nl.agent(name="agent"{forgets})'
    parts = parts_of(program.block)
    if len(parts) == 1:
        yield "async def agent() -> dict[str, str]:"
        yield from _in(["i = 0", "out: dict[str, str] = {}", *writer.block(program.block), "return out"])
        return
    yield 'async def agent(part: str = "", i: int = 0, given: dict[str, str] = {}) -> dict[str, str]:'
    yield "    out = dict(given)"
    for (turn, block), after in zip(parts, [*parts[1:], None], strict=True):
        yield f'    if part == "{turn.site}":'
        yield from _in(_in(writer.block(block)))
        if turn.rounds > 1:
            yield f"        if i + 1 < {turn.rounds}:"
            yield f'            return nl.next_turn("{turn.site}", i + 1, out)'
        if after is not None:
            begins, _ = after
            goes_on = "return nl.next_turn({}, 0, out)" if begins.is_border else "part, i = {}, 0"
            yield "        " + goes_on.format(f'"{begins.site}"')
    yield "    return out"


def _declaration(decl: Decl) -> Iterator[str]:
    options = [f'name="{decl.name}"']
    has_verify = decl.kind == "once" and decl.has_verify
    if decl.kind == "read":
        options.append("reads_only=True")
    if decl.kind == "once":
        options.append("resumable=False")
    if has_verify:
        options.append(f"verify=verify_{decl.lineage}")
        yield f"async def verify_{decl.lineage}(to: str, n: int, key: str) -> object:"
        yield f'    return world.verify("{decl.lineage}", to, n, key)'
        yield ""
        yield ""
    if decl.key:
        options.append(f'key="{decl.key}"')
    if decl.id:
        options.append(f'id="{decl.id}"')
    if decl.aliases:
        options.append(f"aliases={list(decl.aliases)!r}")
    yield f"@nl.{'decision' if decl.kind == 'decision' else 'action'}({', '.join(options)})"
    yield f"async def {decl.name}(to: str, n: int) -> str:"
    if decl.kind == "decision":
        yield f'    return await world.decide("{decl.lineage}", to, n)'
    elif decl.kind == "read":
        yield f'    return await world.read("{decl.lineage}", to, n)'
    else:
        yield f'    return await world.{"fail" if decl.fails else "act"}("{decl.lineage}", to, n)'


class _Writer:
    def __init__(self, program: Program) -> None:
        self._program = program
        self.helpers: list[list[str]] = []

    def block(self, block: Block) -> Iterator[str]:
        if not block:
            yield "pass"
        for node in block:
            yield from self._node(node)

    def _call(self, step: str, to: str, n: int, *, counts: bool) -> str:
        return f'{self._program.decls[step].name}("{to}", {n}{" + i" if counts else ""})'

    def _node(self, node: Node) -> Iterator[str]:
        out = f'out[f"{node.site}.{{i}}"]'
        match node:
            case Call():
                line = f"{out} = await {self._call(node.step, node.to, node.n, counts=node.counts)}"
                if self._program.decls[node.step].fails:
                    yield from ("try:", f"    {line}", "except Exception:", f'    {out} = "failed"')
                else:
                    yield line
            case Fan():
                yield from self._fan(node, out)
            case Mapped():
                yield f"async def map_{node.site}(n: int) -> str:"
                yield f'    return await {self._program.decls[node.step].name}("{node.to}", n)'
                yield ""
                items = f"[{node.n} + {node.times} * i + k for k in range({node.times})]"
                yield f'{out} = "|".join(await nl.map(map_{node.site}, {items}, limit=2))'
            case Task():
                yield from self._function(node.stem, node.block)
                yield f"await asyncio.create_task({node.stem}(i))"
            case Help():
                lines = [f"async def {node.name}(out: dict[str, str], i: int) -> None:"]
                self.helpers.append([*lines, *_in(self.block(node.block))])
                yield f"await {node.name}(out, i)"
            case Branch():
                yield f'with nl.branch("{node.name}"):'
                yield from _in(self.block(node.block))
            case Loop():
                yield "outer = i"
                yield f"for i in range({node.times}):"
                yield from _in(self.block(node.block))
                yield "i = outer"
            case Try():
                yield "try:"
                yield from _in(self.block(node.block))
                yield "except ValueError:"
                yield f'    {out} = "caught"'
            case Choice():
                yield f'if await {self._call(node.step, node.to, node.n, counts=True)} == "yes":'
                yield from _in(self.block(node.yes))
                yield "else:"
                yield from _in(self.block(node.no))
            case Sleep():
                yield f"await nl.sleep({node.seconds})"
            case Receive():
                yield f'{out} = await nl.receive("go", type=str)'
            case Spawn():
                yield f"kid = await nl.spawn(child, {node.n} + i)"
                yield f"{out} = await kid.result()"
            case Patched():
                yield f'if nl.patched("{node.name}"):'
                yield from _in(self.block(node.block))

    def _function(self, name: str, block: Block) -> Iterator[str]:
        yield f"async def {name}(i: int) -> None:"
        yield from _in(self.block(block))
        yield ""

    def _fan(self, node: Fan, out: str) -> Iterator[str]:
        if is_inline(self._program, node):
            calls = [
                self._call(call.step, call.to, call.n, counts=call.counts)
                for (call,) in node.arms
                if isinstance(call, Call)
            ]
            yield from _fanned(node, calls, f'{out} = "|".join(sorted(', "))")
            return
        for number, arm in enumerate(node.arms):
            yield from self._function(f"{node.stem}_{number}", arm)
        yield from _fanned(node, [f"{node.stem}_{number}(i)" for number in range(len(node.arms))], "", "")


def is_inline(program: Program, node: Fan) -> bool:
    """Return whether the calls of a fan are given as they are, without functions around them."""
    return node.inline and all(
        len(arm) == 1 and isinstance(arm[0], Call) and not program.decls[arm[0].step].fails
        for arm in node.arms
    )


def _fanned(node: Fan, calls: list[str], before: str, after: str) -> Iterator[str]:
    """Write several calls beside each other, or one after the other; their results between two texts."""
    names = [f"{node.site}_{number}" for number in range(len(calls))]
    match node.how:
        case "sequence":
            if before:
                yield f"{before}[{', '.join(f'await {call}' for call in calls)}]{after}"
            else:
                yield from (f"await {call}" for call in calls)
        case "gather" | "nl.gather":
            module = "asyncio" if node.how == "gather" else "nl"
            yield f"{before}await {module}.gather({', '.join(calls)}){after}"
        case "group":
            yield "async with asyncio.TaskGroup() as group:"
            for name, call in zip(names, calls, strict=True):
                yield f"    {name} = group.create_task({call})"
            if before:
                yield f"{before}[{', '.join(f'{name}.result()' for name in names)}]{after}"
        case "tasks":
            for name, call in zip(names, calls, strict=True):
                yield f"{name} = asyncio.create_task({call})"
            if before:
                yield f"{before}[{', '.join(f'await {name}' for name in names)}]{after}"
            else:
                yield from (f"await {name}" for name in names)
        case "as_completed":
            yield f"{node.site}_done = []"
            yield f"for done in asyncio.as_completed([{', '.join(calls)}]):"
            yield f"    {node.site}_done.append(await done)"
            if before:
                yield f"{before}{node.site}_done{after}"


def _in(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]
