"""``mesh work``: the messages of a durable subscription, processed from a shell.

Each message is one run of a command, whose exit code tells the outcome. Without a command, messages are
printed, and settled once they are written out. SIGINT and SIGTERM make it leave in order, so that brokers
take no message for one that killed its consumer. The first signal lets running commands end. The second one
ends them, and their messages go to other consumers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import islice
from typing import Any, Final

from mesh.cli.documents import to_json
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.cli.messages import described
from mesh.cli.settings import NO_FLAGS, BrokerFlags, Count, Seconds, connected
from mesh.clients.arguments import after_problem
from mesh.clients.jobs import Job
from mesh.clients.work import Work
from mesh.clients.work_feeds import WORK_WINDOW, check_durable_name
from mesh.config import ClientConfig
from mesh.printable import printable
from mesh.topics import check_pattern

LATER: Final = 75
"""Exit code of a command whose message is to be tried again after ``--retry-after``: EX_TEMPFAIL."""
RETRY_AFTER_S: Final = 1.0
PROGRESS_S: Final = 10.0


def work(
    name: str,
    /,
    *patterns: str,
    exec: str | None = None,
    jobs: Count = None,
    window: Count = None,
    count: Count = None,
    retry_after: Seconds | None = None,
    json: bool = False,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Process the messages of a durable subscription: run a command for each, or print each.

    Parameters
    ----------
    name
        The durable subscription; all workers under one name share its messages.
    patterns
        Topics that it keeps. They make the subscription if it does not exist; without them it must exist.
    exec
        Shell command to run for each message, with its body on standard input and MESH_TOPIC, MESH_ATTEMPT,
        MESH_ID and MESH_SUBSCRIPTION in its environment. Exit code 0: the message is done. 75: it is tried
        again after --retry-after. Any other code, or a signal: it is tried again after a pause that doubles.
        After 20 attempts it becomes a dead letter.
    jobs
        Commands that run at the same time; default: 1. With --exec.
    window
        Most messages held and not settled; default: as many as --jobs, or 256 without --exec.
    count
        End after this many messages.
    retry_after
        Seconds until a message is tried again after its command ended with 75; default: 1. With --exec.
    json
        Print one JSON object a line: the outcome of each message, or the message itself without --exec. The
        output of commands goes to standard error then.
    """
    try:
        check_durable_name(name)
    except ValueError as error:
        raise CommandFailed(ExitCode.USAGE, str(error)) from error
    for pattern in patterns:
        check_pattern(pattern)
    if exec is not None and not exec.strip():
        raise CommandFailed(ExitCode.USAGE, "--exec is empty, and would do every message by doing nothing")
    if exec is None and (jobs is not None or retry_after is not None):
        flag = "--retry-after" if jobs is None else "--jobs"
        raise CommandFailed(ExitCode.USAGE, f"{flag} is for --exec, which is missing")
    problem = after_problem(retry_after or 0.0)
    if problem:
        raise CommandFailed(ExitCode.USAGE, f"--retry-after is {problem}")
    settings = flags.settings()
    if exec is None:
        return asyncio.run(_print(settings, name, patterns, window or WORK_WINDOW, count, json))
    slots = jobs or 1
    runner = Runner(exec, slots, count, RETRY_AFTER_S if retry_after is None else retry_after, json)
    return asyncio.run(_run(settings, name, patterns, window or slots, runner))


@asynccontextmanager
async def _attached(
    settings: ClientConfig, name: str, patterns: tuple[str, ...], window: int
) -> AsyncIterator[Work]:
    async with (
        connected(settings) as client,
        client.subscribe(*patterns, durable=name, window=window) as attached,
    ):
        _say(f"subscribed to {name} at {attached.home}, {attached.waiting} waiting")
        if attached.unreached:
            _say(f"not known yet at {', '.join(attached.unreached)}")
        yield attached


async def _print(
    settings: ClientConfig,
    name: str,
    patterns: tuple[str, ...],
    window: int,
    count: int | None,
    json: bool,
) -> int:
    async with _attached(settings, name, patterns, window) as attached:
        printing = asyncio.create_task(_print_all(attached, count, json))
        with _on_signal(printing.cancel):
            await asyncio.wait([printing])
        if not printing.cancelled():
            printing.result()
    return ExitCode.OK


async def _print_all(attached: Work, left: int | None, json: bool) -> None:
    async for batch in attached.batches():
        taken = list(islice(batch.jobs(), left))
        lines = [_as_json(job) if json else _as_text(job) for job in taken]
        sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()
        if left is not None and (left := left - len(taken)) <= 0:
            for job in taken:
                job.done()
            return
        batch.done()


@contextmanager
def _on_signal(act: Callable[[], object]) -> Iterator[None]:
    """Call back at each SIGINT and SIGTERM within the block."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _as_text(job: Job) -> bytes:
    return f"{job.topic} ".encode() + job.body + b"\n"


def _as_json(job: Job) -> bytes:
    document = {"id": job.id, "topic": job.topic, "attempt": job.attempt, **described(job.body, job.headers)}
    return to_json(document).encode() + b"\n"


async def _run(
    settings: ClientConfig, name: str, patterns: tuple[str, ...], window: int, runner: Runner
) -> int:
    async with _attached(settings, name, patterns, window) as attached:
        await runner.run(attached)
    return ExitCode.OK


class Runner:
    """Runs a command for each message of a durable subscription."""

    def __init__(self, command: str, jobs: int, count: int | None, retry_after_s: float, json: bool) -> None:
        self._command = command
        self._slots = asyncio.Semaphore(jobs)
        self._left = count
        self._retry_after_s = retry_after_s
        self._json = json
        self._commands: set[asyncio.Task[None]] = set()
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._ends = False
        """True once running commands are ended, too."""
        self._outcomes = {"done": 0, "retried": 0, "late": 0}
        self._told = ""

    async def run(self, work: Work) -> None:
        """Run until told to stop, or until it has taken as many messages as it should."""
        progress = asyncio.create_task(self._tell_progress())
        try:
            async with asyncio.TaskGroup() as group:
                taking = group.create_task(self._take(work, group))
                with _on_signal(lambda: self._stop(taking)):
                    await asyncio.wait([taking])
                    await asyncio.wait(self._commands or [taking])
        finally:
            progress.cancel()
            self._tell()

    async def _take(self, work: Work, group: asyncio.TaskGroup) -> None:
        """Start a command for each message as long as there is a slot."""
        while self._left is None or self._left > 0:
            await self._slots.acquire()
            job = await anext(work, None)
            if job is None:
                return
            if self._left is not None:
                self._left -= 1
            command = group.create_task(self._process(job, work.name))
            self._commands.add(command)
            command.add_done_callback(self._commands.discard)

    def _stop(self, taking: asyncio.Task[None]) -> None:
        """At the first signal take no more messages; at the next one end the running commands."""
        if not taking.done():
            taking.cancel()
            if self._running:
                count = len(self._running)
                _say(f"waits for {count} command{'' if count == 1 else 's'} to end; once more ends them")
        else:
            self._end_all()

    def _end_all(self) -> None:
        self._ends = True
        for process in self._running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # a shell and what it runs

    async def _process(self, job: Job, name: str) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            code: int | None = await self._execute(job, name)
        except OSError as error:
            _say(f"the command cannot be started: {error.strerror or error}")
            code = None
        finally:
            self._slots.release()
        if code != 0 and self._ends:
            return  # it was ended before it could report: other consumers get the message
        outcome = "retried"
        if code == 0:
            outcome = "done" if job.done() else "late"  # another consumer, or this one, may have it already
        elif code == LATER:
            job.retry(self._retry_after_s)
        else:
            job.retry()
        self._outcomes[outcome] += 1
        self._show(job, code, outcome, loop.time() - began)

    async def _execute(self, job: Job, name: str) -> int:
        """The command's exit code; negative for a signal. Raises OSError."""
        told = {
            "MESH_TOPIC": job.topic,
            "MESH_ATTEMPT": str(job.attempt),
            "MESH_ID": job.id,
            "MESH_SUBSCRIPTION": name,
        }
        process = await asyncio.create_subprocess_shell(
            self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=sys.stderr.fileno() if self._json else None,  # standard output is for the objects then
            env={**os.environ, **told},
            start_new_session=True,  # a Ctrl-C is this program's to deal with
        )
        self._running[process.pid] = process
        try:
            await process.communicate(job.body)
        except asyncio.CancelledError:
            self._end_all()
            raise
        finally:
            del self._running[process.pid]
        assert process.returncode is not None, "it has ended"
        return process.returncode

    def _show(self, job: Job, code: int | None, outcome: str, took_s: float) -> None:
        if self._json:
            document: dict[str, Any] = {
                "id": job.id,
                "topic": job.topic,
                "attempt": job.attempt,
                "exit": code,
                "outcome": outcome,
                "seconds": round(took_s, 3),
            }
            print(to_json(document), flush=True)
        elif outcome == "late":
            _say(f"{job.topic} {job.id} was done when its session was over, and comes again")
        elif outcome != "done":
            how = "no exit code" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"
            _say(f"{job.topic} {job.id} ended with {how} at attempt {job.attempt}, is tried again")

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            self._tell()

    def _tell(self) -> None:
        sentence = f"{self._outcomes['done']} done, {self._outcomes['retried']} to be tried again"
        if self._outcomes["late"]:
            sentence += f", {self._outcomes['late']} done too late"
        if sentence != self._told and any(self._outcomes.values()):
            self._told = sentence
            _say(sentence)


def _say(sentence: str) -> None:
    print(printable(f"mesh work: {sentence}"), file=sys.stderr, flush=True)
