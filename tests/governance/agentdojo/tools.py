"""AgentDojo's tools as actions of Nine Lives.

A tool that changes something is a non-resumable action. Any other one only reads, and what it returns is
from outside, but for a few that return nothing but the user's own data.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # type: ignore[import-not-found]

import ninelives as nl
from tests.governance.agentdojo.scenes import SCENES

CHANGES = frozenset(
    {
        "add_calendar_event_participants",
        "add_user_to_channel",
        "append_to_file",
        "cancel_calendar_event",
        "create_calendar_event",
        "create_file",
        "delete_email",
        "delete_file",
        "invite_user_to_slack",
        "post_webpage",
        "remove_user_from_slack",
        "reschedule_calendar_event",
        "reserve_car_rental",
        "reserve_hotel",
        "reserve_restaurant",
        "schedule_transaction",
        "send_channel_message",
        "send_direct_message",
        "send_email",
        "send_money",
        "share_file",
        "update_password",
        "update_scheduled_transaction",
        "update_user_info",
    }
)
REQUESTS = frozenset({"get_webpage"})
"""Reads that a stranger's computer notices: counted as side effects."""
OWN = frozenset({"get_balance", "get_current_day", "get_iban", "get_user_info", "get_user_information"})
EFFECTS = CHANGES | REQUESTS
TAINT = "outside"


def declare(tools: Iterable[Any]) -> dict[str, Any]:
    """Declare tools as actions; return them by name."""
    found = {tool.name: tool for tool in tools}
    return {name: _declared(tool) for name, tool in found.items()}


def arguments(tool: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call, with defaults, in the types of the tool."""
    return dict(tool.parameters.model_validate(given).model_dump())


def _declared(tool: Any) -> Any:
    name = tool.name

    async def call(**given: Any) -> str:
        one = SCENES[nl.info().run]
        result, error = one.tools.run_function(one.environment, name, given)
        one.done(name, given, is_refused=error is not None)
        return str(error if error is not None else tool_result_to_str(result))

    fields = tool.parameters.model_fields.items()
    call.__name__ = call.__qualname__ = name
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=field.annotation)
            for key, field in fields
        ],
        return_annotation=str,
    )
    call.__annotations__ = {key: field.annotation for key, field in fields} | {"return": str}
    if name in CHANGES:
        return nl.action(resumable=False)(call)
    return nl.action(reads_only=True, taint=None if name in OWN else TAINT)(call)
