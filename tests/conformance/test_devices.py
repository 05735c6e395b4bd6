"""Items 133 to 140: raw sockets and devices."""

from __future__ import annotations

import asyncio

import pytest

import protocols
from protocols import Device, Message, NotSupported, ProtocolNumber
from tests.support.waiting import until

from .declaring import PAIRS, STREAMS, TRANSPORTS, item
from .links import Link

REQ, REP = ProtocolNumber.REQ0, ProtocolNumber.REP0
ID = b"\x80\x00\x00\x05"
OURS_FIRST = PAIRS[:2]


@pytest.mark.parametrize("raw, cooked", [("Rep0", "Req0"), ("Respondent0", "Surveyor0")])
@item(133, transports=TRANSPORTS, pairs=OURS_FIRST, note="the raw end is ours: pynng has none")
async def test_a_raw_replier_names_the_pipe_and_answers_by_it(raw: str, cooked: str, link: Link) -> None:
    async with link:
        rep = link.first(raw, raw=True)
        one, two = link.second(cooked), link.second(cooked)
        await link.meet(rep, one, two)
        messages = []
        for number, asker in enumerate((one, two)):
            await asker.send(b"%d" % number)
            messages.append(await rep.recv_message())
            assert messages[-1].header[0] & 0x80 and len(messages[-1].header) == 4
        assert messages[0].pipe.id != messages[1].pipe.id
        for message in reversed(messages):
            assert rep.send_message(Message(message.pipe, message.header, b"re " + message.body))
        assert [await one.recv(), await two.recv()] == [b"re 0", b"re 1"]


@item(134, transports=STREAMS, note="by device: answers whose pipe word names nobody are dropped")
async def test_answers_for_unknown_pipes_are_dropped(link: Link) -> None:
    async with link.scripted("Rep0", REQ, raw=True) as (front, asker):
        back = link.ours("Req0", raw=True)
        running = asyncio.create_task(Device(front, back).run())
        link.url = (await back.listen(link.address())).url
        server = await link.script(REP, back)
        await asker.send(ID + b"question")
        frame = await server.recv()
        assert frame[4:] == ID + b"question" and not frame[0] & 0x80
        unknown = ((int.from_bytes(frame[:4]) % 0x7FFFFFFF) + 1).to_bytes(4)
        await server.send(unknown + ID + b"for nobody", ID + b"no pipe word", frame[:4] + ID + b"answer")
        assert await asker.recv() == ID + b"answer"
        await asker.aclose()
        await front.aclose()
        await running


@pytest.mark.parametrize("raw, number", [("Req0", REP), ("Surveyor0", ProtocolNumber.RESPONDENT0)])
@item(135, transports=STREAMS, note="the whole stack is in the header, as in NNG; mangos splits one word off")
async def test_a_raw_requester_keeps_headers_as_given_and_splits_them_off(
    raw: str, number: ProtocolNumber, link: Link
) -> None:
    async with link.scripted(raw, number, raw=True) as (req, peer):
        stack = b"\x00\x00\x00\x09" + b"\x00\x00\x00\x08" + ID
        await req.send(stack + b"question")
        assert await peer.recv() == stack + b"question"
        await peer.send(stack + b"answer")
        message = await req.recv_message()
        assert (message.header, message.body) == (stack, b"answer")


@pytest.mark.parametrize("raw, number", [("Rep0", REQ), ("Respondent0", ProtocolNumber.SURVEYOR0)])
@item(136, transports=STREAMS)
async def test_raw_sockets_drop_messages_over_their_ttl(raw: str, number: ProtocolNumber, link: Link) -> None:
    async with link.scripted(raw, number, raw=True, ttl=3) as (rep, peer):
        word = b"\x00\x00\x00\x01"
        await peer.send(word * 3 + ID + b"over", word * 2 + ID + b"at the limit")
        assert (await rep.recv_message()).body == b"at the limit"
        assert rep.statistics().drops == {"over ttl": 1}


@item(137)
async def test_a_device_refuses_sockets_that_cannot_be_joined(link: Link) -> None:
    async with link:
        raw = {kind: link.ours(kind, raw=True) for kind in ("Req0", "Rep0", "Pub0", "Sub0", "Bus0")}
        for front, back in (("Req0", "Req0"), ("Rep0", "Sub0"), ("Bus0", "Pub0")):
            with pytest.raises(NotSupported):
                Device(raw[front], raw[back])
        with pytest.raises(NotSupported):
            Device(link.ours("Req0"), raw["Rep0"])
        with pytest.raises(NotSupported):
            Device(raw["Req0"], link.ours("Rep0"))
        with pytest.raises(ValueError):
            Device(None, None)


@item(138)
async def test_one_socket_reflects_only_with_a_symmetric_protocol(link: Link) -> None:
    async with link:
        for kind in ("Pair0", "Pair1", "Bus0", "Star0"):
            Device(link.ours(kind, raw=True))
        others = ("Pub0", "Sub0", "Req0", "Rep0", "Push0", "Pull0", "Surveyor0", "Respondent0")
        for kind in others:
            with pytest.raises(NotSupported):
                Device(link.ours(kind, raw=True))


@item(139, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_chain_of_devices_carries_questions_and_answers(link: Link) -> None:
    async with link:
        req, rep = link.first("Req0"), link.second("Rep0")
        running = []
        asking = req
        for _ in range(3):
            front, back = link.ours("Rep0", raw=True), link.ours("Req0", raw=True)
            running.append(asyncio.create_task(Device(front, back).run()))
            await link.meet(front, asking)
            asking = back
        await link.meet(rep, asking)
        for number in range(20):
            await req.send(b"%d" % number)
            assert await rep.recv() == b"%d" % number
            await rep.send(b"re %d" % number)
            assert await req.recv() == b"re %d" % number
        await asking.aclose()
        await until(lambda: running[-1].done())
        for task in running[:-1]:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.parametrize(
    "front, back", [("Pull0", "Push0"), ("Surveyor0", "Respondent0"), ("Pair1", "Pair1")]
)
@item(139, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_device_of_each_other_pattern(front: str, back: str, link: Link) -> None:
    async with link:
        one, two = link.ours(front, raw=True), link.ours(back, raw=True)
        running = asyncio.create_task(Device(one, two).run())
        peer = {"Pull0": "Push0", "Push0": "Pull0", "Surveyor0": "Respondent0", "Respondent0": "Surveyor0"}
        asking, answering = peer.get(back, back), peer.get(front, front)
        near, far = link.first(answering), link.second(asking)
        await link.meet(one, near)
        await link.meet(two, far)
        sender, receiver = (near, far) if front != "Surveyor0" else (far, near)
        await sender.send(b"there")
        assert await receiver.recv() == b"there"
        if front != "Pull0":
            await receiver.send(b"and back")
            assert await sender.recv() == b"and back"
        await one.aclose()
        await running


@pytest.mark.parametrize("which", [0, 1])
@item(140)
async def test_closing_either_socket_ends_the_device(which: int, link: Link) -> None:
    async with protocols.RawSocket(protocols.Rep0) as front, protocols.RawSocket(protocols.Req0) as back:
        running = asyncio.create_task(Device(front, back).run())
        await asyncio.sleep(0)
        await (front, back)[which].aclose()
        ended = await asyncio.wait_for(running, 5.0)
        assert ("rep0", "req0")[which] in ended.ended
        assert not (back, front)[which].closed
