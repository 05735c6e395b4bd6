"""The programs that simulated processes run: the real broker, and publishers and subscribers by the real
client."""

from simulations.programs.brokers import broker
from simulations.programs.clients import Habits, answerer, asker, opened, publisher, subscriber
from simulations.programs.stock import stock_publisher, stock_subscriber

__all__ = [
    "Habits",
    "answerer",
    "asker",
    "broker",
    "opened",
    "publisher",
    "stock_publisher",
    "stock_subscriber",
    "subscriber",
]
