"""Shows where the interpreter's time goes in a simulated message, by counting instead of timing:

    python -m tests.simulations.bytecodes --brokers 10

An idle mesh beats for some seconds, and every bytecode is counted by its function. The counts are the same on
every machine, busy or not (of one version of Python), so two versions of the code can be told apart by a part
in a thousand. They exclude the cost of C functions and of memory: see `mesh bench simulate` for that.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from types import CodeType, FrameType
from typing import Any

from mesh.bench.simulate import beating
from simulations.world import World


def count(world: World, seconds: float) -> tuple[Counter[CodeType], Counter[CodeType]]:
    """Let time pass; return how many bytecodes and calls of each function that took."""
    bytecodes: Counter[CodeType] = Counter()
    calls: Counter[CodeType] = Counter()

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            bytecodes[frame.f_code] += 1
        elif event == "call":
            calls[frame.f_code] += 1
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return trace

    sys.settrace(trace)
    try:
        world.run_for(seconds)
    finally:
        sys.settrace(None)
    return bytecodes, calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--brokers", type=int, default=10, help="how many there are (default 10)")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="virtual seconds that are counted (default 10)"
    )
    parser.add_argument(
        "--functions", type=int, default=40, help="how many functions are listed (default 40)"
    )
    asked = parser.parse_args()
    with beating(asked.brokers) as world:
        before = world.history.counts["data"]
        bytecodes, calls = count(world, asked.seconds)
        messages = world.history.counts["data"] - before
    print(
        f"{messages} messages: {bytecodes.total() / messages:.0f} bytecodes and "
        f"{calls.total() / messages:.1f} calls of functions in Python each"
    )
    for code, number in bytecodes.most_common(asked.functions):
        place = f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"
        print(f"{number / messages:8.1f} in {calls[code] / messages:5.2f} calls  {code.co_qualname}  {place}")


if __name__ == "__main__":
    main()
