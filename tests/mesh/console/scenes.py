"""Pictures of ``mesh top``: ``python -m tests.mesh.console.scenes FOLDER`` writes each state as SVG."""

from __future__ import annotations

import math
import sys
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from mesh.console.control import Control
from mesh.console.history import History
from mesh.console.screen import Asked, Screen
from mesh.picture import Picture, compose
from tests.mesh.console.statuses import NAMES, broker_id, changed, link, member, row, status

STEPS = 120


def at(name: str, place: int, step: int, **changes: Any) -> dict[str, Any]:
    """A broker's figures after some seconds: a load that swells and falls."""
    wave = 1 + 0.6 * math.sin(step / 9 + place)
    published = int(120_000 + 900 * step * (1 + place / 3))
    totals = {"published": published, "delivered": 4 * published, "dropped": 0, "msgs_in": 0, "msgs_out": 0}
    rates = {
        "published_s": 900 * wave,
        "delivered_s": 3600 * wave,
        "msgs_in_s": 1800 * wave,
        "msgs_out_s": 4500 * wave,
        "bytes_in_s": 230_000 * wave,
        "bytes_out_s": 580_000 * wave,
    }
    late = {"late_ms_p50": 0.2, "late_ms_max": 1.5 + wave}
    fields = {"totals": totals, "rates": rates, "loop": late, "uptime_s": 800.0 + step}
    return status(name, **(fields | changes))


def mesh(
    names: tuple[str, ...], step: int, dead: tuple[str, ...] = (), sides: tuple[tuple[str, ...], ...] = ()
) -> list[dict[str, Any]]:
    """All that live, with links to all that live on their side."""
    answers = []
    for place, name in enumerate(names):
        if name in dead:
            continue
        side = next((side for side in sides if name in side), names)
        members = []
        for number, other in enumerate(names):
            gone = other in dead or other not in side
            pair = abs(place - number)
            its = link(0.3 + 0.1 * pair + 0.05 * math.sin(step / 5 + pair), msgs_in=1000 * step, lost=0)
            members.append(
                member(
                    other,
                    "dead" if gone else "alive",
                    is_self=other == name,
                    url=f"tcp://10.0.0.{number + 1}:7770",
                    link=None if gone or other == name else its,
                )
            )
        answers.append(at(name, place, step, members=members))
    return answers


def calm(step: int) -> list[dict[str, Any]]:
    return mesh(NAMES, step)


def death(step: int) -> list[dict[str, Any]]:
    if step < 80:
        return mesh(NAMES, step)
    answers = mesh(NAMES, step, dead=("beta",))
    for place, answer in enumerate(answers):
        name = answer["name"]
        answer["events"] = [
            row(
                name,
                1,
                "link",
                f"09:01:02.{place}00000",
                peer=broker_id("beta"),
                dir="in",
                state="down",
                reason="reset",
            ),
            changed(name, 2, f"09:01:03.{place}00000", "beta", "alive", "suspect", "missed 1"),
            changed(name, 3, f"09:01:05.{place}00000", "beta", "suspect", "dead", "missed 3"),
        ]
    return answers


def partition(step: int) -> list[dict[str, Any]]:
    """As the first side sees it: nobody on the other side answers."""
    sides = (("alpha", "beta", "gamma"), ("delta", "epsilon"))
    if step < 80:
        return mesh(NAMES, step)
    _, there = sides
    answers = mesh(NAMES, step, dead=there, sides=sides)
    for answer in answers:
        answer["events"] = [
            changed(answer["name"], number, "09:01:05.000000", other, "suspect", "dead", "missed 3 rounds")
            for number, other in enumerate(there)
        ]
    return answers


def overload(step: int) -> list[dict[str, Any]]:
    answers = mesh(NAMES, step)
    if step >= 60:
        answers[2]["totals"]["dropped"] = 400 * (step - 60)
        answers[2]["loop"] = {"late_ms_p50": 80.0, "late_ms_max": 12_400.0}
        answers[2]["journal"] = {"failing": None, "share": 0.86, "filling": True, "duplicates": 3}
        answers[2]["queues"] = [{"name": "mail", "waiting": 48_210, "oldest_s": 812.0, "consumers": 0}]
    return answers


def forty(step: int) -> list[dict[str, Any]]:
    names = tuple(f"broker-{number:02d}" for number in range(1, 41))
    answers = mesh(names, step, dead=("broker-17",) if step >= STEPS - 20 else ())
    for answer in answers:
        for one, other in (("broker-03", "broker-29"), ("broker-08", "broker-11")):
            if answer["name"] in (one, other):
                for each in answer["members"]:
                    if each["name"] in (one, other):
                        each["link"] = None
    return answers


STATES = {"calm": calm, "death": death, "partition": partition, "overload": overload, "forty": forty}
CLIENTS = [
    {
        "id": broker_id(name),
        "broker": name,
        "clients": [
            {
                "kind": "session",
                "name": f"{role}-{number}",
                "client": f"{number:016x}",
                "principal": "sensors",
                "address": f"tcp://10.1.0.{number}:4{number:04}",
                "published": 1200 * number,
                "waiting": 310 if number == 3 else 0,
                "under_way": number,
                "dropped": 0,
                "subscriptions": 1,
                "patterns": ["telemetry.#"],
                "patterns_count": 1,
            }
            for number, role in enumerate(("reader", "writer", "desk", "gateway"))
        ],
        "count": 4,
    }
    for name in NAMES
]


def seen(state: str, steps: int = STEPS) -> tuple[Picture, History]:
    """The last picture of a state, and what was before."""
    past, before = History(), list[dict[str, Any]]()
    step = 10 if state == "forty" else 1
    for number in range(0, steps, step):
        answers = STATES[state](number)
        picture = compose(answers, before, [] if state != "death" or number < 80 else ["beta"])
        past.add(picture, float(number))
        before = answers
    return picture, past


def drawn(state: str, width: int, height: int, keys: tuple[str, ...] = ()) -> str:
    """An SVG of a state after some keys."""
    picture, past = seen(state)
    console = Console(
        file=StringIO(),
        record=True,
        width=width,
        height=height,
        force_terminal=True,
        color_system="truecolor",
    )
    control = Control()
    for key in keys:
        screen = Screen(picture, "09:02:07Z", "", past=past, control=control, asked=Asked(CLIENTS))
        control.press(key, screen.listing(width, height))
    console.print(
        Screen(picture, "09:02:07Z", "", past=past, control=control, asked=Asked(CLIENTS)), height=height
    )
    return console.export_svg(title=f"mesh top: {state}")


SCENES: dict[str, tuple[str, int, int, tuple[str, ...]]] = {
    **{state: (state, 80, 24, ()) for state in STATES},
    **{f"{state}-wide": (state, 150, 45, ()) for state in STATES},
    "broker": ("overload", 100, 30, ("down", "down", "down", "enter")),
    "links": ("death", 100, 30, ("l", "down")),
    "link": ("death", 100, 24, ("l", "down", "enter")),
    "clients": ("calm", 120, 30, ("c", "down", "down")),
    "matrix": ("forty", 100, 50, ("x",)),
    "sorted": ("forty", 80, 24, ("s", "s", "s", "end")),
    "help": ("calm", 80, 24, ("?",)),
    "narrow": ("death", 20, 12, ()),
}


def main(folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, (state, width, height, keys) in SCENES.items():
        (Path(folder) / f"{name}.svg").write_text(drawn(state, width, height, keys))


if __name__ == "__main__":
    main(sys.argv[1])
