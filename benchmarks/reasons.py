"""Where the time goes when a target is missed, and what the next design would be. From docs/decisions."""

from __future__ import annotations

STEP_ON_SQLITE = """\
A step's commit writes four pages to the log where the raw commit writes one, two of them for the run's row
(the fence) and the commit counter (the anchor). The time goes into those pages, their checksums, and the
sync of them; the engine's part is some 15 µs of CPU. Next: nothing that keeps the fence and the anchor; a
commit counter read off the last record would save one page, and one damaged page could then keep the whole
store from being opened ([decision 11](decisions/0011-the-hot-path.md), "Not done")."""

PIPELINED = """\
Decisions share commits, so that the disk is not what limits them: the interpreter is (coroutines,
fingerprint and encoding of each step, the committer beside them under the same lock). It was not profiled
on its own. Next: fewer coroutines for plain steps, as for W6."""

STEP_ON_POSTGRES = """\
Beyond the raw commit a step takes some 45 µs of the server, nearly all of it for the update of the run's row,
which is the fence and the witness of a lost tail; and 20 µs of ours, hot, which are 80 after each wait on a
machine that halts when it is idle. Next: a narrow table of heads (13 µs of the server). Not to be had: the
row out of the step (30 µs), which would give up the witness, and a busy loop instead of the wait ([decision
13](decisions/0013-postgresql-speed.md), "Not done")."""

STEPS_ON_POSTGRES = """\
Per step, the event loop takes about 33 µs and the committer about 20 µs, and both share one interpreter's
lock: their sum is the limit of one process, whatever the server could do. Next: two worker processes (W11
measures what they give where there are cores for them), or free-threaded Python ([decision
13](decisions/0013-postgresql-speed.md))."""

STEPS_ON_SQLITE = """\
A step among a hundred runs takes 55 to 70 µs of CPU: about 33 of the event loop (its coroutines, fingerprint
and encoding), the rest of the committer and SQLite, both under one interpreter's lock; the disk has time to
spare. Next: fewer coroutines for plain steps, or two worker processes, which W11 shows to give half as
much again on two cores ([decision 11](decisions/0011-the-hot-path.md))."""

SHORT_RUNS = """\
A run of one step took 255 µs of CPU, about 100 of them the engine's; the rest is its creation, claim, load
and end in the store, a few statements per batch ([decision 11](decisions/0011-the-hot-path.md), "Many runs
at once"). No next design has been tried."""

REPLAY = """\
Each recorded step is still taken by the program: three coroutines, its place, its fingerprint, and the
record verified and decoded. Next: replay without coroutines for plain steps, whose recorded result is
handed to the caller at once ([decision 11](decisions/0011-the-hot-path.md), "A single branch")."""

IMPORT = """\
`import ninelives` loads the rest when it is first used, so that the import and the process to its finished
run belong together. With bytecode cached, asyncio and msgspec with typing_extensions are about half of what
is loaded for a run (25 and 20 ms where it was profiled), our own modules the rest. Next: fewer of ours for a
run of one step."""

ONE_TURN = """\
Time: each call looks at all messages, to see that none was changed in place (0.1 to 0.2 ms for 400 of 1
KiB); what is new is hashed and written. Size: three messages to a page of 4 KiB, 600 bytes of each page
empty; larger pages would fill better and double what a lone commit writes ([decision
11](decisions/0011-the-hot-path.md), "A list that grows", "Trees")."""

HANDED_ON = """\
Each `next_turn` writes and reads a snapshot of the whole conversation, so an exchange costs what there is
by then: linear in the conversation by nature. Its items are shared between snapshots, so 400 messages take
some 1.4 MB, and not the square of their number. Hand on when a turn has become long, not after every
exchange."""
