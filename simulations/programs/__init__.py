"""The programs that simulated processes run: the real broker, and publishers and subscribers by the real
client."""

from simulations.programs.brokers import broker
from simulations.programs.clients import answerer, asker, opened, publisher, subscriber

__all__ = ["answerer", "asker", "broker", "opened", "publisher", "subscriber"]
