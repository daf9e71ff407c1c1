"""The browser's delay law, drift, margins and bids, beside the Python learner's."""

import json
from typing import Any

import numpy as np
import pytest
from tests.browser.pages import opened, serving
from tests.web.browser import Page

from melisma.learner.speed import Speed
from melisma.learning.benchmark import Line, fit, sizes_of

pytestmark = pytest.mark.browser

REPLAY = """(async () => {
  const { Line, Speed } = await import("/static/learner/speed.js");
  const { promise, link, compute, events } = %s;
  const speed = new Speed(1000);
  speed.promise(promise);
  speed.link = new Line(...link);
  speed.compute = new Line(...compute);
  speed.sampleBytes = 10;
  return events.map(([name, ...args]) => {
    speed[name](...args);
    const law = speed.law({ careful: false });
    return [
      law.stepS, law.sampleS, law.fixedS, speed.uploadS(),
      speed.bid(10, 32.5, 1, { adaptive: true }),
      speed.bid(7, 9, 3, { adaptive: false }),
    ];
  });
})()"""


def replayed(promise: float, events: list[list[Any]]) -> list[list[float]]:
    """Return what Python's law comes to after each event."""
    speed = Speed(1000)
    speed.promise(promise)
    speed.link = Line(latency_s=0.1, rate=1000.0)
    speed.compute = Line(latency_s=0.2, rate=50.0)
    speed.sample_bytes = 10
    found = []
    for name, *args in events:
        if name == "kept":
            speed.kept(ratio=args[0], late=args[1])
        else:
            getattr(speed, name)(*args)
        law = speed.law(careful=False)
        found.append(
            [
                *(law.step_s[0], law.sample_s[0], law.fixed_s[0], speed.upload_s()),
                speed.bid(10, 32.5, 1, adaptive=True),
                speed.bid(7, 9.0, 3, adaptive=False),
            ]
        )
    return found


def drawn(seed: int) -> list[list[Any]]:
    """Return what may happen to a device in some cycles."""
    rng = np.random.default_rng(seed)
    events: list[list[Any]] = []
    for _ in range(60):
        ratio = np.exp(rng.normal(0.2, 0.4, 2)).tolist()
        events += [
            ["trained", int(rng.integers(0, 500)), float(rng.uniform(0, 20))],
            ["transferred", [1000, 200], float(rng.uniform(0.1, 5))],
            ["kept", ratio, bool(rng.random() < 0.3)],
            ["forget"] if rng.random() < 0.2 else ["renew"],
            ["renew"],
        ]
    return events


@pytest.mark.parametrize("promise", [0.0, 0.05])
def test_laws_and_bids_are_those_of_python(page: Page, promise: float) -> None:
    with serving() as server:
        opened(page, server)
        for seed in range(3):
            events = drawn(seed)
            given = {
                "promise": promise,
                "link": [0.1, 1000.0],
                "compute": [0.2, 50.0],
                "events": events,
            }
            found = page.look(REPLAY % json.dumps(given))
            np.testing.assert_allclose(found, replayed(promise, events), rtol=1e-9)


def test_lines_are_fitted_as_in_python(page: Page) -> None:
    rng = np.random.default_rng(3)
    measured = [[[4, 8], rng.uniform(0.1, 1.0, 2).tolist()] for _ in range(20)] + [
        [[5], [0.3]],
        [[1, 2], [3.0, 4.0]],
        [[3, 3], [1.0, 2.0]],
    ]
    script = """(async () => {
      const { fit, sizesOf } = await import("/static/learner/speed.js");
      const lines = %s.map(([x, t]) => fit(x, t)).map((l) => [l.latencyS, l.rate]);
      return [lines, [sizesOf(8, 1), sizesOf(8, 2), sizesOf(1, 2)]];
    })()"""
    with serving() as server:
        opened(page, server)
        lines, sizes = page.look(script % json.dumps(measured))
    expected = [fit(x, t) for x, t in measured]
    np.testing.assert_allclose(
        lines, [[line.latency_s, line.rate] for line in expected], rtol=1e-9
    )
    assert sizes == [sizes_of(8, 1), sizes_of(8, 2), sizes_of(1, 2)]
