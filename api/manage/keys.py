"""Serves API keys over HTTP: makes, lists, rotates and revokes."""

from __future__ import annotations

from aiohttp import web

from api.http.auth import SERVER, Scope, caller_of
from api.http.bodies import answer, checked, json_object, query_of, view_of
from api.http.operation import of_company
from api.schemas import managed as models
from mediaserver.errors import InvalidRequest, NotFound
from mediaserver.store.managed import KeyInfo, NewKey

KEYS = "/api/v1/keys"
UNKNOWN = "Key not found"

routes = web.RouteTableDef()


@routes.get(KEYS)
@of_company(summary="Lists API keys", query=models.PageQuery, answer=models.KeyPage)
async def list_keys(request: web.Request) -> web.Response:
    """Answers a page of API keys, ordered by id, without their secrets, of which the server keeps only
    hashes."""
    query = query_of(request, models.PageQuery)
    page = await request.app[SERVER].store.keys(
        caller_of(request).company_id, cursor=query.cursor, limit=query.limit
    )
    return answer(models.KeyPage(keys=[view(each) for each in page.items], cursor=page.cursor or None))


@routes.post(KEYS)
@of_company(
    summary="Makes an API key, which is shown in this answer only",
    body=models.NewKeyBody,
    answer=models.KeyView,
    status=201,
    errors=(409,),
)
async def make(request: web.Request) -> web.Response:
    """Makes an API key, valid at once, and answers its secret this one time."""
    wanted = checked(models.NewKeyBody, await json_object(request))
    server, company_id = request.app[SERVER], caller_of(request).company_id
    for agent_id in wanted.agentIds:
        agent = server.directory.agent(agent_id.lower())
        if agent is None or agent.company != company_id:
            raise InvalidRequest("agentIds: Agent not found or does not belong to your company")
    if wanted.agentIds and Scope.ADMIN in wanted.scopes:
        raise InvalidRequest("agentIds: a key that manages the company is for all of its agents")
    new = NewKey(frozenset(wanted.scopes), frozenset(each.lower() for each in wanted.agentIds), wanted.name)
    made, secret = await server.store.make_key(company_id, new)
    return answer(view(made, secret), status=201)


@routes.get(KEYS + "/{key}")
@of_company(summary="Tells an API key", answer=models.KeyView, errors=(404,))
async def get(request: web.Request) -> web.Response:
    """Answers the API key that the path names, without its secret; 404 where there is none."""
    found = await request.app[SERVER].store.key(caller_of(request).company_id, request.match_info["key"])
    if found is None:
        raise NotFound(UNKNOWN)
    return answer(view(found))


@routes.post(KEYS + "/{key}/rotate")
@of_company(
    summary="Makes a key like this one, which itself goes on for a while",
    body=models.RotateBody,
    body_required=False,
    answer=models.KeyView,
    status=201,
    errors=(404, 409),
)
async def rotate(request: web.Request) -> web.Response:
    """Makes a key with the same scopes and agents; the old key expires after `overlapS`. The new secret is
    answered this one time."""
    wanted = checked(models.RotateBody, await json_object(request, optional=True))
    rotated = await request.app[SERVER].store.rotate_key(
        caller_of(request).company_id, request.match_info["key"], overlap_ms=wanted.overlapS * 1000
    )
    if rotated is None:
        raise NotFound(UNKNOWN)
    return answer(view(*rotated), status=201)


@routes.delete(KEYS + "/{key}")
@of_company(summary="Ends an API key at once", answer=models.Done, errors=(404, 409))
async def revoke(request: web.Request) -> web.Response:
    """Revokes an API key at once."""
    store = request.app[SERVER].store
    if not await store.revoke_key(caller_of(request).company_id, request.match_info["key"]):
        raise NotFound(UNKNOWN)
    return answer(models.Done(success=True))


def view(key: KeyInfo, secret: str | None = None) -> models.KeyView:
    """Returns the API's view of a key; `secret` only where the key was made by this request."""
    return view_of(
        models.KeyView,
        key,
        scopes=sorted(key.scopes),
        agentIds=sorted(key.agents),
        managedBy="file" if key.from_file else "api",
        key=secret,
    )
