"""The events of the demonstration: traffic, one kill, one pause, five leaves.

Each step waits for what the brokers see, and never only for a length of time.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

from mesh.demo.federation import NAMES, Federation
from mesh.demo.traffic import Tally, Traffic
from mesh.demo.verdict import Event

VICTIM, SLEEPER = "beta", "delta"
CALM_S = 4.0
PAUSE_S = 7.0
"""Several deadlines: the others declare a paused broker dead after three missed surveys."""
VIEW_TIMEOUT_S = 15.0

Say = Callable[[str], None]


async def run_faults(federation: Federation, say: Say) -> tuple[list[Event], Tally]:
    """Run traffic over the whole mesh with one kill and one pause; returns the events and the outcome of the
    traffic."""
    done: list[Event] = []
    alive = dict.fromkeys(NAMES, "alive")
    await federation.wait_for_view(alive, NAMES, VIEW_TIMEOUT_S)
    say("all five brokers know each other; each was told of one other at most")
    traffic = Traffic({name: member.url for name, member in federation.members.items()})
    async with asyncio.TaskGroup() as group:
        ready = asyncio.Event()
        task = group.create_task(traffic.run(ready))
        await ready.wait()
        say("five publishers and five subscribers run, one of each on every broker")
        await asyncio.sleep(CALM_S)
        done += await _kill_and_restart(federation, traffic, say)
        await asyncio.sleep(CALM_S)
        done += await _pause_and_continue(federation, traffic, say)
        await asyncio.sleep(CALM_S)
        traffic.stop_publishing()
        await asyncio.sleep(1.0)
        task.cancel()
    return done, traffic.tally()


async def _kill_and_restart(federation: Federation, traffic: Traffic, say: Say) -> list[Event]:
    others = tuple(name for name in NAMES if name != VICTIM)
    killed = time.time()
    federation.signal(VICTIM, signal.SIGKILL)
    say(f"{VICTIM} killed with SIGKILL")
    await federation.wait_for_view({VICTIM: "dead"}, others, VIEW_TIMEOUT_S)
    say(f"the others see {VICTIM} as dead, {time.time() - killed:.1f} s after the kill")
    process = federation.members[VICTIM].process
    assert process is not None
    await asyncio.to_thread(process.wait)
    back = time.time()
    await federation.start(VICTIM)
    await federation.wait_for_view(dict.fromkeys(NAMES, "alive"), NAMES, VIEW_TIMEOUT_S)
    say(f"{VICTIM} is back with a new boot and alive everywhere, {time.time() - back:.1f} s after its start")
    traffic.was_away(VICTIM, killed, time.time())
    return [Event("crash", VICTIM, killed), Event("start", VICTIM, back)]


async def _pause_and_continue(federation: Federation, traffic: Traffic, say: Say) -> list[Event]:
    others = tuple(name for name in NAMES if name != SLEEPER)
    paused = time.time()
    federation.signal(SLEEPER, signal.SIGSTOP)
    say(f"{SLEEPER} paused with SIGSTOP for {PAUSE_S:g} s")
    await federation.wait_for_view({SLEEPER: "dead"}, others, VIEW_TIMEOUT_S)
    say(f"the others see {SLEEPER} as dead, {time.time() - paused:.1f} s after the pause began")
    await asyncio.sleep(max(0.0, paused + PAUSE_S - time.time()))
    federation.signal(SLEEPER, signal.SIGCONT)
    back = time.time()
    await federation.wait_for_view(dict.fromkeys(NAMES, "alive"), NAMES, VIEW_TIMEOUT_S)
    say(f"{SLEEPER} refuted its death and is alive everywhere, {time.time() - back:.1f} s after SIGCONT")
    traffic.was_away(SLEEPER, paused, time.time())
    return [Event("pause", SLEEPER, paused), Event("resume", SLEEPER, back)]


async def leave(federation: Federation, say: Say) -> list[Event]:
    """Have all brokers leave by SIGTERM."""
    asked = await federation.leave_all()
    say("all five brokers left when asked by SIGTERM")
    return [Event("leave", name, at) for name, at in asked.items()]
