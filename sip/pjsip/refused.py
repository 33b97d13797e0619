"""What PJSIP cannot do behind this server's trunks, told before a call needs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final, Protocol

MODULE: Final = "pjsua2"
WHEEL: Final = "pjsua2-python"
INSTALL: Final = 'pip install "openline-mediaserver[pjsua2]", or a build of PJSIP with its Python module'


class Terms(Protocol):
    """The settings of a trunk that PJSIP limits."""

    @property
    def uri(self) -> str:
        """Where INVITEs go before any other place."""

    @property
    def backup_uris(self) -> Sequence[str]:
        """Where they go when `uri` does not take them."""

    @property
    def follow_redirects(self) -> int:
        """Redirections of one call that are followed."""

    @property
    def accept_register(self) -> bool:
        """Whether telephones register, all of which ring."""


def missing() -> str:
    """Returns why the engine cannot run here, "" where it can. The module is looked for, never loaded: this
    process is no part of PJSIP's."""
    return "" if find_spec(MODULE) is not None else f'"pjsua2" is not installed here: {INSTALL}'


def installed() -> str:
    """Returns the version of the installed wheel; "" where the module comes from elsewhere."""
    try:
        return version(WHEEL)
    except PackageNotFoundError:
        return ""


def refused(terms: Terms) -> Iterator[tuple[str, str]]:
    """Yields (key, reason) for what a trunk asks and PJSIP does not do."""
    for key, uris in (("uri", (terms.uri,)), ("backup_uris", terms.backup_uris)):
        if any(each.lower().startswith("sips:") for each in uris):
            yield key, 'sips: is not for engine "pjsua2"; "sip:...;transport=tls" is'
    if terms.follow_redirects:
        yield "follow_redirects", 'engine "pjsua2" follows no redirections'
    if terms.accept_register:
        yield "accept_register", 'engine "pjsua2" rings one telephone, not all that register'
