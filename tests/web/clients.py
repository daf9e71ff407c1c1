"""A browser's side of the dashboard, without a browser; and servers to visit."""

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from melisma import rpc
from melisma.jobs.files import dump
from melisma.jobs.schema import Job
from melisma.rpc.address import Address
from melisma.runs import records
from melisma.runs.records import ACCURACY, Metric
from melisma.runs.store import CONFIG, RECORDS
from melisma.views.web import Dashboard


class Visitor:
    """Asks a server, with a token or without."""

    def __init__(self, url: str, token: str | None = None) -> None:
        link = urlsplit(url)
        self._host, self._tls = link.netloc, link.scheme == "https"
        self.token = token or link.fragment.removeprefix("token=") or None

    def open(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        line: http.client.HTTPConnection
        if self._tls:
            trusting = ssl._create_unverified_context()
            line = http.client.HTTPSConnection(self._host, context=trusting, timeout=60)
        else:
            line = http.client.HTTPConnection(self._host, timeout=60)
        sent = {"Content-Type": "application/json"} if body is not None else {}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = None if body is None else json.dumps(body)
        line.request(method, path, content, sent)
        return line, line.getresponse()

    def ask(
        self, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Return status, content and headers."""
        method = "GET" if body is None else "POST"
        line, response = self.open(method, path, body, **headers)
        content = response.read()
        line.close()
        kind = response.headers.get_content_type()
        answer = json.loads(content) if kind == "application/json" else content
        return response.status, answer, response.headers

    def get(self, path: str) -> Any:
        status, answer, _ = self.ask(path)
        assert status == 200, answer
        return answer

    def steer(self, action: str, **facts: Any) -> tuple[int, Any]:
        status, answer, _ = self.ask("/api/control", {"action": action, **facts})
        return status, answer

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield events until the server ends the stream."""
        line, response = self.open("GET", path)
        assert response.status == 200
        event = ""
        try:
            while text := response.readline().decode():
                kind, _, value = text.rstrip("\n").partition(": ")
                if kind == "event":
                    event = value
                elif kind == "data":
                    yield event, json.loads(value)
        finally:
            line.close()


@contextmanager
def serving(root: Path, **options: Any) -> Iterator[tuple[rpc.Server, Dashboard]]:
    """The dashboard of saved runs."""
    site = Dashboard(root)
    options = {"port": 0, "say": len, **options}
    with rpc.serve(routes=site.routes, **options) as server:
        yield server, site


def token_of(join_string: str) -> str:
    return str(Address.of(join_string).token)


def write_run(
    folder: Path,
    *,
    cycles: int = 3,
    done: int = 3,
    name: str = "a",
    metrics: tuple[Metric, ...] = (),
    **changes: Any,
) -> Path:
    """A run by hand: one learner, which is back after a second."""
    folder.mkdir(parents=True)
    job = Job(name="job", cycles=cycles, **changes)
    (folder / CONFIG).write_text(dump(job))
    with (folder / RECORDS).open("wb") as file:
        for record in happened(done, name, metrics):
            records.write(record, file)
    return folder


#: Made-up metrics: of the first less is better, the second is called as a column is.
MAE, ERROR = Metric("mae", more_is_better=False), Metric("error", percent=True)


def happened(
    cycles: int, name: str = "a", metrics: tuple[Metric, ...] = ()
) -> list[Any]:
    """Records; the first of ``metrics`` is 6, 3, 2 …, the others are 10 %, 20 % …"""
    found: list[Any] = []
    if metrics:
        found += [records.Metrics(time_s=2.0, task="job", cycle=1, metrics=metrics)]
    for cycle in range(1, cycles + 1):
        for event, after_s, facts in (
            *([(records.Joined, 0.0, {})] if cycle == 1 else ()),
            (records.Allocated, 0.0, {"samples": 9, "steps": 1, "predicted_s": 1.0}),
            (records.Downloaded, 0.25, {}),
            (records.Trained, 0.5, {"samples": 9, "batches": 1, "loss": 1.0}),
            (records.Uploaded, 1.0, {}),
        ):
            about = {"task": "job", "cycle": cycle, "learner": name}
            found.append(event(time_s=2.0 * cycle + after_s, **about, **facts))
        end: dict[str, Any] = {"time_s": 2.0 * cycle + 1.0, "task": "job"}
        end["cycle"] = cycle
        values: dict[str, float | None] = {
            metric.name: cycle / 10 for metric in metrics or (ACCURACY,)
        }
        values |= {metric.name: 6.0 / cycle for metric in metrics[:1]}
        found += [
            records.Aggregated(
                learners=1,
                samples=9,
                cycle_s=1.0,
                max_staleness=0,
                mean_staleness=0.0,
                truancy=0.0,
                utilisation=1.0,
                **end,
            ),
            records.Evaluated(metrics=values, loss=1.0 / cycle, **end),
        ]
    return found
