"""A mesh of message brokers over the Scalability Protocols.

::

    async with Broker(join="tcp://10.0.0.1:7770") as broker, Client(broker.url) as client:
        await client.publish("news.uk", b"hello")

`Broker` is one broker of a mesh, `Client` talks to one with asyncio, `BlockingClient` without. What goes
wrong is a `MeshError` with one sentence.
"""

from mesh.blocking import BlockingClient
from mesh.broker import Broker
from mesh.client import Client, Subscription
from mesh.conversation import Answer, SurveyResult
from mesh.environment import Environment
from mesh.errors import (
    ConfigError,
    Disconnected,
    ListenError,
    Locked,
    MeshError,
    MeshTimeout,
    NoResponders,
    NotAccepted,
    StorageError,
    TopicError,
    Unknown,
)
from mesh.messages import Batch, Delivery
from mesh.session import Receipt

__all__ = [
    "Answer",
    "Batch",
    "BlockingClient",
    "Broker",
    "Client",
    "ConfigError",
    "Delivery",
    "Disconnected",
    "Environment",
    "ListenError",
    "Locked",
    "MeshError",
    "MeshTimeout",
    "NoResponders",
    "NotAccepted",
    "Receipt",
    "StorageError",
    "Subscription",
    "SurveyResult",
    "TopicError",
    "Unknown",
]
