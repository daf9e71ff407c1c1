"""Metrics of the live run in Prometheus's text format."""

from collections.abc import Iterable, Mapping
from typing import Any

from melisma.rpc.metrics import Metrics
from melisma.views.document import Document

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float | None]


def text(document: Document, status: Mapping[str, Any], metrics: Metrics | None) -> str:
    """Return all samples, one a line; those without a value yet are left out."""
    tasks = list(zip(document.tasks, document.rows.progress, strict=True))

    def by_task(read: Any) -> list[Sample]:
        return [({"task": task.name}, read(progress)) for task, progress in tasks]

    connected = [state for state in status["learners"].values() if state["connected"]]
    families = [
        ("cycle", "gauge", "Whole cycles", by_task(lambda c: c.done)),
        ("metric", "gauge", "Metrics on the test set", _metrics(tasks)),
        ("loss", "gauge", "Test loss", by_task(lambda c: c.last and c.last.loss)),
        ("deadline_seconds", "gauge", "Deadline", by_task(lambda c: c.deadline_s)),
        ("learners_connected", "gauge", "Connected", [({}, len(connected))]),
        ("samples_total", "counter", "Trained", by_task(lambda c: c.samples)),
        ("updates_total", "counter", "Updates by fate", _updates(tasks)),
        ("sent_bytes_total", "counter", "Sent", [({}, status["sent_bytes"])]),
        (
            *("received_bytes_total", "counter", "Received"),
            [({}, status["received_bytes"])],
        ),
        *(_calls(metrics) if metrics else ()),
    ]
    return "".join(_family(*family) for family in families)


def _metrics(tasks: Iterable[Any]) -> list[Sample]:
    return [
        ({"task": task.name, "metric": name}, value)
        for task, progress in tasks
        if progress.last
        for name, value in progress.last.metrics.items()
    ]


def _updates(tasks: Iterable[Any]) -> list[Sample]:
    return [
        ({"task": task.name, "fate": fate}, progress.updates[fate])
        for task, progress in tasks
        for fate in ("counted", "lost")
    ]


def _calls(metrics: Metrics) -> list[tuple[str, str, str, list[Sample]]]:
    latencies = [
        ({"way": way, "function": name}, latency)
        for way, functions in (("out", metrics.called), ("in", metrics.answered))
        for name, latency in list(functions.items())
    ]
    counts: list[Sample] = [(labels, latency.calls) for labels, latency in latencies]
    times: list[Sample] = [(labels, latency.total_s) for labels, latency in latencies]
    failed: list[Sample] = [
        ({"function": name}, count) for name, count in list(metrics.failed.items())
    ]
    return [
        ("calls_total", "counter", "Calls to learners and from them", counts),
        ("call_seconds_total", "counter", "Time that calls took", times),
        ("failed_calls_total", "counter", "Calls without an answer", failed),
    ]


def _family(name: str, kind: str, help: str, samples: Iterable[Sample]) -> str:
    known = [(labels, float(value)) for labels, value in samples if value is not None]
    if not known:
        return ""
    lines = [f"# HELP melisma_{name} {help}.", f"# TYPE melisma_{name} {kind}"]
    for labels, value in known:
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        braced = f"{{{pairs}}}" if pairs else ""
        lines.append(f"melisma_{name}{braced} {value!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
