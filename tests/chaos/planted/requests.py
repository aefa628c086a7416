"""Requests with and without their action's key, from within, and by another program."""

import os
import subprocess
import sys
import urllib.request

import ninelives as nl

SHOP = os.environ.get("SHOP_URL", "")
PROGRAM = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], b'receipt').read()"


def post(path: str, body: str, **headers: str) -> int:
    """Send something to the shop."""
    request = urllib.request.Request(f"{SHOP}/{path}", body.encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return int(answer.status)


@nl.decision
def ask(question: str) -> int:
    return post("model", question)


@nl.action
def charge(cents: int) -> int:
    return post("charges", str(cents), **{"Idempotency-Key": nl.key()})


@nl.action
def notify(text: str) -> int:
    return post("mails", text)  # MISTAKE


@nl.action
def receipt() -> int:
    command = [sys.executable, "-c", PROGRAM, f"{SHOP}/receipts"]
    return subprocess.run(command, check=True).returncode  # MISTAKE too


@nl.agent
def keyed() -> int:
    return ask("how much?") + charge(1200)


@nl.agent
def keyless() -> int:
    return charge(1200) + notify("it is on its way")


@nl.agent
def by_program() -> int:
    return receipt()
