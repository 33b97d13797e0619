"""Serves companies, trunks, agents and webhooks over HTTP: made, changed and removed while the server runs.

A company's key of scope `admin` manages its own trunks, agents and webhooks, and reads its own terms. The
server's admin key manages those of every company, named with `?company=`, and the companies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from api.http.auth import SERVER, caller_of
from api.http.bodies import answer
from api.http.operation import of_company, of_server
from api.manage.common import (
    changed_document,
    check_not_of_file,
    document_for,
    managed_by,
    masked,
    one_of,
    own,
    page_answer,
    removed,
)
from api.schemas import managed as models
from api.schemas.camel_case import plain, spelt
from mediaserver.admin.admin import new_id
from mediaserver.errors import NotFound
from mediaserver.node.trunks import servers_of, stun_health
from mediaserver.server import Server
from mediaserver.settings import AgentSettings, CompanySettings, TrunkSettings
from mediaserver.settings.company import TRUNK_OF_FILE
from mediaserver.store.managed import Kind

COMPANIES = "/api/v1/companies"
TRUNKS = "/api/v1/trunks"
AGENTS = "/api/v1/agents"

_NOT_TERMS = ("id", "keys", "webhooks", "public_talk", "talk_origins")
"""Fields of a company in the configuration file that are not part of its terms."""

routes = web.RouteTableDef()


# Companies -------------------------------------------------------------------------------------------------


@routes.get(COMPANIES)
@of_server(
    summary="Lists companies: all for the server's admin key, else the key's own",
    query=models.PageQuery,
    answer=models.CompanyPage,
)
async def list_companies(request: web.Request) -> web.Response:
    """Answers a page of companies, ordered by id."""
    access, server = caller_of(request).access, request.app[SERVER]
    seen = [each for each in server.directory.companies.values() if access.sees_company(each.id)]
    return page_answer(request, models.CompanyPage, "companies", seen, company_view)


@routes.post(COMPANIES)
@of_server(
    summary="Makes a company; with the server's admin key",
    body=models.NewCompanyBody,
    answer=models.CompanyView,
    status=201,
    errors=(409,),
)
async def make_company(request: web.Request) -> web.Response:
    """Makes a company under the id that the body gives."""
    caller_of(request).access.check_everywhere()
    document = await document_for(request, models.NewCompanyBody)
    company_id = str(document.pop("id"))
    server = request.app[SERVER]
    company = await server.administration.save_company(company_id, document, new=True)
    return answer(company_view(server, company), status=201)


@routes.get(COMPANIES + "/{companyId}")
@of_server(summary="Tells a company's terms", answer=models.CompanyView, errors=(404,))
async def get_company(request: web.Request) -> web.Response:
    """Answers the company whose id is in the path; 404 where there is none."""
    return answer(company_view(request.app[SERVER], _company(request)))


@routes.patch(COMPANIES + "/{companyId}")
@of_server(
    summary="Changes a company's terms; with the server's admin key. Fields left out stay",
    body=models.CompanyChange,
    answer=models.CompanyView,
    errors=(404, 409),
)
async def change_company(request: web.Request) -> web.Response:
    """Changes a company's terms; only the server's admin key may, so that no company raises its own
    limits."""
    company = _company(request)
    caller_of(request).access.check_everywhere()
    server = request.app[SERVER]
    check_not_of_file(server, Kind.COMPANY, company.id)
    document = await changed_document(request, company, models.CompanyBody, beside=_NOT_TERMS)
    company = await server.administration.save_company(company.id, document, new=False)
    return answer(company_view(server, company))


@routes.delete(COMPANIES + "/{companyId}")
@of_server(
    summary="Takes a company away, and its keys with it; with the server's admin key",
    answer=models.Done,
    errors=(404, 409),
)
async def remove_company(request: web.Request) -> web.Response:
    """Removes a company and its keys; the records of its calls are kept."""
    company = _company(request)
    caller_of(request).access.check_everywhere()
    return await removed(request, Kind.COMPANY, company.id)


def _company(request: web.Request) -> CompanySettings:
    company = request.app[SERVER].directory.company(request.match_info["companyId"])
    if company is None or not caller_of(request).access.sees_company(company.id):
        raise NotFound("Company not found")
    return company


def company_view(server: Server, company: CompanySettings) -> BaseModel:
    """Returns the API's view of a company."""
    said = plain(company)
    for name in _NOT_TERMS[1:]:
        said.pop(name, None)
    return spelt(models.CompanyView, said, managedBy=managed_by(server, Kind.COMPANY, company.id))


# Trunks ----------------------------------------------------------------------------------------------------


@routes.get(TRUNKS)
@of_company(summary="Lists trunks", query=models.PageQuery, answer=models.TrunkPage)
async def list_trunks(request: web.Request) -> web.Response:
    """Answers a page of the company's trunks, ordered by id."""
    things = own(request, request.app[SERVER].directory.trunks)
    return page_answer(request, models.TrunkPage, "trunks", things, trunk_view)


@routes.post(TRUNKS)
@of_company(
    summary="Makes a trunk", body=models.TrunkBody, answer=models.TrunkView, status=201, errors=(404, 409)
)
async def make_trunk(request: web.Request) -> web.Response:
    """Makes a trunk, which can be dialled over at once."""
    document = await document_for(request, models.TrunkBody)
    return await _save_trunk(request, new_id(Kind.TRUNK), document, new=True)


@routes.get(TRUNKS + "/{trunkId}")
@of_company(summary="Tells a trunk", answer=models.TrunkView, errors=(404,))
async def get_trunk(request: web.Request) -> web.Response:
    """Answers a trunk, with its password masked; 404 where there is none."""
    return answer(trunk_view(request.app[SERVER], _trunk(request)))


@routes.patch(TRUNKS + "/{trunkId}")
@of_company(
    summary="Changes a trunk. Fields left out stay",
    body=models.TrunkChange,
    answer=models.TrunkView,
    errors=(404, 409),
)
async def change_trunk(request: web.Request) -> web.Response:
    """Changes a trunk; calls in progress keep the settings that they began with."""
    trunk = _trunk(request)
    check_not_of_file(request.app[SERVER], Kind.TRUNK, trunk.id)
    document = await changed_document(
        request, trunk, models.TrunkBody, beside=("id", "company", *TRUNK_OF_FILE)
    )
    return await _save_trunk(request, trunk.id, document, new=False)


@routes.delete(TRUNKS + "/{trunkId}")
@of_company(summary="Takes a trunk away", answer=models.Done, errors=(404, 409))
async def remove_trunk(request: web.Request) -> web.Response:
    """Removes a trunk; 409 while an agent uses it."""
    return await removed(request, Kind.TRUNK, _trunk(request).id)


def _trunk(request: web.Request) -> TrunkSettings:
    return one_of(request, request.app[SERVER].directory.trunks, "trunkId", "Trunk not found")


async def _save_trunk(
    request: web.Request, trunk_id: str, document: Mapping[str, Any], *, new: bool
) -> web.Response:
    access, server = caller_of(request).access, request.app[SERVER]
    trunk = await server.administration.save_trunk(
        access.company_id, trunk_id, document, trusted=access.everywhere, new=new
    )
    return answer(trunk_view(server, trunk), status=201 if new else 200)


def trunk_view(server: Server, trunk: TrunkSettings) -> BaseModel:
    """Returns the API's view of a trunk, with its registration on this node."""
    live = server.endpoint.trunks.get(trunk.id)
    said = {name: value for name, value in plain(trunk).items() if name not in TRUNK_OF_FILE}
    return spelt(
        models.TrunkView,
        said,
        companyId=said.pop("company"),
        managedBy=managed_by(server, Kind.TRUNK, trunk.id),
        registered=live is not None and live.registered,
        servers=[models.TrunkServer(**each) for each in servers_of(server.endpoint, trunk.id)],
        seenAs=live.public.now or None if live is not None else None,
        stunHealth=stun_health(server.endpoint, trunk.id),
    )


# Agents ----------------------------------------------------------------------------------------------------


@routes.get(AGENTS)
@of_company(summary="Lists agents", query=models.PageQuery, answer=models.AgentPage)
async def list_agents(request: web.Request) -> web.Response:
    """Answers a page of the company's agents, ordered by id."""
    things = own(request, request.app[SERVER].directory.agents)
    return page_answer(request, models.AgentPage, "agents", things, agent_view)


@routes.post(AGENTS)
@of_company(
    summary="Makes an agent", body=models.AgentBody, answer=models.AgentView, status=201, errors=(404, 409)
)
async def make_agent(request: web.Request) -> web.Response:
    """Makes an agent, which takes calls as soon as its engines run; `missing` in the answer says why not
    yet."""
    document = await document_for(request, models.AgentBody)
    return await _save_agent(request, new_id(Kind.AGENT), document, new=True)


@routes.get(AGENTS + "/{agentId}")
@of_company(summary="Tells an agent", answer=models.AgentView, errors=(404,))
async def get_agent(request: web.Request) -> web.Response:
    """Answers an agent, with secrets in its engines' options masked; 404 where there is none."""
    return answer(agent_view(request.app[SERVER], _agent(request)))


@routes.patch(AGENTS + "/{agentId}")
@of_company(
    summary="Changes an agent. Fields left out stay; tables are replaced whole",
    body=models.AgentChange,
    answer=models.AgentView,
    errors=(404, 409),
)
async def change_agent(request: web.Request) -> web.Response:
    """Changes an agent; calls in progress keep the settings that they began with."""
    agent = _agent(request)
    check_not_of_file(request.app[SERVER], Kind.AGENT, agent.id)
    document = await changed_document(request, agent, models.AgentBody, beside=("id", "company"))
    return await _save_agent(request, agent.id, document, new=False)


@routes.delete(AGENTS + "/{agentId}")
@of_company(summary="Takes an agent away", answer=models.Done, errors=(404, 409))
async def remove_agent(request: web.Request) -> web.Response:
    """Removes an agent; its queued calls fail when they are due."""
    return await removed(request, Kind.AGENT, _agent(request).id)


def _agent(request: web.Request) -> AgentSettings:
    return one_of(request, request.app[SERVER].directory.agents, "agentId", "Agent not found")


async def _save_agent(
    request: web.Request, agent_id: str, document: Mapping[str, Any], *, new: bool
) -> web.Response:
    access, server = caller_of(request).access, request.app[SERVER]
    agent = await server.administration.save_agent(
        access.company_id, agent_id, document, trusted=access.everywhere, new=new
    )
    return answer(agent_view(server, agent), status=201 if new else 200)


def agent_view(server: Server, agent: AgentSettings) -> BaseModel:
    """Returns the API's view of an agent, with secrets in its engines' options masked."""
    said = plain(agent)
    for name in ("stt", "tts", "tts_fallback"):
        said[name] = masked(said.get(name))
    said = {name: value for name, value in said.items() if value is not None}
    return spelt(
        models.AgentView,
        said,
        companyId=said.pop("company"),
        managedBy=managed_by(server, Kind.AGENT, agent.id),
        missing=server.engines.why_not(agent.id),
    )
