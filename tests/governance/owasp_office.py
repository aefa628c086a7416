"""An assistant that does whatever it reads, and the policy that governs it.

`think` stands for a model that was taken in entirely: each line `DO tool {arguments}` of a text becomes a
call, wherever the text came from. What tools did is in `DONE`, and nowhere else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ninelives as nl
from tests.crash.stores import AnyStore

DONE: list[tuple[Any, ...]] = []
"""What happened in the world."""
PAGES: dict[str, str] = {}
"""What the web says."""
NOTES: dict[str, str] = {}
"""What agents have noted, for all runs to come."""
POLICY = """
[policy]
name = "office"
default = "deny"

[[rule]]
id = "looking"
actions = ["*"]
kinds = ["decision", "read"]
do = "allow"

[[rule]]
id = "small-payments"
actions = ["send_money"]
when = "to in ['ada', 'bob'] and cents > 0 and cents <= 10_000"
do = "allow"

[[rule]]
id = "after-outside-data"
actions = ["send_money", "write_note"]
when = "tainted()"
do = "ask"
to = "carol"
why = "the run has read data from outside"

[[rule]]
id = "notes"
actions = ["write_note"]
do = "allow"

[[rule]]
id = "helpers-only-read"
actions = ["send_money", "write_note"]
when = "depth > 0"
do = "deny"
why = "helpers only read"

[[rule]]
id = "helpers"
actions = ["assistant"]
kinds = ["spawn"]
do = "allow"

[[rule]]
id = "code"
actions = ["run_code"]
do = "ask"
to = "carol"

[[budget]]
name = "actions-of-a-run"
scope = "run"
actions = 5
only = ["send_money", "write_note"]

[[trip]]
id = "does-not-take-no"
when = "denials > 3 in 1m"
halt = "agent"

[[limit]]
id = "helpers"
agents = ["assistant"]
max_depth = 2
max_children = 2
"""


@nl.decision(name="think")
async def think(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Obey: call each tool that the text names."""
    lines = [line.split(" ", 2) for line in text.splitlines() if line.startswith("DO ")]
    return [(tool, json.loads(arguments)) for _, tool, arguments in lines]


@nl.action(name="browse", reads_only=True, taint="web")
async def browse(url: str) -> str:
    """Read a page of the web."""
    return PAGES[url]


@nl.action(name="read_note", reads_only=True, taint="notes")
async def read_note(name: str) -> str:
    """Read what some run has noted: its author may have read anything."""
    return NOTES[name]


@nl.action(name="read_note_without_label", reads_only=True)
async def read_note_without_label(name: str) -> str:
    """Read the same, and say nothing of where it comes from."""
    return NOTES[name]


@nl.action(name="write_note")
async def write_note(name: str, text: str) -> str:
    """Note something for later runs."""
    DONE.append(("note", name))
    NOTES[name] = text
    return name


@nl.action(name="send_money", resumable=False)
async def send_money(to: str, cents: int) -> str:
    """Pay: this cannot be taken back."""
    DONE.append(("money", to, cents))
    return f"{cents} to {to}"


@nl.action(name="run_code", resumable=False)
async def run_code(code: str) -> str:
    """Execute what a model wrote."""
    DONE.append(("code", code))
    return "executed"


async def helper(task: str) -> str:
    """Let a child do it, and return what it has done."""
    child = await nl.spawn(assistant, task)
    return str(await child.result())


TOOLS: dict[str, Any] = {
    "browse": browse,
    "read_note": read_note,
    "read_note_without_label": read_note_without_label,
    "write_note": write_note,
    "send_money": send_money,
    "run_code": run_code,
    "helper": helper,
}


@nl.agent(name="assistant")
async def assistant(task: str) -> list[str]:
    """Do what a task says, and then what the answers of its tools say, and what the answers to that say."""
    said, todo = [], [task]
    while todo:
        for tool, arguments in await think(todo.pop(0)):
            try:
                answer = str(await TOOLS[tool](**arguments))
            except nl.Denied as no:
                answer = f"denied: {no.what}"
            said.append(answer)
            todo.append(answer)
    return said


def do(tool: str, **arguments: Any) -> str:
    """Return the line of a text that makes the assistant call a tool."""
    return f"DO {tool} {json.dumps(arguments)}\n"


class Office:
    """A store, and workers that the policy governs."""

    def __init__(self, home: Path, store: AnyStore) -> None:
        self.home, self.store, self.policy = home, store, home / "policy.toml"
        self.policy.write_text(POLICY, encoding="utf-8")
        for world in (DONE, PAGES, NOTES):
            world.clear()

    def runtime(self) -> nl.Runtime:
        """Return a worker."""
        return nl.Runtime(self.store, policy=str(self.policy))

    async def work(self, task: str = "", id: str = "run", agent: Any = assistant) -> str:
        """Give a task to a new worker, let it do all that can be done, and return what the run waits for."""
        async with self.runtime() as rt:
            if task or agent is not assistant:
                await rt.start(agent, *([task] if task else []), id=id)
            await rt.work(until_idle=True)
        row = self.store.read_run(id)
        assert row is not None
        return row.waits or row.state.value

    async def result(self, id: str = "run") -> Any:
        """Return what a run that has ended gave."""
        async with self.runtime() as rt:
            return await (await rt.get(id)).result(timeout=10)
