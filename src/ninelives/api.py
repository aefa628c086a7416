"""Every public name of `import ninelives as nl`, listed once.

`ninelives/__init__.py` imports this module when a name is first used, so `import ninelives` stays fast.
The `as` repeats each name because that is how type checkers recognise a re-export.
"""

# ruff: noqa: PLC0414, A004

from ninelives import sync as sync
from ninelives.core.errors import ActionError as ActionError
from ninelives.core.errors import BudgetExceeded as BudgetExceeded
from ninelives.core.errors import Corrupt as Corrupt
from ninelives.core.errors import Denied as Denied
from ninelives.core.errors import Divergence as Divergence
from ninelives.core.errors import DuplicateName as DuplicateName
from ninelives.core.errors import IdConflict as IdConflict
from ninelives.core.errors import IllegalTransition as IllegalTransition
from ninelives.core.errors import InDoubt as InDoubt
from ninelives.core.errors import KeyConflict as KeyConflict
from ninelives.core.errors import LeaseLost as LeaseLost
from ninelives.core.errors import NineLivesError as NineLivesError
from ninelives.core.errors import NoRun as NoRun
from ninelives.core.errors import NotDone as NotDone
from ninelives.core.errors import NotSerializable as NotSerializable
from ninelives.core.errors import Permanent as Permanent
from ninelives.core.errors import ReplayError as ReplayError
from ninelives.core.errors import RunCancelled as RunCancelled
from ninelives.core.errors import RunError as RunError
from ninelives.core.errors import RunEscalated as RunEscalated
from ninelives.core.errors import RunFailed as RunFailed
from ninelives.core.errors import RunFinished as RunFinished
from ninelives.core.errors import SchemaMismatch as SchemaMismatch
from ninelives.core.errors import StaleAnswer as StaleAnswer
from ninelives.core.errors import StaleResource as StaleResource
from ninelives.core.errors import StepFailed as StepFailed
from ninelives.core.errors import StoreError as StoreError
from ninelives.core.errors import StoreUnavailable as StoreUnavailable
from ninelives.core.errors import StoreUnsafe as StoreUnsafe
from ninelives.core.errors import TimedOut as TimedOut
from ninelives.core.errors import Transient as Transient
from ninelives.core.errors import UnknownAgent as UnknownAgent
from ninelives.core.errors import UnknownRun as UnknownRun
from ninelives.core.errors import UsageError as UsageError
from ninelives.core.journal.approval import Approval as Approval
from ninelives.core.journal.output import Output as Output
from ninelives.core.journal.settlement import Happened as Happened
from ninelives.core.journal.settlement import NotHappened as NotHappened
from ninelives.core.journal.settlement import Unknown as Unknown
from ninelives.core.values.retry import Retry as Retry
from ninelives.engine.agent.basics import branch as branch
from ninelives.engine.agent.basics import gather as gather
from ninelives.engine.agent.basics import info as info
from ninelives.engine.agent.basics import key as key
from ninelives.engine.agent.basics import log as log
from ninelives.engine.agent.basics import map as map
from ninelives.engine.agent.basics import next_turn as next_turn
from ninelives.engine.agent.basics import now as now
from ninelives.engine.agent.basics import patched as patched
from ninelives.engine.agent.basics import progress as progress
from ninelives.engine.agent.basics import random as random
from ninelives.engine.agent.basics import uuid as uuid
from ninelives.engine.agent.chat_history import repair_history as repair_history
from ninelives.engine.agent.children import Child as Child
from ninelives.engine.agent.children import spawn as spawn
from ninelives.engine.agent.compensations import on_failure as on_failure
from ninelives.engine.agent.decorators import action as action
from ninelives.engine.agent.decorators import agent as agent
from ninelives.engine.agent.decorators import decision as decision
from ninelives.engine.agent.output import emit as emit
from ninelives.engine.agent.resources import Custom as Custom
from ninelives.engine.agent.resources import File as File
from ninelives.engine.agent.resources import GitBranch as GitBranch
from ninelives.engine.agent.resources import Held as Held
from ninelives.engine.agent.resources import Url as Url
from ninelives.engine.agent.resources import hold as hold
from ninelives.engine.agent.signals import receive as receive
from ninelives.engine.agent.timers import sleep as sleep
from ninelives.engine.agent.timers import sleep_until as sleep_until
from ninelives.engine.agent.timers import timeout as timeout
from ninelives.engine.step.question import ask as ask
from ninelives.runtime import InboxItem as InboxItem
from ninelives.runtime import Run as Run
from ninelives.runtime import Runtime as Runtime
from ninelives.runtime import run as run
