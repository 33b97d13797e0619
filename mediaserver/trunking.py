"""The phone's trunks, made what the directory says."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import lru_cache

from mediaserver.directory import Directory
from mediaserver.managed import Kind
from mediaserver.wiring import trunk_settings
from pipeline.reach import Reach
from sip.endpoint import Endpoint
from sip.errors import SipError
from sip.trunk import TrunkSettings

log = logging.getLogger(__name__)


def set_trunks(endpoint: Endpoint, directory: Directory) -> None:
    """Adds, replaces and takes away trunks; calls in progress go on. Raises `SipError` for one of the file
    that cannot be used; one that is managed over the API is logged and left out. Names of the latter must not
    lead into networks that are closed to it."""
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
    settings = trunk_settings(directory.trunks[name])
    if directory.of_file(Kind.TRUNK, name):
        return settings
    networks = tuple(str(network) for network in directory.server.allow_networks)
    return replace(settings, reaches=_reach(networks).allows)


@lru_cache
def _reach(networks: tuple[str, ...]) -> Reach:
    """One for the same networks: trunks that did not change must compare equal."""
    return Reach(networks)
