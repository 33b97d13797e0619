"""How many talks visitors open: each of them, those of a company, and all together."""

from __future__ import annotations

from mediaserver.admission.public_talk import PublicTalk
from mediaserver.errors import TooMany
from mediaserver.settings import RoomsSettings


class Rooms:
    """Which rooms are there."""

    def __init__(self, **limits: int) -> None:
        self.open: set[str] = set()
        self.talks = PublicTalk(RoomsSettings.model_validate(limits), is_open=self.open.__contains__)
        self._made = 0

    def begin(self, address: str, now: float, company: str = "acme") -> int:
        """0, or the seconds to wait."""
        try:
            self.talks.take(address, now)
            self.talks.check(address, company)
        except TooMany as refused:
            return refused.retry_after_s
        self._made += 1
        self.open.add(str(self._made))
        self.talks.opened(str(self._made), address, company)
        return 0


def test_one_address_begins_so_many_a_minute_though_all_of_them_are_over() -> None:
    rooms, begun = Rooms(public_talk_per_minute_each=30), 0
    for second in range(600):
        for _ in range(10):
            begun += rooms.begin("192.0.2.1", float(second)) == 0
            rooms.open.clear()
    assert 300 <= begun <= 305
    assert rooms.begin("192.0.2.2", 600.0) == 0


def test_so_many_at_once_of_one_address_of_one_company_and_of_all() -> None:
    rooms = Rooms(public_talk_at_once=5, public_talk_at_once_each=2)
    assert [rooms.begin("192.0.2.1", 0.0) > 0 for _ in range(4)] == [False, False, True, True]
    assert [rooms.begin(f"192.0.2.{number}", 0.0) > 0 for number in range(2, 5)] == [False, True, True]
    other = [rooms.begin(f"192.0.2.{number}", 0.0, "globex") > 0 for number in range(5, 9)]
    assert other == [False, False, True, True]
    rooms.open.clear()
    assert rooms.begin("192.0.2.1", 60.0) == 0
