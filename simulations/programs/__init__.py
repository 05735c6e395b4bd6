"""The programs of simulated processes: the real broker, and publishers, subscribers and workers by the real
client.
"""

from simulations.programs.brokers import broker
from simulations.programs.clients import Habits, answerer, asker, opened, publisher, subscriber
from simulations.programs.operators import forgetter
from simulations.programs.stock import stock_publisher, stock_subscriber
from simulations.programs.workers import WorkHabits, worker

__all__ = [
    "Habits",
    "WorkHabits",
    "answerer",
    "asker",
    "broker",
    "forgetter",
    "opened",
    "publisher",
    "stock_publisher",
    "stock_subscriber",
    "subscriber",
    "worker",
]
