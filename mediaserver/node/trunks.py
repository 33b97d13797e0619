"""Configures the SIP endpoint's trunks from the directory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mediaserver.admin.directory import Directory
from mediaserver.store.managed import Kind
from mediaserver.telemetry.metrics import Metrics
from mediaserver.wiring import sip_user, trunk_settings
from pipeline.net.egress import EgressPolicy
from sip.egress import PublicAddress
from sip.endpoint import Endpoint
from sip.errors import SipError
from sip.message.uri import Uri, format_hostport
from sip.transaction.hop import hop_of
from sip.trunk_settings import TrunkSettings

log = logging.getLogger(__name__)


def set_trunks(endpoint: Endpoint, directory: Directory) -> None:
    """Adds, replaces and removes trunks; calls in progress go on. Raises `SipError` for a trunk of the file
    that cannot be used; one that is managed over the API is logged and left out."""
    wanted = {name: sip_settings(directory, name) for name in (*directory.trunks, *directory.lines)}
    before = dict(endpoint.trunks)
    for name, trunk in before.items():
        if trunk.settings != wanted.get(name):
            endpoint.remove_trunk(name)
    for name, settings in wanted.items():
        if name in endpoint.trunks:
            continue
        try:
            public = endpoint.add_trunk(settings).public
            if public.server is not None and name in before and before[name].public.server == public.server:
                public.now = before[name].public.now  # what it said last, until it is asked again
        except SipError as error:
            if directory.of_file(Kind.TRUNK, name):
                raise
            log.error("trunk cannot be used", extra={"trunk": name, "reason": str(error)})
    endpoint.gate.forget_unknown()


def sip_settings(directory: Directory, name: str) -> TrunkSettings:
    """Returns a trunk's settings with the addresses that it may send to: public ones and `allow_networks`;
    for a trunk of the file also its own hosts and `allow_from`."""
    networks = [str(network) for network in directory.server.allow_networks]
    if (line := directory.lines.get(name)) is not None:
        users = tuple(sip_user(each) for each in directory.users.values() if each.company == line.company)
        return replace(trunk_settings(line), users=users, egress=EgressPolicy(networks))
    settings = trunk_settings(directory.trunks[name], directory.sip.engine)
    if not directory.of_file(Kind.TRUNK, name):
        return replace(settings, egress=EgressPolicy(networks))
    uris = (settings.uri, *settings.backup_uris, *filter(None, [settings.outbound_proxy]))
    own = tuple(hop_of(Uri.parse(uri)).host for uri in uris)
    if (server := PublicAddress.of(settings.public_address).server) is not None:
        own = (*own, server[0])
    return replace(settings, egress=EgressPolicy([*networks, *settings.allow_from]), trusted_hosts=own)


def servers_of(endpoint: Endpoint, trunk_id: str) -> list[dict[str, Any]]:
    """Returns what OPTIONS found out about a trunk's servers on this node, as the API tells it; [] where they
    are not asked."""
    trunk = endpoint.trunks.get(trunk_id)
    return [
        {
            "address": format_hostport(each.hop.host, each.hop.port),
            "transport": each.hop.transport,
            "health": each.health.value,
            "status": each.status or None,
            "rttMs": None if each.rtt_ms is None else round(each.rtt_ms, 1),
        }
        for each in (trunk.servers if trunk is not None else ())
    ]


def addresses_told(endpoint: Endpoint) -> Iterator[tuple[str, bool]]:
    """Yields the id of each trunk that has a STUN server, and whether that answered last."""
    for name, trunk in endpoint.trunks.items():
        if trunk.public.server is not None:
            yield name, bool(trunk.public.now) and not trunk.public.failed


def stun_health(endpoint: Endpoint, trunk_id: str) -> str | None:
    """Returns "up" where the trunk's STUN server answered last, else "down"; None without a server."""
    told = dict(addresses_told(endpoint)).get(trunk_id)
    return None if told is None else ("up" if told else "down")


def health_of_servers(endpoint: Endpoint) -> Iterator[tuple[str, str]]:
    """Yields a trunk's id and a health for each server that is asked by OPTIONS."""
    for name, trunk in endpoint.trunks.items():
        for each in trunk.servers:
            yield name, each.health.value


def watch(metrics: Metrics, endpoint: Endpoint) -> None:
    """Shows the endpoint's counts, and the registration and the servers of its trunks, in the metrics."""
    metrics.watch_trunks(lambda: health_of_servers(endpoint), lambda: addresses_told(endpoint))
    metrics.trunks.registered = lambda: _registrations(endpoint)
    metrics.trunks.telephones = endpoint.gate.telephones
    metrics.watch_sip(lambda: endpoint.stats)


def _registrations(endpoint: Endpoint) -> dict[str, bool | None]:
    return {
        name: trunk.registered if trunk.settings.register else None for name, trunk in endpoint.trunks.items()
    }
