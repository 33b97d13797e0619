"""Cancelling against dialling, from outside: HTTP at one end of the server, the wire at the other."""

from __future__ import annotations

from pathlib import Path

from tests.support.models import fake_models
from tests.support.races import Race
from tests.support.server import running, write_site
from tests.support.trap import trap_at

TIMES = 1000


async def test_a_call_that_was_cancelled_does_not_ring_a_thousand_times(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    text = site.path.read_text().replace("[server]", "[server]\nrequests_per_minute = 1000000", 1)
    text = text.replace('name = "Acme"', 'name = "Acme"\nmax_concurrent_calls = 1000', 1)
    site.path.write_text(text)
    with fake_models():
        async with trap_at(site.carrier) as trap, running(site) as (_, client):
            race = Race(client.request, latest_s=0.02)
            await race.run([f"+1415555{place:04d}" for place in range(TIMES)])
            await race.settled()
    assert len(race.placed) == TIMES
    race.check(trap)
