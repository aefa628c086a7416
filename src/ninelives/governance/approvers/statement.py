"""The text that a person signs: which item of which store, what it shows, the answer, and until when.

It is made from the item and the answer, by the command before signing and by the worker again before it
takes the answer. So what is signed is what the item shows, and nothing of the text itself is trusted: if
anything differs (another item, run, store, changed arguments, another verdict), no signature fits.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from msgspec import UNSET

from ninelives.core.clock import moment_text
from ninelives.core.journal.answers import Answer, Signed, read_item_body
from ninelives.core.model.inbox import Item

_FORMAT = 1


def statement(store: str, item: Item, answer: Answer, by: str, signed: Signed) -> bytes:
    """Return the text for a person's answer to an item of the store with that id; its signature is not used.

    Raises Corrupt when we did not write the item.
    """
    body = read_item_body(item)
    found: dict[str, Any] = {
        "ninelives answer": _FORMAT,
        "store": store,
        "run": item.run,
        "step": item.step,
        "item": item.id,
        "kind": item.kind,
        "to": item.to,
        "question": body.what,
        "arguments": {name: json.loads(bytes(value)) for name, value in body.arguments.items()},
        "key": body.key,
        "digest": item.digest.hex(),
        "answer": answer.says,
        "note": answer.note,
        "by": by,
        "at": moment_text(signed.at_ms),
        "until": moment_text(signed.until_ms),
    }
    if answer.value is not UNSET:
        found["value"] = json.loads(bytes(answer.value))
    # ASCII: what is shown on any terminal is all that there is, no marks that reverse or hide text.
    return (json.dumps(found, indent=2, ensure_ascii=True) + "\n").encode("ascii")


def moment_ms(text: str) -> int:
    """Return the time that `moment_text` wrote. Raises ValueError."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)
