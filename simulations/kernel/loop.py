"""An asyncio event loop in virtual time: one per simulated process, all of them turned by one scheduler.

A loop never runs by itself. Its timers are actions of the scheduler. Callbacks that become ready, by a timer,
by bytes or by the loop's own code, wait for a turn. A turn is ``_run_once`` of CPython: everything that was
ready at the start runs, timers after the rest. An idle loop has it at once. Between two turns of one loop
others run, so processes interleave as on different machines, yet always in the same order.

* **Time passes while code runs**: a turn costs `TURN_NS` plus `CALLBACK_NS` for each callback, times
  ``slowness``; the next turn of this loop waits for that. So a loop that never sleeps cannot stop the clock,
  and a machine can be made slow.
* **Its clock** has a separate offset and drift, like the monotonic clocks of different machines.
* **Pausing** a process (SIGSTOP) means not turning its loop.
* **Killing** it is harder than dropping it: the garbage collector closes a dropped task, which runs its
  ``finally`` blocks. So `kill` first makes the loop deaf (nothing more that is scheduled ever runs) and keeps
  every task, handle and generator alive. `dispose` ends them after the run, when nothing they do has an
  effect.
* **Order**: tasks and futures are hashed by a serial number instead of their address. So sets of them
  (asyncio's own, in ``TaskGroup`` and ``wait``) have the same order in every run.

A call that would touch the real world raises `NotSimulated`, which names the call.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from math import ceil
from typing import Any, Final, NoReturn, Protocol, TypeVar

from simulations.kernel.guards import Fence
from simulations.kernel.history import History
from simulations.kernel.scheduler import SECOND, Scheduler

T = TypeVar("T")

_set_running_loop: Final = events._set_running_loop  # bound once: every turn goes through it
_blank: Final = object.__new__

TURN_NS: Final = 5_000
CALLBACK_NS: Final = 1_000
"""A turn of CPython's loop costs a few microseconds, a callback about one. The called code costs nothing."""
SHORT_TURN_NS: Final = TURN_NS + CALLBACK_NS
FOREVER_S: Final = 1e12
"""A timer that is due later than this never fires; asyncio sleeps forever until infinity."""
CLOSES_MAX: Final = 1000


@contextmanager
def outside_of_loops() -> Iterator[None]:
    """Enter this while loops are turned. Each loop makes itself the running one and stays so after its turn.

    At the end, the previous running loop is restored once for all their turns.
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
"""The owner of each async generator, by its id, from its first step to the end of its loop. Separate hooks
for each loop would have to be set at each turn.
"""


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
    """The call reaches outside the simulation; the message says which."""


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
    """The same for a timer, which waits in the scheduler from the beginning.

    `SimLoop.call_at` fills it in, which takes half the time of calling the class.
    """

    __slots__ = ()

    _context: Context
    _callback: Callable[..., object]
    _args: Sequence[Any]
    _loop: SimLoop
    _repr: str | None
    _source_traceback: Any
    _when: float
    _scheduled: bool

    def cancel(self) -> None:
        """It stays in the scheduler, as in asyncio, but is known to do nothing."""
        wanted = self._scheduled and not self._cancelled
        events.Handle.cancel(self)
        if wanted:
            self._loop.forget(self)


def _is_cancelled(_action: object, arguments: tuple[Any, ...]) -> bool:
    """True if an action of the scheduler is a cancelled timer."""
    return bool(arguments) and type(arguments[0]) is SimTimer and arguments[0]._cancelled


class Machine(Protocol):
    """A process as its loop sees it: its name, its network and where to report."""

    @property
    def name(self) -> str: ...

    @property
    def fence(self) -> Fence:
        """Closed while code under test runs."""

    @property
    def history(self) -> History:
        """The record of turns."""

    def exits(self, error: SystemExit) -> None:
        """Code of the process called ``sys.exit``: the process is over."""

    def failed(self, context: dict[str, Any]) -> None:
        """A callback or a forgotten task raised; asyncio would have logged this context."""

    def job_ns(self) -> int:
        """How long the next job of a worker thread takes."""


class SimLoop(asyncio.BaseEventLoop):
    """The event loop of one life of one simulated process.

    It has slots, some for attributes that its base class sets. An object with this many attributes in a dict
    is slow to read, and no other is read more often.
    """

    __slots__ = (
        "_asked_ns",
        "_busy_until_ns",
        "_clock_offset_ns",
        "_closed",
        "_due",
        "_endless",
        "_fence",
        "_left_ns",
        "_name",
        "_note",
        "_order_rng",
        "_parked",
        "_paused",
        "_polled",
        "_rate",
        "_ready",
        "_short_turn_ns",
        "_slowness",
        "_stopped_jobs",
        "_thread_id",
        "_time",
        "_time_ns",
        "_turning",
        "dead",
        "machine",
        "scheduler",
        "silent",
    )

    # An attribute of BaseEventLoop, which typeshed does not show.
    _closed: bool
    _ready: deque[Any]
    _asyncgens: Any
    _thread_id: int | None
    _check_closed: Callable[[], None]
    _asyncgen_firstiter_hook: Any

    def __init__(
        self,
        scheduler: Scheduler,
        machine: Machine,
        *,
        clock_offset_ns: int = 0,
        drift_ppb: int = 0,
        order_rng: random.Random | None = None,
    ) -> None:
        super().__init__()
        self._order_rng = order_rng
        self._polled: list[events.Handle] = []
        """Sockets that have become ready for the next turn, if their order is drawn."""
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
        self._rate = SECOND + drift_ppb  # nanoseconds of this clock in a second of the world's
        self._busy_until_ns = 0
        self._left_ns = 0  # of its computing when it was paused
        self._asked_ns = -1  # when it will have a turn, if one was requested
        self._due: list[SimTimer] = []  # came due while it could not run
        # Timers that never fire, by their id(): whatever waits for them may have no other owner.
        self._endless: dict[int, SimTimer] = {}
        self._time_ns = -1
        self._time = 0.0
        self._thread_id = threading.get_ident()  # its programs always see it as running
        self._turning = False
        self._parked: list[Any] = []
        self._stopped_jobs: list[Callable[[], None]] = []
        self.set_debug(False)

    # --- the clock

    def time(self) -> float:
        """This process's monotonic clock, in seconds; it stands still during a turn."""
        now_ns = self.scheduler.now_ns
        if now_ns != self._time_ns:
            self._time_ns = now_ns
            self._time = (now_ns * self._rate // SECOND + self._clock_offset_ns) / SECOND
        return self._time

    def set_drift(self, ppb: int) -> None:
        """Let the clock gain so much from now on; it continues from its present reading."""
        local_ns = self._local_ns(self.scheduler.now_ns)
        self._rate = SECOND + ppb
        self._clock_offset_ns += local_ns - self._local_ns(self.scheduler.now_ns)
        self._time_ns = -1
        self.scheduler.move(self._fire, lambda timer: self._world_ns(timer._when))

    def _local_ns(self, world_ns: int) -> int:
        return world_ns * self._rate // SECOND + self._clock_offset_ns

    def _world_ns(self, when: float) -> int:
        """The first instant at which ``time()`` is at least ``when``."""
        local_ns = ceil(when * SECOND) - self._clock_offset_ns
        return -(-local_ns * SECOND // self._rate)

    # --- turns

    @property
    def slowness(self) -> float:
        """How many times as long as usual its turns take."""
        return self._slowness

    @slowness.setter
    def slowness(self, factor: float) -> None:
        self._slowness = factor
        self._short_turn_ns = int(SHORT_TURN_NS * factor)

    @property
    def paused(self) -> bool:
        return self._paused

    def pause(self) -> None:
        """Take no turns until `resume`; timers, arrivals and computations wait."""
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
        """Call it when the process runs again, like a thread of it."""
        self._stopped_jobs.append(job)

    def stall(self, ns: int) -> None:
        """Take no turn for so long, as if a callback computed all that time."""
        if self._paused:
            self._left_ns += ns
            return
        self._busy_until_ns = max(self._busy_until_ns, self.scheduler.now_ns) + ns

    def _ask_for_turn(self) -> None:
        """Request a turn for ready callbacks, as soon as the loop can run."""
        if self.dead or self._paused or not (self._ready or self._due):
            return
        scheduler = self.scheduler
        turn_ns = self._busy_until_ns
        if turn_ns < scheduler.now_ns:
            turn_ns = scheduler.now_ns
        if turn_ns != self._asked_ns:
            self._asked_ns = turn_ns
            scheduler.at(turn_ns, self._woken)

    def _woken(self) -> None:
        now_ns = self.scheduler.now_ns
        if now_ns != self._asked_ns:
            return  # another turn was requested since
        self._asked_ns = -1
        if self._busy_until_ns > now_ns:
            self._ask_for_turn()
        elif not self.dead and not self._paused:
            self._turn()

    def _fire(self, timer: SimTimer) -> None:
        """A timer is due: it runs at once if it can."""
        if timer._cancelled:
            self.scheduler.unwanted -= 1
            return
        timer._scheduled = False
        if self.turn_of(timer, timer._context, timer._callback, timer._args):
            return
        if self.dead:
            self._parked.append(timer)
        else:
            self._due.append(timer)
            self._ask_for_turn()

    def _turn(self) -> None:
        """``_run_once``: run what is ready now, with this loop as the running one; see `outside_of_loops`."""
        ready, fence = self._ready, self._fence
        if self._polled:
            self._permute()
        if self._due:
            ready.extend(self._due)
            self._due.clear()
        callbacks = len(ready)
        fence.closed = self._turning = True
        _set_running_loop(self)
        try:
            for _ in range(callbacks):
                if not ready:
                    break  # one of its own callbacks killed it
                handle = ready.popleft()
                if not handle._cancelled:
                    try:  # Handle._run, without the call
                        handle._context.run(handle._callback, *handle._args)
                    except BaseException as error:
                        self._raised(handle, error)
            handle = None  # a traceback may hold this frame, which would hold the task that raised
        finally:
            self._turning = fence.closed = False
            now_ns = self.scheduler.now_ns
            self._busy_until_ns = now_ns + int((TURN_NS + CALLBACK_NS * callbacks) * self._slowness)
        self._note((now_ns, self._name, "turn", callbacks))
        if ready:
            self._ask_for_turn()

    def turn_of(self, handle: Any, context: Context, callback: Any, arguments: Sequence[Any]) -> bool:
        """Give the process a turn for one callback, the usual number. Only for actions of the scheduler.

        Returns False if it must wait (`run_soon`): the loop is busy, paused or dead, or another action is due
        at this instant and might share the turn.

        The handle's content is passed beside it: callers know the kind of their handle, and an attribute of
        objects of two kinds is slow to read.
        """
        scheduler = self.scheduler
        now_ns, heap = scheduler.now_ns, scheduler.heap
        if self._busy_until_ns > now_ns or self._paused or self.dead or (heap and heap[0][0] <= now_ns):
            return False
        fence = self._fence
        fence.closed = self._turning = True
        _set_running_loop(self)
        try:
            if arguments:
                context.run(callback, *arguments)
            else:  # in half the time
                context.run(callback)
        except BaseException as error:
            self._raised(handle, error)
        finally:
            handle = context = callback = arguments = None  # type: ignore[assignment]  # as in `_turn`
            self._turning = fence.closed = False
            self._busy_until_ns = now_ns + self._short_turn_ns
        note = self._note  # reading a slot is faster than calling it
        note((now_ns, self._name, "turn", 1))
        if self._ready:
            self._ask_for_turn()
        return True

    def _raised(self, handle: events.Handle, error: BaseException) -> None:
        """Report the exception of a callback, as asyncio does; only an interrupt is the user's."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        if isinstance(error, SystemExit):
            self.machine.exits(error)
        else:
            self._report(handle, error)

    def _report(self, handle: events.Handle, error: BaseException) -> None:
        callback = handle._callback  # type: ignore[attr-defined]
        what = getattr(
            callback, "__qualname__", type(callback).__name__
        )  # asyncio's text has addresses and paths
        self.call_exception_handler(
            {"message": f"Exception in callback {what}", "exception": error, "handle": handle}
        )

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
        """There is only one thread."""
        return self.call_soon(callback, *args, context=context)

    def run_soon(self, handle: events.Handle) -> None:
        """Run a callback at the next turn.

        Its maker may keep it and pass it again, as a selector's loop does whenever a socket has become
        readable.
        """
        if self.dead:
            self._parked.append(handle)
            return
        self._ready.append(handle)
        if self._order_rng is not None:
            self._polled.append(handle)
        if not self._turning:
            self._ask_for_turn()

    def _permute(self) -> None:
        """Sockets that are ready in one turn come in any order, as from a selector; all other callbacks keep
        their place.
        """
        assert self._order_rng is not None, "only then anything is noted"
        polled, self._polled = self._polled, []
        if len(polled) < 2:
            return
        known = {id(handle) for handle in polled}
        places = [place for place, handle in enumerate(self._ready) if id(handle) in known]
        handles = [self._ready[place] for place in places]
        self._order_rng.shuffle(handles)
        for place, handle in zip(places, handles, strict=True):
            self._ready[place] = handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        if self._closed:
            self._check_closed()
        timer = _blank(SimTimer)
        timer._context = copy_context() if context is None else context
        timer._loop = self
        timer._callback = callback
        timer._args = args
        timer._cancelled = False
        timer._repr = None
        timer._source_traceback = None
        timer._when = when
        timer._scheduled = not self.dead
        if self.dead:
            self._parked.append(timer)
        elif when < FOREVER_S:
            self.scheduler.at(self._world_ns(when) if when > 0 else 0, self._fire, timer)
        else:
            self._endless[id(timer)] = timer
        return timer

    def forget(self, timer: SimTimer) -> None:
        """It was cancelled before it came due."""
        if self._endless.pop(id(timer), None) is None:
            self.scheduler.forget_one(_is_cancelled)

    @property
    def timers(self) -> int:
        """How many timers wait, without cancelled ones."""
        waiting = [arguments[0] for _, _, action, arguments in self.scheduler.heap if action == self._fire]
        return len(self._endless) + sum(not timer._cancelled for timer in (*waiting, *self._due))

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
            except BaseException as error:  # any exception belongs to the caller
                future.set_exception(error)
            else:
                future.set_result(result)
            finally:
                fence.closed = fenced
                events._set_running_loop(previous_loop)

        self.scheduler.after(self.machine.job_ns(), job)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is no executor."""

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

        ``silent``: what the garbage collector finds of it later is no failure, unlike after a voluntary end.
        """
        if self.dead:
            return
        self.silent = silent
        self._parked.extend(asyncio.all_tasks(self))
        self._parked.extend(self._asyncgens)
        self._parked.extend(self._ready)
        self._parked.extend(self._due)
        self._parked.extend(self._endless.values())
        self._ready.clear()
        self._due.clear()
        self._endless.clear()
        self.dead = True

    def dispose(self) -> None:
        """After the run: end what the dead process left, now that nothing it does has an effect."""
        self.kill()
        self.silent = True
        previous_loop = events._get_running_loop()
        previous_hooks = sys.get_asyncgen_hooks()
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(None, self._asyncgen_finalizer_hook)
        fence = self._fence
        escapes, fence.closed = len(fence.escapes), True  # dying code may not touch the real world either
        try:
            closed: set[asyncio.Task[Any]] = set()
            while left := self._unfinished_tasks() - closed:  # a clean-up may have begun some
                for task in sorted(left, key=hash):
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _close_quietly(task.get_coro())
                closed |= left
            self._parked.clear()
        finally:
            fence.closed = False
            del fence.escapes[escapes:]  # of dead code, after the run
            sys.set_asyncgen_hooks(*previous_hooks)
            events._set_running_loop(previous_loop)
            for number in [number for number, loop in _loops.items() if loop is self]:
                del _loops[number]
        self._thread_id = None
        super().close()

    def _unfinished_tasks(self) -> set[asyncio.Task[Any]]:
        return {*(item for item in self._parked if isinstance(item, asyncio.Task)), *asyncio.all_tasks(self)}

    # --- methods that BaseEventLoop leaves to its subclasses

    def _write_to_self(self) -> None:
        """Do nothing: no selector sleeps here."""

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: there is no selector, so there are no events."""

    def close(self) -> None:
        self._not_simulated("close: a simulated process ends when its main coroutine returns")

    def is_closed(self) -> bool:
        """True also once the process is dead: nobody can close anything here any more."""
        return self.dead or super().is_closed()

    def stop(self) -> None:
        self._not_simulated("stop: a simulated process ends when its main coroutine returns")

    def run_forever(self) -> NoReturn:
        self._not_simulated("run_forever: the world turns this loop")

    def run_until_complete(self, future: Any) -> NoReturn:
        self._not_simulated("run_until_complete: the world turns this loop")

    def _not_simulated(self, call: str) -> NoReturn:
        raise NotSimulated(f"the event loop of simulated process {self.machine.name} has no {call}")


def innermost(coroutine: Any) -> Any:
    """The last unfinished coroutine in a chain of awaits."""
    while getattr(inner := getattr(coroutine, "cr_await", None), "cr_frame", None) is not None:
        coroutine = inner
    return coroutine


def _close_quietly(coroutine: Any) -> None:
    """Run the ``finally`` blocks and ignore their errors: the process has been dead for long.

    They run from the inside out, and again if a clean-up awaits: a coroutine dropped during an await would
    complain when the garbage collector finds it.
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
