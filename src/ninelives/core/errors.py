"""The error tree. Every message says what happened, to which run and step, and what to do next.

    NineLivesError
    ├── UsageError            the call was wrong; nothing was done
    │   ├── UnknownAgent      no agent of that name is registered
    │   ├── UnknownRun        no run has that id
    │   ├── DuplicateName     two agents or steps claim one name
    │   ├── NotSerializable   a value cannot be stored and come back equal
    │   ├── BadName           an id, key or name that cannot be used (also a ValueError)
    │   ├── IdConflict        the run id exists with other arguments
    │   ├── KeyConflict       the business key was used with other arguments
    │   ├── RunFinished       the run has ended and accepts nothing any more
    │   │   └── RunMoved      the run was moved to another store, and accepts nothing here
    │   ├── StaleAnswer       the inbox item was answered or closed, or has changed
    │   ├── StaleDocument     another process has changed the document
    │   ├── BadFile           an export that was cut or changed, or that is none of ours
    │   └── NoRun             a step was called outside a run
    ├── StoreError
    │   ├── StoreUnavailable  nothing was written; the same call may work later
    │   │   └── StoreAway     no server answers at that address, or it is not ready yet
    │   ├── StoreUnsafe       the store cannot keep our promises here; refused
    │   ├── StoreBroken       a write may or may not be durable; this process must end
    │   ├── BadRecord         the store refused one batch for its content
    │   ├── SchemaMismatch    the data was written by another version
    │   └── Corrupt           what was read is not what was written
    │       └── KeyMissing    it is encrypted with a key that this process lacks
    ├── ReplayError
    │   └── Divergence        the code calls a step that the journal contradicts
    ├── ActionError
    │   ├── StepFailed        a step failed for good
    │   ├── InDoubt           it may or may not have happened
    │   └── Denied            a person or a policy said no
    ├── RunError
    │   ├── RunFailed · RunCancelled · RunEscalated · BudgetExceeded
    │   └── PolicyFailed      a policy could not judge a call; a person decides
    ├── StaleResource         a resource that the run holds is gone or has changed
    ├── IllegalTransition     a change of state that is not in the table
    ├── TimedOut              (also a TimeoutError)
    └── LeaseLost             this process no longer owns what it works on
    Permanent · Transient · NotDone    raised by users' code to classify a failure

`InvariantViolation` is a BaseException: no `except Exception` may swallow it; the process ends.
"""

from __future__ import annotations

from ninelives.core.step_ids import step_text


class NineLivesError(Exception):
    """Root of all errors raised by Nine Lives."""

    def __init__(
        self,
        what: str,
        *,
        run: str | None = None,
        step: str | None = None,
        path: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what, self.run, self.step, self.path, self.remedy = what, run, step, path, remedy

    def __str__(self) -> str:
        named = (("run", self.run), ("step", step_text(self.step) if self.step is not None else None))
        parts = [f"{label} {value!r}" for label, value in named if value is not None]
        if self.path is not None:
            parts.append(f"at {self.path}")
        where = f" ({', '.join(parts)})" if parts else ""
        return f"{self.what}{where}" + (f". {self.remedy}" if self.remedy else "")


class UsageError(NineLivesError):
    """The call was wrong; nothing was done."""


class UnknownAgent(UsageError):
    """No agent of that name is registered."""


class UnknownRun(UsageError):
    """No run has that id."""


class DuplicateName(UsageError):
    """Two agents or steps claim one name."""


class NotSerializable(UsageError):
    """A value cannot be stored and come back equal; `path` leads to it."""


class BadName(UsageError, ValueError):
    """An id, key or name that cannot be used."""


class IdConflict(UsageError):
    """The run id exists with another agent or other arguments."""


class KeyConflict(UsageError):
    """The business key was used with another action or other arguments."""


class RunFinished(UsageError):
    """The run has ended and accepts nothing any more."""


class RunMoved(RunFinished):
    """The run was moved to another store, or is on its way there, and accepts nothing here."""


class StaleAnswer(UsageError):
    """The inbox item was answered, closed, or its action has changed since it was shown."""


class StaleDocument(UsageError):
    """The document has another version than the write expects: another process has changed it."""


class BadFile(UsageError):
    """A file that should be an export was cut or changed, or is none; nothing of it was used."""


class NoRun(UsageError):
    """A step was called outside a run while a runtime is open."""


class StoreError(NineLivesError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """Nothing was written; the same call may work later."""


class StoreAway(StoreUnavailable):
    """No server answers at that address, or it is not ready yet: waiting may help."""


class StoreUnsafe(StoreError):
    """The store cannot keep our promises here, so it is refused."""


class StoreBroken(StoreError):
    """A write may or may not be durable (a failed sync): never retried, the process ends."""


class BadRecord(StoreError):
    """The store refused a batch for its content; none of it was written."""


class SchemaMismatch(StoreError):
    """The data was written by another version of the schema."""


class Corrupt(StoreError):
    """What was read is not what was written. `seq` is the first bad record, if known."""

    seq: int | None = None


class KeyMissing(Corrupt):
    """Something is encrypted with a key that this process lacks, or was not encrypted for its place."""


class ReplayError(NineLivesError):
    """A run cannot be replayed."""


class Divergence(ReplayError):
    """The code calls a step that the journal contradicts.

    `where` is the line that calls it, and `difference` that of the arguments, where these are known.
    """

    def __init__(self, what: str, *, where: str = "", difference: str = "", **known: str | None) -> None:
        super().__init__(what, **known)
        self.where, self.difference = where, difference


class ActionError(NineLivesError):
    """A step did not return its result."""


class StepFailed(ActionError):
    """A step failed for good."""


class InDoubt(ActionError):
    """A non-resumable action may or may not have happened."""


class Denied(ActionError):
    """A person or a policy said no."""


class RunError(NineLivesError):
    """A run ended without a result."""


class RunFailed(RunError):
    """The run failed."""


class RunCancelled(RunError):
    """The run was cancelled."""


class RunEscalated(RunError):
    """The run waits for a person to settle something."""


class BudgetExceeded(RunError):
    """The run has used up its budget."""


class PolicyFailed(RunError):
    """A policy could not judge a call; nothing of the call was done."""


class StaleResource(NineLivesError):
    """A resource that the run holds open (`resource`) is gone, or has changed."""

    resource: object = None


class IllegalTransition(NineLivesError):
    """A change of state that is not in the table."""


class TimedOut(NineLivesError, TimeoutError):
    """Time ran out."""


class LeaseLost(NineLivesError):
    """This process no longer owns what it works on."""


class Transient(Exception):
    """Raise to say: this failure is temporary, try again. `retry_after_seconds` is honoured."""

    def __init__(self, *args: object, retry_after_seconds: float | None = None) -> None:
        super().__init__(*args)
        self.retry_after_seconds = retry_after_seconds


class Permanent(Exception):
    """Raise to say: trying again will not help."""


class NotDone(Exception):
    """Raise in a non-resumable action to say: it is proved that nothing was done."""


class InvariantViolation(BaseException):
    """A bug in Nine Lives itself. Nothing may catch this; the process ends."""
