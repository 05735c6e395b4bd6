"""Clients that work in virtual time: each takes some time for a message, and some messages kill them."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from mesh.work.orders import Deliver
from tests.mesh.work.home import Home, Message


class Worker:
    """Takes its messages one after the other. A message in ``poison`` kills it."""

    def __init__(self, number: int, each_s: float, window: int) -> None:
        self.number = number
        self.each_s = each_s
        self.window = window
        self.queue: deque[Message] = deque()
        self.finished: list[Message] = []  # not reported yet


class Workshop:
    """A home with workers. A worker that died is back under a new number after ``back_after_s``.

    ``tells_late``: it reports what is done only when it has nothing left, so that a crash takes along
    everything it did.
    """

    def __init__(
        self,
        home: Home,
        *,
        poison: frozenset[Message] = frozenset(),
        back_after_s: float = 0.01,
        tells_late: bool = False,
    ) -> None:
        self.home = home
        self.poison = poison
        self.back_after_s = back_after_s
        self.tells_late = tells_late
        self.deaths = 0
        self.handled: dict[Message, int] = {}
        self.finished_at = 0.0
        self._workers: dict[int, Worker] = {}
        self._events: list[tuple[float, int, Worker, bool]] = []
        self._ticket = 0
        self._read = 0

    def hire(self, each_s: float, window: int) -> None:
        worker = Worker(len(self._workers) + self.deaths + 1, each_s, window)
        self._workers[worker.number] = worker
        self.home.attach(worker.number, window=window)

    def work(self, until_s: float = 1e9) -> None:
        """Run until nothing more happens."""
        self._deliver()
        while True:
            due = self.home.queue.next_due
            at = min(due if due is not None else 1e18, self._events[0][0] if self._events else 1e18)
            if at > until_s:
                return
            self.home.now = max(self.home.now, at)
            while self._events and self._events[0][0] <= self.home.now:
                _, _, worker, back = heappop(self._events)
                if back:
                    self.hire(worker.each_s, worker.window)
                else:
                    self._finish(worker)
            self._deliver()

    def _at(self, seconds: float, worker: Worker, *, back: bool = False) -> None:
        self._ticket += 1
        heappush(self._events, (self.home.now + seconds, self._ticket, worker, back))

    def _deliver(self) -> None:
        self.home.step()
        delivered: list[Deliver] = self.home.delivered
        for order in delivered[self._read :]:
            worker = self._workers[order.consumer]
            if not worker.queue:
                self._at(worker.each_s, worker)
            worker.queue.extend((order.row, order.first + index) for index in range(order.count))
        self._read = len(delivered)

    def _finish(self, worker: Worker) -> None:
        message = worker.queue[0]
        self.handled[message] = self.handled.get(message, 0) + 1
        if message in self.poison:
            self.deaths += 1
            del self._workers[worker.number]
            self.home.queue.detach(worker.number, self.home.now, died=True)
            self._at(self.back_after_s, worker, back=True)
            return
        worker.queue.popleft()
        worker.finished.append(message)
        self.finished_at = self.home.now
        if worker.queue:
            self._at(worker.each_s, worker)
        if not self.tells_late or not worker.queue:
            for row, index in worker.finished:
                self.home.queue.done(worker.number, row, index, 1, self.home.now)
            worker.finished = []
