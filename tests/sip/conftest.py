"""What the tests of the phone share: two phones."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.sip.sip_phones import Phones, phones


@pytest.fixture
async def world() -> AsyncIterator[Phones]:
    """Two phones on loopback that know each other as trunks."""
    async with phones() as world:
        yield world
