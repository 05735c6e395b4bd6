"""A broker inside a web program: FastAPI serves people, the broker in the same process joins the mesh.

    python web_broker.py                                         # alone
    MESH_JOIN=tcp://10.0.0.7:7770 python web_broker.py           # as a member of a mesh

    curl -N http://127.0.0.1:8000/events/news.%23                # what arrives, as server-sent events
    curl -d hello http://127.0.0.1:8000/publish/news.uk

There is no second program to run: the web program is a member of the mesh like any other, and its own client
reaches the broker without leaving the host. It ends with the web program, and the mesh hears it leave.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse

from mesh import Broker, Client, MeshError, NotAccepted, TopicError

BODY_MAX = 64 * 1024


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The broker starts before the first request and leaves after the last one."""
    broker = Broker(
        name=os.environ.get("MESH_NAME"),
        listen=os.environ.get("MESH_LISTEN", "tcp://127.0.0.1:0"),  # port 0: any free one
        join=os.environ["MESH_JOIN"].split(",") if "MESH_JOIN" in os.environ else (),
    )
    async with broker, Client(broker.url, name="web") as client:
        app.state.broker, app.state.client = broker, client
        yield


app = FastAPI(title="A web program in a mesh", lifespan=lifespan)


@app.get("/members")
async def members() -> list[dict[str, Any]]:
    """Who is in the mesh, as our broker sees it."""
    return [{"name": each["name"], "state": each["state"]} for each in app.state.broker.members()]


@app.post("/publish/{topic}")
async def publish(topic: str, request: Request) -> dict[str, Any]:
    """Publish the body of the request; the answer is the receipt."""
    body = b""
    async for part in request.stream():  # a large body is refused before it is all in memory
        body += part
        if len(body) > BODY_MAX:
            raise HTTPException(413, f"at most {BODY_MAX} bytes")
    try:
        receipt = await app.state.client.publish(topic, body)
    except TopicError as error:
        raise HTTPException(400, str(error)) from error
    except NotAccepted as error:  # the broker said no, and why
        raise HTTPException(403, str(error)) from error
    except MeshError as error:
        raise HTTPException(503, str(error)) from error
    return {"level": receipt.level}


@app.get("/events/{pattern}")
async def events(pattern: str) -> StreamingResponse:
    """A subscription for as long as the browser stays: `new EventSource("/events/news.%23")`."""
    try:
        subscription = await app.state.client.subscribe(pattern)  # every broker knows of it now
    except TopicError as error:
        raise HTTPException(400, str(error)) from error

    async def stream() -> AsyncIterator[str]:
        try:
            yield ": subscribed\n\n"
            async for message in subscription:
                event = {"topic": message.topic, "body": message.body.decode(errors="replace")}
                yield f"data: {json.dumps(event)}\n\n"
        finally:  # the browser has gone, or the program ends
            await subscription.aclose()

    return StreamingResponse(stream(), media_type="text/event-stream")


if __name__ == "__main__":
    # Streams of events have no end of their own: at Ctrl-C they get three seconds.
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), timeout_graceful_shutdown=3)
