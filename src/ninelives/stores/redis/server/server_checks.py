"""What a server must be to keep our promises, checked on each new connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from redis.exceptions import RedisError

from ninelives.core.errors import StoreAway, StoreUnavailable, StoreUnsafe
from ninelives.stores.redis.server.address import Address
from ninelives.stores.redis.server.connection import ConnectionLost, ServerConnection

_LEAST_VERSION = 7
_SETTINGS = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory", "maxmemory-policy")


Risks = Mapping[str, tuple[str, str]]
"""Unsafe settings: by the name of the risk, what it is, and what to do about it."""
REPLICAS_REMEDY = "Connect replicas that run with appendonly yes, or take replicas= out of the URL"


class Server(Struct, frozen=True):
    """What a server reported about itself when a connection was opened.

    `history` identifies its lineage of data; no other server shares it. `risks` are those that the URL
    accepts, each with what to do about it. If there are any, the server either `confirms` on request that
    important writes are synced, or is `lossy`, which says why.
    """

    history: str = ""
    risks: dict[str, str] = {}
    confirms: bool = False
    lossy: str | None = None


def check(connection: ServerConnection, address: Address) -> Server:
    """Check what a server reports about itself.

    Raises StoreUnsafe that names what would lose acknowledged writes; StoreUnavailable while it loads, or if
    it is a replica.
    """
    try:
        information, settings = connection.ask([("INFO",), ("CONFIG", "GET", *_SETTINGS)])
    except ConnectionLost as error:
        raise StoreAway("Redis: the server closes the connection, or is not ready yet") from error
    if isinstance(information, RedisError):
        raise StoreUnsafe(
            f"Redis does not report what it is: {information}", remedy="Let the user run INFO on the server"
        )
    said = _lines(information)
    version = said.get("valkey_version") or said.get("redis_version", "0")
    if int(version.partition(".")[0]) < _LEAST_VERSION:
        raise StoreUnsafe(f"Redis {version} is too old", remedy="Use Redis 7 or newer, or Valkey")
    if said.get("role") != "master":
        raise StoreUnavailable(
            "the server is a replica: nothing can be written to it", remedy="Name the primary"
        )
    if said.get("loading", "0") != "0":  # until then it reports that it keeps no log
        raise StoreAway("Redis: the server still loads its log", remedy="Wait until it has")
    risks = _risks(settings, said)
    _refuse(risks, address)
    history = said.get("master_replid") or said.get("run_id", "")
    if not risks and not address.replicas:
        return Server(history)
    return _judged(connection, history, risks, address.replicas, int(said.get("connected_slaves", "0")))


def _judged(connection: ServerConnection, history: str, risks: Risks, wanted: int, connected: int) -> Server:
    """Return what a server with risks or required replicas can still promise. Raises ConnectionLost."""
    found = {f"the server runs with {what}": remedy for what, remedy in risks.values()}
    if connected < wanted:
        what = f"the URL says replicas={wanted}, and the server has {connected}"
        found[f"{what}: intents, keys and ends of runs wait for them"] = REPLICAS_REMEDY
    (answer,) = connection.ask([(b"WAITAOF", 1, wanted, 1)])
    if isinstance(answer, list) and "eviction" not in risks:
        return Server(history, found, confirms=True)
    why = "; ".join(what for what, _ in risks.values()) or f"no log to sync: {answer}"
    return Server(history, found, lossy=f"the server runs with {why}")


def _lines(information: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in information.decode(errors="replace").splitlines())
    return {name: value for name, _, value in pairs}


def _risks(settings: Sequence[bytes] | RedisError, said: Mapping[str, str]) -> Risks:
    """Return what is not safe."""
    found: dict[str, tuple[str, str]] = {}
    no_log = "appendonly no: a restart loses what it has acknowledged", "Set appendonly yes"
    if said.get("aof_enabled") == "0":
        found["appendonly"] = no_log
    if isinstance(settings, RedisError) or not settings:
        found["config"] = (
            f"settings that it does not report ({settings or 'none'})",
            "Let the user run CONFIG GET",
        )
        return found
    have: dict[str, Any] = dict(
        zip((one.decode() for one in settings[::2]), (one.decode() for one in settings[1::2]), strict=True)
    )
    if have.get("appendonly") != "yes":
        found["appendonly"] = no_log
    if have.get("appendfsync") != "always":
        late = f"appendfsync {have.get('appendfsync')}: a crash loses what it has acknowledged"
        found["appendfsync"] = late, "Set appendfsync always"
    elif have.get("no-appendfsync-on-rewrite") != "no":
        found["appendfsync"] = (
            "no-appendfsync-on-rewrite yes: a crash while it rewrites its log loses what it has acknowledged",
            "Set no-appendfsync-on-rewrite no",
        )
    if have.get("maxmemory") != "0" and have.get("maxmemory-policy") != "noeviction":
        found["eviction"] = (
            f"maxmemory-policy {have.get('maxmemory-policy')}: it drops keys when its memory is full",
            "Set maxmemory-policy noeviction",
        )
    return found


def _refuse(risks: Risks, address: Address) -> None:
    for risk, (what, remedy) in risks.items():
        if risk not in address.unsafe:
            raise StoreUnsafe(
                f"the server runs with {what}",
                remedy=f"{remedy}, or add unsafe={risk} to the URL if losses are acceptable",
            )
