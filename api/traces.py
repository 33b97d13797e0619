"""Serves what was signalled in a call: as JSON, and as a file for Wireshark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from aiohttp import web
from pydantic.alias_generators import to_snake

from api.http.auth import SERVER, caller_of
from api.http.bodies import answer
from api.http.operation import of_agent
from api.schemas.traces import CallTrace, TraceLeg, TraceMessage, TraceSample
from mediaserver.calls.signalling import pcap

Part = TypeVar("Part", TraceLeg, TraceSample)


routes = web.RouteTableDef()


@routes.get("/api/v1/calls/{callTaskId}/trace")
@of_agent(
    summary="The SIP messages of a call in order, and its media statistics", answer=CallTrace, errors=(404,)
)
async def get_trace(request: web.Request) -> web.Response:
    """Answers the trace of a call, live or over; empty lists where it never left this server."""
    call_id = request.match_info["callTaskId"]
    legs = await request.app[SERVER].call_api.trace(caller_of(request).access, call_id)
    return answer(ladder(call_id, legs))


@routes.get("/api/v1/calls/{callTaskId}/trace.pcap")
@routes.get("/api/v1/calls/{callTaskId}.pcap")
@of_agent(
    summary="The SIP messages of a call as a pcap file, each as one UDP datagram",
    media=(pcap.CONTENT_TYPE,),
    errors=(404,),
)
async def get_trace_file(request: web.Request) -> web.Response:
    """Answers the messages as a file that Wireshark opens."""
    call_id = request.match_info["callTaskId"]
    legs = await request.app[SERVER].call_api.trace(caller_of(request).access, call_id)
    body = pcap.pcap(message for leg in legs for message in leg["messages"])
    headers = {
        "Content-Disposition": 'attachment; filename="call.pcap"',
        "Cache-Control": "private, no-store",
    }
    return web.Response(body=body, content_type=pcap.CONTENT_TYPE, headers=headers)


def ladder(call_id: str, legs: Sequence[dict[str, Any]]) -> CallTrace:
    """Returns the traces of a call's telephones as one ladder in the order of time."""
    ordered = sorted(_messages(legs), key=lambda each: each[1]["at_us"])
    first_us = ordered[0][1]["at_us"] if ordered else 0
    return CallTrace(
        callTaskId=call_id,
        legs=[_leg(leg) for leg in legs],
        messages=[_message(place, message, first_us) for place, message in ordered],
    )


def _messages(legs: Sequence[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    for place, leg in enumerate(legs):
        for message in leg["messages"]:
            yield place, message


def _message(place: int, message: dict[str, Any], first_us: int) -> TraceMessage:
    first, _, rest = message["text"].partition("\r\n")
    status = first.startswith("SIP/2.0 ")
    cseq = next((line for line in rest.split("\r\n") if line.lower().startswith("cseq:")), "")
    return TraceMessage(
        at=_time(message["at_us"]),
        ms=(message["at_us"] - first_us) / 1000,
        leg=place,
        sent=message["sent"],
        transport=message["transport"],
        local=_end(message["local"]),
        remote=_end(message["remote"]),
        summary=first.removeprefix("SIP/2.0 ") if status else first.split(" ")[0],
        cseq=cseq.partition(":")[2].strip(),
        repetition=message["repeated"],
        text=message["text"],
    )


def _leg(leg: dict[str, Any]) -> TraceLeg:
    return _read(TraceLeg, leg, media=[_sample(sample) for sample in leg["media"]])


def _sample(sample: dict[str, Any]) -> TraceSample:
    return _read(TraceSample, sample, at=_time(sample["at_ms"] * 1000))


def _read(model: type[Part], document: Mapping[str, Any], **told: Any) -> Part:
    """Returns a part of a stored trace, whose keys are the fields of `model` in snake case."""
    stored = {name: document.get(to_snake(name)) for name in model.model_fields.keys() - told.keys()}
    return model.model_validate(stored | told)


def _end(end: Sequence[Any]) -> str:
    host, port = end
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _time(at_us: int) -> str:
    moment = datetime.fromtimestamp(at_us // 1_000_000, UTC).replace(microsecond=at_us % 1_000_000)
    return moment.isoformat().replace("+00:00", "Z")
