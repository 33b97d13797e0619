"""The phone's trunks, made what the directory says."""

from __future__ import annotations

import logging

from mediaserver.directory import Directory
from mediaserver.managed import Kind
from mediaserver.wiring import trunk_settings
from sip.endpoint import Endpoint
from sip.errors import SipError

log = logging.getLogger(__name__)


def set_trunks(endpoint: Endpoint, directory: Directory) -> None:
    """Adds, replaces and takes away trunks; calls in progress go on. Raises `SipError` for one of the file
    that cannot be used; one that is managed over the API is logged and left out."""
    wanted = {name: trunk_settings(trunk) for name, trunk in directory.trunks.items()}
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
