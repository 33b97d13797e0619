"""Configures the SIP endpoint's trunks from the directory."""

from __future__ import annotations

import logging
from dataclasses import replace

from mediaserver.admin.directory import Directory
from mediaserver.store.managed import Kind
from mediaserver.wiring import trunk_settings
from pipeline.net.egress import EgressPolicy
from sip.endpoint import Endpoint
from sip.errors import SipError
from sip.message.uri import Uri
from sip.transaction.hop import hop_of
from sip.trunk_settings import TrunkSettings

log = logging.getLogger(__name__)


def set_trunks(endpoint: Endpoint, directory: Directory) -> None:
    """Adds, replaces and removes trunks; calls in progress go on. Raises `SipError` for a trunk of the file
    that cannot be used; one that is managed over the API is logged and left out."""
    wanted = {name: _settings(directory, name) for name in directory.trunks}
    for name, trunk in dict(endpoint.trunks).items():
        if trunk.settings != wanted.get(name):
            endpoint.remove_trunk(name)
    for name, settings in wanted.items():
        if name in endpoint.trunks:
            continue
        try:
            endpoint.add_trunk(settings)
        except SipError as error:
            if directory.of_file(Kind.TRUNK, name):
                raise
            log.error("trunk cannot be used", extra={"trunk": name, "reason": str(error)})


def _settings(directory: Directory, name: str) -> TrunkSettings:
    """Returns a trunk's settings with the addresses that it may send to: public ones and `allow_networks`;
    for a trunk of the file also its own hosts and `allow_from`."""
    settings = trunk_settings(directory.trunks[name])
    networks = [str(network) for network in directory.server.allow_networks]
    if not directory.of_file(Kind.TRUNK, name):
        return replace(settings, egress=EgressPolicy(networks))
    own = tuple(hop_of(Uri.parse(uri)).host for uri in (settings.uri, *settings.backup_uris))
    return replace(settings, egress=EgressPolicy([*networks, *settings.allow_from]), trusted_hosts=own)
