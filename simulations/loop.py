"""An asyncio event loop in virtual time: one per simulated process, all of them turned by one scheduler.

A loop never runs by itself. It tells the scheduler when it next wants a turn, and a turn is what
``_run_once`` is in CPython: timers that are due become ready, then everything that was ready at the start
runs. Between two turns of one loop others run, so processes interleave as they would on different machines,
yet always in the same order.

* **Time passes while code runs**: a turn costs `TURN_NS` plus `CALLBACK_NS` for each callback, times
  ``slowness``; the next turn of this loop waits for that. So a loop that never sleeps still cannot stop the
  clock, and a slow machine can be had.
* **Its clock** has an offset and a drift of its own, as the monotonic clocks of different machines have.
* **Pausing** a process (SIGSTOP) is not turning its loop.
* **Killing** it is harder than dropping it: a task that is dropped is closed by the garbage collector, which
  runs its ``finally`` blocks. So `kill` first makes the loop deaf (nothing that is scheduled any more ever
  runs), keeps every task, handle and generator alive, and `dispose` ends them after the run, when nothing
  they do has an effect.
* **Order**: tasks and futures are hashed by a serial number instead of their address, so sets of them
  (asyncio's own, in ``TaskGroup`` and ``wait``) have the same order in every run.

What would touch the real world raises `NotSimulated`, which names the call.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import sys
import threading
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any, Final, NoReturn, Protocol, TypeVar

from simulations.guards import Fence
from simulations.history import History
from simulations.scheduler import SECOND, Scheduler

T = TypeVar("T")

TURN_NS: Final = 5_000
CALLBACK_NS: Final = 1_000
"""A turn of CPython's loop costs a few microseconds, a callback about one; what it calls is not counted."""
CLOSES_MAX: Final = 1000
CANCELLED_TIMERS_MAX: Final = 100
"""More cancelled timers than this, if they are half of all, are swept, as BaseEventLoop does."""


@contextmanager
def outside_of_loops() -> Iterator[None]:
    """To be entered while loops are turned: each makes itself the running one and stays it after its turn;
    what was before is put back here, once for all their turns.
    """
    previous_loop = events._get_running_loop()
    previous_hooks = sys.get_asyncgen_hooks()
    events._set_running_loop(None)
    sys.set_asyncgen_hooks(_generator_began, _generator_dropped)
    try:
        yield
    finally:
        sys.set_asyncgen_hooks(*previous_hooks)
        events._set_running_loop(previous_loop)


_loops: Final[dict[int, SimLoop]] = {}
"""Whose an async generator is, by its id, from its first step to the end of its loop: hooks of each loop's
own would have to be set at each turn."""


def _generator_began(generator: Any) -> None:
    loop = events._get_running_loop()
    if isinstance(loop, SimLoop):
        _loops[id(generator)] = loop
        loop._asyncgen_firstiter_hook(generator)


def _generator_dropped(generator: Any) -> None:
    loop = _loops.pop(id(generator), None)
    if loop is not None:
        loop._asyncgen_finalizer_hook(generator)


class NotSimulated(NotImplementedError):
    """The call reaches outside of the simulation; the message says which."""


class SimTask(asyncio.Task[T]):
    """A task whose hash is its serial number."""

    def __init__(self, coro: Any, *, loop: SimLoop, **options: Any) -> None:
        self._serial = loop.scheduler.next_serial()  # first: asyncio hashes the task while it is being made
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._serial


class SimFuture(asyncio.Future[T]):
    """A future whose hash is its serial number."""

    def __init__(self, *, loop: SimLoop) -> None:
        self._serial = loop.scheduler.next_serial()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial


class SimHandle(events.Handle):
    """A handle that is made in one call: asyncio's asks its loop whether that is in debug mode."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: Sequence[Any], loop: SimLoop, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class SimTimer(events.TimerHandle):
    """The same for a timer, which is in its loop's heap from the beginning."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: SimLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = not loop.dead  # its cancel() tells _timer_handle_cancelled

    def __lt__(self, other: events.TimerHandle) -> bool:
        return self._when < other._when  # type: ignore[attr-defined, no-any-return]


class Machine(Protocol):
    """What a loop needs of the process it belongs to: its name, its network and where to report."""

    @property
    def name(self) -> str: ...

    @property
    def fence(self) -> Fence:
        """Closed while code under test runs."""

    @property
    def history(self) -> History:
        """Where turns are written down."""

    def exits(self, error: SystemExit) -> None:
        """Code of the process called ``sys.exit``: the process is over."""

    def failed(self, context: dict[str, Any]) -> None:
        """A callback or a forgotten task raised; asyncio would have logged this context."""

    def job_ns(self) -> int:
        """How long the next job of a worker thread takes to be done."""


class SimLoop(asyncio.BaseEventLoop):
    """The event loop of one life of one simulated process.

    It has slots, some for what its base class sets: an object with this many attributes in a dict is slow to
    read, and no other is read more often.
    """

    __slots__ = (
        "_asked",
        "_asked_ns",
        "_busy_until_ns",
        "_clock_offset_ns",
        "_clock_resolution",
        "_closed",
        "_drift_ppb",
        "_fence",
        "_first_timer",
        "_first_timer_ns",
        "_left_ns",
        "_name",
        "_note",
        "_parked",
        "_paused",
        "_ready",
        "_scheduled",
        "_stopped_jobs",
        "_thread_id",
        "_time",
        "_time_ns",
        "_timer_cancelled_count",
        "_turning",
        "_wakes",
        "dead",
        "machine",
        "scheduler",
        "silent",
        "slowness",
    )

    # BaseEventLoop's own, which typeshed does not show.
    _closed: bool
    _ready: deque[Any]
    _scheduled: list[Any]
    _asyncgens: Any
    _thread_id: int | None
    _timer_cancelled_count: int
    _check_closed: Callable[[], None]
    _asyncgen_firstiter_hook: Any

    def __init__(
        self, scheduler: Scheduler, machine: Machine, *, clock_offset_ns: int = 0, drift_ppb: int = 0
    ) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.machine = machine
        self._fence = machine.fence
        self._note = machine.history.note
        self._name = machine.name
        self.slowness = 1.0
        self.dead = False
        self.silent = False
        self._paused = False
        self._clock_offset_ns = clock_offset_ns
        self._drift_ppb = drift_ppb
        self._busy_until_ns = 0
        self._left_ns = 0  # of what it was computing when it was paused
        self._wakes: set[int] = set()  # looked up only, never iterated
        self._asked: Any = None  # the timer for which a turn was asked last, and when that is
        self._asked_ns = 0
        self._first_timer: Any = None
        self._first_timer_ns = 0
        self._time_ns = -1
        self._time = 0.0
        self._thread_id = threading.get_ident()  # it is running all the time, as its programs see it
        self._turning = False
        self._parked: list[Any] = []
        self._stopped_jobs: list[Callable[[], None]] = []
        # Timers are compared in floats of seconds; a nanosecond is above their error for the first months.
        self._clock_resolution = 1e-9
        self.set_debug(False)

    # --- the clock

    def time(self) -> float:
        """This process' monotonic clock, in seconds; it stands still during a turn."""
        now_ns = self.scheduler.now_ns
        if now_ns != self._time_ns:
            self._time_ns = now_ns
            self._time = (now_ns + now_ns * self._drift_ppb // SECOND + self._clock_offset_ns) / SECOND
        return self._time

    def set_drift(self, ppb: int) -> None:
        """Let the clock gain so much from now on; it goes on from where it stands."""
        local_ns = self._local_ns(self.scheduler.now_ns)
        self._drift_ppb = ppb
        self._clock_offset_ns += local_ns - self._local_ns(self.scheduler.now_ns)
        self._time_ns = -1
        self._first_timer = self._asked = None
        self._ask_for_turn()

    def _local_ns(self, world_ns: int) -> int:
        return world_ns + world_ns * self._drift_ppb // SECOND + self._clock_offset_ns

    def _world_ns(self, when: float) -> int:
        """The first instant at which ``time()`` is at least ``when``."""
        drift_ppb = self._drift_ppb
        local_ns = math.ceil(when * SECOND) - self._clock_offset_ns
        world_ns = local_ns * SECOND // (SECOND + drift_ppb)
        while world_ns + world_ns * drift_ppb // SECOND < local_ns:
            world_ns += 1
        return world_ns

    # --- turns

    @property
    def paused(self) -> bool:
        return self._paused

    def pause(self) -> None:
        """Take no turns until `resume`; timers and arrivals pile up, and what it computes waits too."""
        if not self._paused:
            self._paused = True
            self._left_ns = max(0, self._busy_until_ns - self.scheduler.now_ns)

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._busy_until_ns = self.scheduler.now_ns + self._left_ns
        jobs, self._stopped_jobs = self._stopped_jobs, []
        for job in jobs:
            self.scheduler.after(self.machine.job_ns(), job)
        self._ask_for_turn()

    def when_resumed(self, job: Callable[[], None]) -> None:
        """Do it when the process runs again, as a thread of it would."""
        self._stopped_jobs.append(job)

    def stall(self, ns: int) -> None:
        """Take no turn for so long, as if a callback computed all that time."""
        if self._paused:
            self._left_ns += ns
            return
        self._busy_until_ns = max(self._busy_until_ns, self.scheduler.now_ns) + ns

    def _ask_for_turn(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        due_ns = self._busy_until_ns
        if not ready:
            while scheduled and scheduled[0]._cancelled:
                self._timer_cancelled_count -= 1
                heapq.heappop(scheduled)._scheduled = False
            if not scheduled:
                return
            timer = scheduled[0]
            if timer is self._asked:
                return
            if timer is not self._first_timer:
                self._first_timer = timer
                self._first_timer_ns = self._world_ns(timer._when)
            if due_ns < self._first_timer_ns:
                due_ns = self._first_timer_ns
        if self.dead or self._paused:
            return
        scheduler = self.scheduler
        if due_ns < scheduler.now_ns:
            due_ns = scheduler.now_ns
        if not ready:
            self._asked, self._asked_ns = timer, due_ns
        if due_ns not in self._wakes:
            self._wakes.add(due_ns)
            scheduler.at(due_ns, self._woken, due_ns)

    def _woken(self, due_ns: int) -> None:
        self._wakes.discard(due_ns)
        if due_ns == self._asked_ns:
            self._asked = None
        if self.dead or self._paused:
            return
        if self._busy_until_ns <= self.scheduler.now_ns:
            self._iterate()
        else:
            self._ask_for_turn()

    def _iterate(self) -> None:
        """``_run_once``: timers that are due become ready, what is ready has its turn, and the next turn is
        asked for."""
        scheduled, ready = self._scheduled, self._ready
        if scheduled and (
            scheduled[0] is not self._first_timer or self._first_timer_ns <= self.scheduler.now_ns
        ):
            if self._timer_cancelled_count > CANCELLED_TIMERS_MAX:
                self._sweep_timers()
                scheduled = self._scheduled
            end = self.time() + self._clock_resolution
            while scheduled and scheduled[0]._when < end:
                handle = heapq.heappop(scheduled)
                handle._scheduled = False
                if handle._cancelled:
                    self._timer_cancelled_count -= 1
                else:
                    ready.append(handle)
        if ready:
            self._turn(ready)
            scheduled = self._scheduled
        if ready or not scheduled or scheduled[0] is not self._asked:
            self._ask_for_turn()

    def _turn(self, ready: deque[Any]) -> None:
        """Run what is ready now, with this loop as the running one; see `outside_of_loops`."""
        fence = self._fence
        fence.closed = True
        self._turning = True
        events._set_running_loop(self)
        callbacks = len(ready)
        try:
            for _ in range(callbacks):
                if not ready:
                    break  # it was killed by one of its own callbacks
                handle = ready.popleft()
                if not handle._cancelled:
                    try:  # Handle._run, without the call
                        handle._context.run(handle._callback, *handle._args)
                    except KeyboardInterrupt:
                        raise
                    except SystemExit as error:
                        self.machine.exits(error)
                    except BaseException as error:  # whatever a callback raises is reported, as asyncio does
                        self._report(handle, error)
            handle = None  # a traceback may hold this frame, which would hold the task that raised
        finally:
            self._turning = False
            fence.closed = False
            now_ns = self.scheduler.now_ns
            self._busy_until_ns = now_ns + int((TURN_NS + CALLBACK_NS * callbacks) * self.slowness)
        self._note((now_ns, self._name, "turn", callbacks))

    def _report(self, handle: events.Handle, error: BaseException) -> None:
        callback = handle._callback  # type: ignore[attr-defined]
        what = getattr(callback, "__qualname__", type(callback).__name__)  # asyncio's has addresses and paths
        self.call_exception_handler(
            {"message": f"Exception in callback {what}", "exception": error, "handle": handle}
        )

    def _sweep_timers(self) -> None:
        """As BaseEventLoop does, if the cancelled ones are most."""
        if self._timer_cancelled_count * 2 <= len(self._scheduled):
            return
        kept = []
        for handle in self._scheduled:
            if handle._cancelled:
                handle._scheduled = False
            else:
                kept.append(handle)
        heapq.heapify(kept)
        self._scheduled = kept
        self._timer_cancelled_count = 0

    # --- scheduling: as in BaseEventLoop, and then a turn is asked for

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.Handle:
        if self._closed:
            self._check_closed()
        handle = SimHandle(callback, args, self, context)
        if self.dead:
            self._parked.append(handle)
            return handle
        self._ready.append(handle)
        if not self._turning:
            self._ask_for_turn()
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.Handle:
        """There is one thread."""
        return self.call_soon(callback, *args, context=context)

    def run_soon(self, handle: events.Handle) -> None:
        """Let a callback run at the next turn. Its maker may keep it and hand it in again, as a selector's
        loop does whenever a socket has become readable."""
        if self.dead:
            self._parked.append(handle)
            return
        self._ready.append(handle)
        if not self._turning:
            self._ask_for_turn()

    def run_now(self, handle: events.Handle) -> None:
        """As `run_soon`, for what happens to a process from outside: if it is idle and nothing else happens
        at this instant, it has its turn in this call, which saves the way through the scheduler.

        Only for actions of the scheduler, and as the last thing they do."""
        if self.dead:
            self._parked.append(handle)
            return
        self._ready.append(handle)
        scheduler, scheduled = self.scheduler, self._scheduled
        now_ns = scheduler.now_ns
        heap = scheduler.heap
        if self._busy_until_ns > now_ns or self._paused or (heap and heap[0][0] <= now_ns):
            self._ask_for_turn()
        elif scheduled and (scheduled[0] is not self._first_timer or self._first_timer_ns <= now_ns):
            self._iterate()
        else:
            self._turn(self._ready)
            if self._ready or not scheduled or scheduled[0] is not self._asked:
                self._ask_for_turn()

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        if self._closed:
            self._check_closed()
        handle = SimTimer(when, callback, args, self, context)
        if self.dead:
            self._parked.append(handle)
            return handle
        heapq.heappush(self._scheduled, handle)
        if not self._turning:
            self._ask_for_turn()
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **_options: Any,
    ) -> asyncio.Task[T]:
        """Make a task. Eager start is not simulated: it would change the order between Python versions."""
        self._check_closed()
        task_name = None if name is None else str(name)
        return SimTask(coro, loop=self, name=task_name, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run the function a little later, in no thread and with no loop running, whatever the executor."""
        self._check_closed()
        future = self.create_future()

        def job() -> None:
            if self.dead or future.cancelled():
                return
            if self._paused:
                self.when_resumed(job)
                return
            previous_loop = events._get_running_loop()
            events._set_running_loop(None)
            fence = self._fence
            fenced, fence.closed = fence.closed, True
            try:
                result = func(*args)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # whatever it is belongs to the caller
                future.set_exception(error)
            else:
                future.set_result(result)
            finally:
                fence.closed = fenced
                events._set_running_loop(previous_loop)

        self.scheduler.after(self.machine.job_ns(), job)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""

    # --- errors and ends

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.silent:
            self.machine.failed(context)

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        self._asyncgens.discard(agen)
        if not self.dead:
            self.create_task(agen.aclose())

    def kill(self, *, silent: bool = True) -> None:
        """The process is gone: nothing of it runs any more, and nothing of it is cleaned up.

        ``silent``: what the collector finds of it later is no failure, unlike after an end of its own will.
        """
        if self.dead:
            return
        self.silent = silent
        self._parked.extend(asyncio.all_tasks(self))
        self._parked.extend(self._asyncgens)
        self._parked.extend(self._ready)
        self._parked.extend(self._scheduled)
        self._ready.clear()
        self._scheduled.clear()
        self.dead = True

    def dispose(self) -> None:
        """After the run: end what the dead process left, now that nothing it does has an effect."""
        self.kill()
        self.silent = True
        parked = [item for item in self._parked if isinstance(item, asyncio.Task)]
        tasks = sorted({*parked, *asyncio.all_tasks(self)}, key=hash)
        previous_loop = events._get_running_loop()
        previous_hooks = sys.get_asyncgen_hooks()
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(None, self._asyncgen_finalizer_hook)
        fence = self._fence
        escapes, fence.closed = len(fence.escapes), True  # what ends here may not touch the real world either
        try:
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close_quietly(task.get_coro())
            self._parked.clear()
            self._first_timer = self._asked = None
        finally:
            fence.closed = False
            del fence.escapes[escapes:]  # of dead code, and the run is over
            sys.set_asyncgen_hooks(*previous_hooks)
            events._set_running_loop(previous_loop)
            for number in [number for number, loop in _loops.items() if loop is self]:
                del _loops[number]
        self._thread_id = None
        super().close()

    # --- what BaseEventLoop leaves to its children

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector here."""

    def _process_events(self, event_list: Any) -> None:
        """There is no selector, so there are no events of one."""

    def close(self) -> None:
        self._not_simulated("close: a simulated process ends when its main coroutine returns")

    def stop(self) -> None:
        self._not_simulated("stop: a simulated process ends when its main coroutine returns")

    def run_forever(self) -> NoReturn:
        self._not_simulated("run_forever: the world turns this loop")

    def run_until_complete(self, future: Any) -> NoReturn:
        self._not_simulated("run_until_complete: the world turns this loop")

    def _not_simulated(self, call: str) -> NoReturn:
        raise NotSimulated(f"the event loop of simulated process {self.machine.name} has no {call}")


def innermost(coroutine: Any) -> Any:
    """The last unfinished coroutine in the chain of those that await each other."""
    while getattr(inner := getattr(coroutine, "cr_await", None), "cr_frame", None) is not None:
        coroutine = inner
    return coroutine


def _close_quietly(coroutine: Any) -> None:
    """Run the ``finally`` blocks; whatever they raise, the process has been dead for long.

    From the inside out, and again where a clean-up awaits: a coroutine that is dropped while it
    does would complain at a time of the collector's choosing.
    """
    for _ in range(CLOSES_MAX):
        if coroutine.cr_frame is None:
            return
        try:
            innermost(coroutine).close()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            continue


def _fence(name: str) -> Callable[..., NoReturn]:
    def refuse(self: SimLoop, *_arguments: object, **_options: object) -> NoReturn:
        self._not_simulated(name)

    refuse.__name__ = name
    return refuse


FENCED: Final = (
    "add_reader remove_reader add_writer remove_writer add_signal_handler remove_signal_handler "
    "sock_accept sock_connect sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into sock_sendall "
    "sock_sendfile sock_sendto connect_read_pipe connect_write_pipe subprocess_exec subprocess_shell "
    "create_datagram_endpoint connect_accepted_socket sendfile start_tls getnameinfo set_default_executor"
).split()
for _name in FENCED:
    setattr(SimLoop, _name, _fence(_name))
