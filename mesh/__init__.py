"""A mesh of message brokers over the Scalability Protocols.

::

    async with Broker(join="tcp://10.0.0.1:7770") as broker, Client(broker.url) as client:
        await client.publish("news.uk", b"hello")

`Broker` is one broker of a mesh. `Client` talks to one with asyncio, `BlockingClient` without. Errors are a
`MeshError` with one sentence.

Names are loaded on first use, so that the command line can react to an interrupt before the broker and both
clients are loaded.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mesh.access.principals import Principal
    from mesh.broker.broker import Broker
    from mesh.clients.blocking_client import BlockingClient
    from mesh.clients.client import Client
    from mesh.clients.jobs import Job
    from mesh.clients.messages import Batch, Delivery
    from mesh.clients.outbox import OutboxState
    from mesh.clients.publishing_soon import Pending
    from mesh.clients.questions import Answer, SurveyResult
    from mesh.clients.subscription import Subscription
    from mesh.clients.work import Work
    from mesh.environment import Environment
    from mesh.errors import (
        BatchFailed,
        ConfigError,
        Detached,
        Disconnected,
        HeldElsewhere,
        ListenError,
        Locked,
        MeshError,
        MeshTimeout,
        NoResponders,
        NotAccepted,
        NotReady,
        OtherPatterns,
        OutboxDamaged,
        OutboxError,
        StorageError,
        TopicError,
        Unknown,
    )
    from mesh.idempotence import Inbox, idempotent
    from mesh.limits import Limits
    from mesh.listen import HttpListen, Listen
    from mesh.wire.session_frames import Receipt

__all__ = [
    "Answer",
    "Batch",
    "BatchFailed",
    "BlockingClient",
    "Broker",
    "Client",
    "ConfigError",
    "Delivery",
    "Detached",
    "Disconnected",
    "Environment",
    "HeldElsewhere",
    "HttpListen",
    "Inbox",
    "Job",
    "Limits",
    "Listen",
    "ListenError",
    "Locked",
    "MeshError",
    "MeshTimeout",
    "NoResponders",
    "NotAccepted",
    "NotReady",
    "OtherPatterns",
    "OutboxDamaged",
    "OutboxError",
    "OutboxState",
    "Pending",
    "Principal",
    "Receipt",
    "StorageError",
    "Subscription",
    "SurveyResult",
    "TopicError",
    "Unknown",
    "Work",
    "idempotent",
]

_MODULES = {
    "Answer": "mesh.clients.questions",
    "Batch": "mesh.clients.messages",
    "BatchFailed": "mesh.errors",
    "BlockingClient": "mesh.clients.blocking_client",
    "Broker": "mesh.broker.broker",
    "Client": "mesh.clients.client",
    "ConfigError": "mesh.errors",
    "Delivery": "mesh.clients.messages",
    "Detached": "mesh.errors",
    "Disconnected": "mesh.errors",
    "Environment": "mesh.environment",
    "HeldElsewhere": "mesh.errors",
    "HttpListen": "mesh.listen",
    "Inbox": "mesh.idempotence",
    "Job": "mesh.clients.jobs",
    "Limits": "mesh.limits",
    "Listen": "mesh.listen",
    "ListenError": "mesh.errors",
    "Locked": "mesh.errors",
    "MeshError": "mesh.errors",
    "MeshTimeout": "mesh.errors",
    "NoResponders": "mesh.errors",
    "NotAccepted": "mesh.errors",
    "NotReady": "mesh.errors",
    "OtherPatterns": "mesh.errors",
    "OutboxDamaged": "mesh.errors",
    "OutboxError": "mesh.errors",
    "OutboxState": "mesh.clients.outbox",
    "Pending": "mesh.clients.publishing_soon",
    "Principal": "mesh.access.principals",
    "Receipt": "mesh.wire.session_frames",
    "StorageError": "mesh.errors",
    "Subscription": "mesh.clients.subscription",
    "SurveyResult": "mesh.clients.questions",
    "TopicError": "mesh.errors",
    "Unknown": "mesh.errors",
    "Work": "mesh.clients.work",
    "idempotent": "mesh.idempotence",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'mesh' has no attribute {name!r}")
    if sys.platform == "win32":
        import_module("protocols.system")  # refuses it before the rest fails for lack of Unix modules
    return getattr(import_module(_MODULES[name]), name)
