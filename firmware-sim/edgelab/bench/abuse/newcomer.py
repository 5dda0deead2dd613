"""A client that connects from 127.0.0.2 again and again while a gateway is attacked, in a process of its own.

It is started as `python -m edgelab.bench.abuse.newcomer PORT`, with a user's name in front of each number if the word
`users` follows. `go` on standard input makes it begin, `halt` end; the answer to that is one JSON object: how often it
tried, how often it was not let in, and how long the slowest CONNECT took.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from typing import Final

from edgelab.bench import packets
from edgelab.bench.abuse.share_attacks import NEWCOMER_ADDRESS, PASSWORD, connect, user_name
from edgelab.bench.client import HOST

INTERVAL_S: Final = 0.1
"""Between two tries."""
PATIENCE_S: Final = 5.0


def try_once(port: int, greeting: bytes) -> tuple[bool, float]:
    """Connect once. Whether that was accepted, and how long it took, in seconds."""
    began = time.monotonic()
    try:
        with socket.create_connection((HOST, port), PATIENCE_S, (NEWCOMER_ADDRESS, 0)) as line:
            line.sendall(greeting)
            is_in = line.recv(4) == packets.CONNACK_ACCEPTED
            line.sendall(packets.DISCONNECT)
    except OSError:
        is_in = False
    return is_in, time.monotonic() - began


def main(port: int, has_users: bool) -> None:
    """Do as told until standard input ends."""
    number = 0
    for line in iter(sys.stdin.readline, ""):
        if line.strip() != "go":
            print(json.dumps({}), flush=True)
            continue
        print(json.dumps({}), flush=True)
        tries, refused, slowest = 0, 0, 0.0
        while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
            number += 1
            greeting = connect(f"newcomer-{number}")
            if has_users:
                greeting = connect(f"newcomer-{number}", user=user_name(number), password=PASSWORD)
            is_in, took_s = try_once(port, greeting)
            tries, refused, slowest = tries + 1, refused + (not is_in), max(slowest, took_s)
        sys.stdin.readline()  # `halt`
        print(json.dumps({"tries": tries, "refused": refused, "slowest_s": slowest}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), "users" in sys.argv[2:])
