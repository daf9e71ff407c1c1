"""A learner whose owner has yet to trust a bundle is asked again, once a second."""

import asyncio
import logging
import selectors
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from tests.learner.test_source import SPEC

from melisma import rpc
from melisma.errors import RemoteError
from melisma.fleets.judge import is_to_blame
from melisma.fleets.messages import Ready, Speeds
from melisma.fleets.roster import LOOK_S, Announcement, Roster

UNTRUSTED = RemoteError("Untrusted", "bundle 0f waits for this device's owner")


class Jumps(selectors.SelectSelector):
    """Waits for nothing: adds the wait to ``now``."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumps = Jumps()
        super().__init__(self._jumps)

    def time(self) -> float:
        return self._jumps.now


class Wary:
    """One learner, whose owner says yes after so many virtual seconds."""

    silences_s: Mapping[str, float | None] = {}
    metrics = rpc.Metrics()

    def __init__(self, reads_s: float) -> None:
        self.reads_s, self.asked = reads_s, 0

    async def wait_until(self, count: int) -> Collection[str]:
        return ["wary"]

    async def call(self, name: str, function: str, *args: Any, **options: Any) -> Any:
        self.asked += 1
        assert self.asked < 1000  # without a pause it would be for ever
        if asyncio.get_running_loop().time() < self.reads_s:
            raise UNTRUSTED
        speeds = Speeds(step_s=0.1, sample_s=0.1, fixed_s=0.1)
        return Ready(measured=True, speeds=speeds)

    def expel(self, name: str, reason: str) -> None: ...


def test_an_owner_who_reads_costs_a_call_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    remotes = Wary(reads_s=100.0)
    roster = Roster(remotes, [Announcement(spec=SPEC, benchmark=())], least=1)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(roster.ready(SPEC.task)) == ["wary"]
    assert remotes.asked <= 100.0 / LOOK_S + 2
    (line,) = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert "wary does not take part: Untrusted: bundle 0f waits" in line
    assert roster.take_complaints() == []


def test_who_runs_no_code_of_others_is_not_to_blame() -> None:
    assert not is_to_blame(UNTRUSTED)
    assert is_to_blame(RemoteError("ConfigError", "no"))
