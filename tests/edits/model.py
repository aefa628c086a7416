"""The rules of step identity in one page: what must become of a run under edited code.

Every line of execution goes on for as long as what it asks for is on record: under one of the step's names,
with the same arguments, claimed by nobody else. Where all have come to rest, decisions and reads are asked
afresh; when none is left, an effect may begin if every effect on record was claimed, or is forgotten on
purpose; else the run diverges. Waits come last. A turn may end only where an effect might begin; the next one
has nothing on record. A start of what must not be repeated, without an outcome, that nobody claims by the end
is put before a person.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from tests.edits.journal import STRAY, Past
from tests.edits.meaning import Ask, Fork, Line, Stand, given, walk
from tests.edits.programs import Call, Choice, Mapped, Program, nodes


class Fate(StrEnum):
    """What becomes of a run."""

    GOES_ON = "goes on"
    DIVERGES = "diverges"
    ESCALATES = "escalates"


class Prediction(Struct, frozen=True):
    """What must become of a run. `is_hidden`: that lies behind something fresh, which `check` does not do.

    `is_open`: it depends on which of two records a call claims, which of two waits is over first, or whether
    a child that is not on record is asked for again.
    """

    fate: Fate
    is_hidden: bool
    is_open: bool = False
    missed: tuple[Past, ...] = ()


class _Thread:
    def __init__(self, line: Line, parent: _Thread | None) -> None:
        self.line, self.parent = line, parent
        self.children = 0
        self.value: str | None = None
        self.asked: Ask | None = None
        self.start: Past | None = None


def predict(program: Program, pasts: tuple[Past, ...], stand: Stand) -> Prediction:
    """Say what must become of a run with this on record."""
    own = [past for past in pasts if not past.is_childs and past.turn == stand.turn]
    expected, *others = (
        _Model(program, stand, list(own), outcomes_first=first, backwards=backwards).run()
        for first in (True, False)
        for backwards in (False, True)
    )
    is_open = any(one.fate is not expected.fate for one in others) or any(
        past.name == STRAY for past in pasts
    )
    return replace(expected, is_open=True) if is_open else expected


class _Model:
    def __init__(
        self, program: Program, stand: Stand, pasts: list[Past], *, outcomes_first: bool, backwards: bool
    ) -> None:
        self._outcomes_first = outcomes_first
        self._next = -1 if backwards else 0  # which of several branches is the first to claim a record
        self._program, self._unclaimed = program, pasts
        self._ready = [_Thread(walk(program, {}, stand), None)]
        self._blocked: list[_Thread] = []
        self._is_hidden = False
        self._delivered = 0
        self._is_turn_over = False
        self._depends = False  # on which of several waits is over first

    def run(self) -> Prediction:
        while True:
            while self._ready:
                self._advance(self._ready.pop(self._next))
            if not self._blocked:
                if self._is_turn_over and self._missed():
                    return self._expect(Fate.DIVERGES)
                starts = [past for past in self._unclaimed if past.is_open and past.is_protected]
                if not starts:
                    return self._expect(Fate.GOES_ON)
                return replace(self._expect(Fate.ESCALATES), missed=tuple(starts))
            reads = [one for one in self._blocked if not _is_effect(one) and not _is_wait(one)]
            effects = [one for one in self._blocked if _is_effect(one)]
            if reads:
                self._release(reads)
            elif effects:
                if self._missed() or any(self._is_weaker(one) for one in effects):
                    return self._expect(Fate.DIVERGES)
                return self._expect(Fate.GOES_ON)
            else:
                self._depends |= len(self._blocked) > 1 and bool(self._missed())
                self._release(self._blocked)

    def _expect(self, fate: Fate) -> Prediction:
        return Prediction(fate, self._is_hidden, is_open=self._depends, missed=tuple(self._missed()))

    def _advance(self, thread: _Thread) -> None:
        try:
            asked = thread.line.send(thread.value)  # type: ignore[arg-type]
        except StopIteration:
            parent = thread.parent
            if parent is not None:
                parent.children -= 1
                if not parent.children:
                    self._ready.append(parent)
            return
        thread.value = ""
        if isinstance(asked, Fork):
            thread.children = len(asked.lines)
            self._ready += [_Thread(line, thread) for line in asked.lines]
            if not asked.lines:
                self._ready.append(thread)
            return
        thread.asked = asked
        if asked.what == "turn":
            self._is_turn_over = True
            return
        if asked.what == "patched":
            thread.value = "yes" if self._is_patched(asked.name) else ""
            self._ready.append(thread)
            return
        found = self._claim(asked)
        if found is not None and not found.is_open:
            thread.value = given(asked)
            self._delivered = max(self._delivered, found.seq)
            self._ready.append(thread)
        else:
            thread.start = found
            self._blocked.append(thread)

    def _is_patched(self, name: str) -> bool:
        """Return whether a run has not come past this point: nothing is on record behind it."""
        known = [past for past in self._unclaimed if past.name == f"patched:{name}"]
        if known:
            self._unclaimed.remove(known[0])
            return not known[0].is_no
        return not self._missed() and not any(past.seq > self._delivered for past in self._unclaimed)

    def _claim(self, asked: Ask) -> Past | None:
        """Claim what is on record: an outcome before a start, or the other way round."""
        names = (asked.name,) if asked.what != "step" else (asked.decl.name, *asked.decl.aliases)
        has_arguments = asked.what == "step" or asked.name == "child"
        same = [
            past
            for past in self._unclaimed
            if past.name in names and (not has_arguments or (past.to, past.n) == (asked.to, asked.n))
        ]
        found = min(same, key=lambda past: past.is_open is self._outcomes_first, default=None)
        if found is not None:
            self._unclaimed.remove(found)
        return found

    def _release(self, threads: list[_Thread]) -> None:
        self._is_hidden = True
        for thread in list(threads):
            assert thread.asked is not None
            thread.value = given(thread.asked)
            self._blocked.remove(thread)
            self._ready.append(thread)

    def _missed(self) -> list[Past]:
        forgets = self._program.forgets
        return [past for past in self._unclaimed if self._counts(past) and past.name not in forgets]

    def _counts(self, past: Past) -> bool:
        """Return whether a record counts as an effect: as it says itself, else as its name is declared now.

        A name that nobody declares any more counts: records of the first schema do not say what they are.
        """
        if past.says_kind or not past.lineage:
            return past.is_effect
        used = {node.step for node in nodes(self._program.block) if isinstance(node, Call | Mapped | Choice)}
        known = [one for one in self._program.decls.values() if past.name in (one.name, *one.aliases)]
        return past.is_effect or not any(one.lineage in used for one in known)

    def _is_weaker(self, thread: _Thread) -> bool:
        """Return whether what was started with care would be started again without."""
        start, asked = thread.start, thread.asked
        if start is None or not start.is_open or asked is None or asked.decl.kind == "once":
            return False
        return start.is_protected or (start.has_key and not asked.decl.key)


def _is_effect(thread: _Thread) -> bool:
    return thread.asked is not None and thread.asked.what == "step" and thread.asked.decl.is_effect


def _is_wait(thread: _Thread) -> bool:
    return thread.asked is not None and thread.asked.what == "wait"
