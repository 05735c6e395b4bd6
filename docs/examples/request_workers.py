"""Requests and replies: workers factorize numbers, and whoever asks gets the answer of one of them.

    python request_workers.py work             # as many as you like, at any broker
    python request_workers.py ask 91 97 600851475143

A request goes to one worker, the nearest first. If that worker dies, the one who asks is told at once and
asks again: factorizing twice does no harm. If nobody works, that is told at once, too.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from mesh import Client, MeshError, NoResponders, Unknown

TOPIC = "math.factors"
WINDOW = 4
"""Requests that a worker has in hand; further ones wait at its broker."""
TRIES = 3
WAIT_S = 10.0


def factors(number: int) -> list[int]:
    """The prime factors of a number from 2 on, the smallest first."""
    found, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found


async def work(client: Client) -> None:
    """Answer one request after the other, until cancelled."""
    async with client.subscribe(TOPIC, answers=True, window=WINDOW) as questions:
        print("subscribed", flush=True)
        async for question in questions:
            try:
                number = int(question.body)
                if not 2 <= number < 10**15:
                    raise ValueError(f"{number} is not from 2 to 10^15")
            except ValueError as error:
                question.drop(str(error))  # the one who asks gets this sentence
                continue
            # In a thread: the client's event loop goes on, or its broker would take it for dead.
            found = await asyncio.to_thread(factors, number)
            question.done(" ".join(map(str, found)).encode())


async def ask(client: Client, number: int) -> list[int]:
    """The factors of a number. Raises `MeshError` if no worker answers."""
    for attempt in range(1, TRIES + 1):
        try:
            answer = await client.request(TOPIC, str(number).encode(), timeout=WAIT_S)
        except Unknown:  # the worker, or a broker on the way, was lost meanwhile
            if attempt == TRIES:
                raise
        else:
            return [int(word) for word in answer.split()]
    raise AssertionError("not reached")


async def main(arguments: argparse.Namespace) -> None:
    async with Client(arguments.url) as client:
        if arguments.do == "work":
            await work(client)
            return
        # All at once: workers share them.
        answers = await asyncio.gather(*(ask(client, number) for number in arguments.numbers))
        for number, found in zip(arguments.numbers, answers, strict=True):
            print(f"{number} = {' * '.join(map(str, found))}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Workers that answer requests.")
    parser.add_argument("do", choices=["work", "ask"])
    parser.add_argument("numbers", nargs="*", type=int)
    parser.add_argument("--url", help="the broker; by default the local one")
    try:
        asyncio.run(main(parser.parse_args()))
    except NoResponders:
        sys.exit("request_workers: nobody works: python request_workers.py work")
    except MeshError as error:
        sys.exit(f"request_workers: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
