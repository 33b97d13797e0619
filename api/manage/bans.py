"""Serves the bans of SIP strangers over HTTP: lists and lifts them."""

from __future__ import annotations

from aiohttp import web

from api.http.auth import SERVER, caller_of
from api.http.bodies import answer
from api.http.operation import of_server
from api.schemas import managed as models

BANS = "/api/v1/sip/bans"

routes = web.RouteTableDef()


@routes.get(BANS)
@of_server(
    summary="Lists the addresses that are banned from SIP on this node; with the server's admin key",
    answer=models.BanList,
)
async def list_bans(request: web.Request) -> web.Response:
    """Answers the bans of the node that is asked, the first to end first."""
    caller_of(request).access.check_everywhere()
    bans = [
        models.BanView(
            address=each.address,
            transport="stream" if each.connected else "udp",
            leftS=round(each.left_s, 1),
        )
        for each in request.app[SERVER].sip_peers.bans()
    ]
    return answer(models.BanList(bans=bans))


@routes.delete(BANS + "/{address}")
@of_server(
    summary="Lifts the bans of an address on this node; with the server's admin key",
    answer=models.Done,
    errors=(404,),
)
async def lift_ban(request: web.Request) -> web.Response:
    """Lifts what bans there are of an address (IPv6: of its /64), datagrams and connections, and forgets its
    tries; 404 where there is none."""
    caller = caller_of(request)
    caller.access.check_everywhere()
    request.app[SERVER].sip_peers.lift(request.match_info["address"], by=caller.key_id)
    return answer(models.Done(success=True))
