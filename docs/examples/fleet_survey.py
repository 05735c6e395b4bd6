"""A survey of a fleet: ask all machines how they are, and see which of them did not answer.

    python fleet_survey.py agent --name truck-7        # on each machine
    python fleet_survey.py ask                         # on yours

Nobody keeps a list of the machines: whoever is subscribed is asked. One that is known and stays silent is
named, so "no answer" and "not there" are different things.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable

from mesh import Client, MeshError

TOPIC = "fleet.state"
DEADLINE_S = 2.0
"""How long the survey waits for those who are slow."""


def state() -> dict[str, float]:
    """How this machine is; yours knows more."""
    disk = shutil.disk_usage("/")
    return {"load": os.getloadavg()[0], "disk_free": disk.free / disk.total, "clock": time.time()}


async def agent(client: Client, look: Callable[[], dict[str, float]] = state) -> None:
    """Answer each survey until cancelled."""
    async with client.subscribe(TOPIC, answers=True) as questions:
        print("subscribed", flush=True)
        async for question in questions:
            try:
                question.done(json.dumps(look()).encode())
            except OSError as error:  # the one who asks is told why there is no answer
                question.drop(str(error))


async def ask(client: Client) -> list[str]:
    """Ask all agents; returns the lines of a report."""
    result = await client.survey(TOPIC, deadline=DEADLINE_S)
    lines = []
    for answer in sorted(result.answers, key=lambda answer: answer.responder):
        known = json.loads(answer.body)
        lines.append(
            f"{answer.responder:<16} at {answer.broker:<12}"
            f" load {known['load']:5.2f}   disk {known['disk_free']:4.0%} free"
        )
    lines += [f"{name:<16} did not answer" for name in sorted(result.missing)]
    lines += [f"{refusal}" for refusal in sorted(result.refused)]
    lines.append(f"{len(result.answers)} of {result.asked} answered")
    return lines


async def main(arguments: argparse.Namespace) -> None:
    # The name is what the survey shows.
    async with Client(arguments.url, name=arguments.name) as client:
        if arguments.do == "agent":
            await agent(client)
        else:
            print("\n".join(await ask(client)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A survey of a fleet.")
    parser.add_argument("do", choices=["agent", "ask"])
    parser.add_argument("--name", default=socket.gethostname(), help="of this machine")
    parser.add_argument("--url", help="the broker; by default the local one")
    try:
        asyncio.run(main(parser.parse_args()))
    except MeshError as error:
        sys.exit(f"fleet_survey: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
