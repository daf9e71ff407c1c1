"""A run that is under way, in a real kernel: one output, updated until it is over."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

Message = dict[str, Any]

SETUP = """
import asyncio, melisma as mel
from melisma.views import display
display.PAUSE_S = 0.02  # cycles here take much less than a second
def job(**keys):
    return mel.Job(**{"samples": 400, "deadline": "0.3 s", "cycles": 60} | keys)
"""


class Kernel:
    """A kernel, and what it has sent."""

    def __init__(self, folder: Path) -> None:
        self.manager, self.client = start_new_kernel(
            kernel_name="python3", cwd=str(folder)
        )

    def start(self, code: str) -> str:
        return str(self.client.execute(code))

    def messages(
        self, until: Callable[[Message], bool], within_s: float = 120.0
    ) -> list[Message]:
        found, end_s = list[Message](), time.monotonic() + within_s
        while not found or not until(found[-1]):
            assert time.monotonic() < end_s, found
            try:
                found.append(self.client.get_iopub_msg(timeout=1.0))
            except Empty:
                continue
        return found

    def run(self, code: str) -> list[Message]:
        """Return what a cell sends, until it has ended."""
        cell = self.start(code)
        return self.messages(lambda message: is_end(message, cell))


def is_end(message: Message, cell: str) -> bool:
    is_idle = message["content"].get("execution_state") == "idle"
    return is_idle and bool(message["parent_header"]["msg_id"] == cell)


def html(message: Message) -> str:
    return str(message["content"].get("data", {}).get("text/html", ""))


def is_over(message: Message) -> bool:
    return bool(re.search(r"finished|cut short|failed", html(message)))


def cycles(message: Message) -> int:
    """Return how many cycles of a run that is under way a message shows."""
    found = re.findall(r"running, (\d+) of", html(message))
    return int(found[0]) if found else 0


def outputs(messages: list[Message]) -> dict[str, list[Message]]:
    """Return what was displayed, by display id; each is begun once."""
    found: dict[str, list[Message]] = {}
    for message in messages:
        if message["msg_type"] in ("display_data", "update_display_data"):
            own = found.setdefault(message["content"]["transient"]["display_id"], [])
            own.append(message)
    for first, *others in found.values():
        assert first["msg_type"] == "display_data"
        assert {other["msg_type"] for other in others} <= {"update_display_data"}
    return found


def the_output(messages: list[Message]) -> list[str]:
    (shown,) = outputs(messages).values()
    return [html(message) for message in shown]


def kinds(messages: list[Message]) -> set[str]:
    return {message["msg_type"] for message in messages} - {"status", "execute_input"}


def words(messages: list[Message], name: str) -> str:
    return "".join(
        message["content"]["text"]
        for message in messages
        if message["msg_type"] == "stream" and message["content"]["name"] == name
    )


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    kernel = Kernel(tmp_path_factory.mktemp("notebook"))
    try:
        assert "error" not in kinds(kernel.run(SETUP))
        yield kernel
    finally:
        kernel.client.stop_channels()
        kernel.manager.shutdown_kernel(now=True)


@pytest.mark.slow
def test_a_cell_has_one_output_which_is_updated_until_the_run_is_over(
    kernel: Kernel,
) -> None:
    began_s = time.monotonic()
    messages = kernel.run("run = mel.simulate(job(), runs=None)\nrun")
    took_s = time.monotonic() - began_s
    assert kinds(messages) == {"display_data", "update_display_data"}
    first, *updates = the_output(messages)
    assert "running, 0 of 60 cycles" in first
    assert 2 <= len(updates) <= 2 + took_s / 0.02
    assert all("running" in page for page in updates[:-1])
    assert "finished, 60 of 60 cycles, in memory" in updates[-1]
    assert updates[-1].count("<tr>") == 1 + 5
    assert "<polyline" in updates[-1]
    assert not any("<script" in page for page in updates)


@pytest.mark.slow
def test_shown_again_a_run_that_has_ended_is_a_result_as_ever(kernel: Kernel) -> None:
    kernel.run("ended = mel.simulate(job(cycles=2), runs=None)")
    (result,) = [m for m in kernel.run("ended") if m["msg_type"] == "execute_result"]
    assert "finished, 2 of 2 cycles" in html(result)


@pytest.mark.slow
def test_a_run_goes_on_being_shown_after_its_cell_has_ended(kernel: Kernel) -> None:
    ended = kernel.run("work = asyncio.create_task(mel.simulate_async(job()))")
    later = kernel.messages(is_over)
    shown = the_output(ended + later)
    assert len(shown) > 2
    assert "finished, 60 of 60 cycles" in shown[-1]
    cells = {m["parent_header"]["msg_id"] for m in later if is_over(m)}
    assert cells == {ended[-1]["parent_header"]["msg_id"]}


@pytest.mark.slow
def test_a_run_that_is_opened_under_way_is_followed_to_its_end(kernel: Kernel) -> None:
    begun = kernel.run(
        "seen, control = asyncio.Event(), mel.Control()\n"
        "loop = asyncio.get_running_loop()\n"
        "def watch(record):\n"
        "    if isinstance(record, mel.Evaluated) and record.cycle == 2:\n"
        "        loop.call_soon_threadsafe(seen.set)\n"
        "        control.pause()\n"
        "work = asyncio.create_task(mel.simulate_async(\n"
        "    job(name='opened'), watch=watch, control=control))\n"
        "await seen.wait()"
    )
    assert not outputs(begun)  # who watches it shows it himself
    opened = kernel.run("mel.open('runs/opened')")
    assert kinds(opened) == {"display_data"}
    kernel.run("control.resume()")
    later = kernel.messages(is_over)
    assert "finished, 60 of 60 cycles, runs/opened" in the_output(opened + later)[-1]


@pytest.mark.slow
def test_two_runs_in_one_cell_are_two_outputs(kernel: Kernel) -> None:
    messages = kernel.run(
        "both = await asyncio.gather(*(\n"
        "    mel.simulate_async(job(name=name), runs=None) for name in 'ab'))"
    )
    both = outputs(messages)
    assert len(both) == 2
    named = [
        {name for message in shown for name in re.findall("<b>(.)</b>", html(message))}
        for shown in both.values()
    ]
    assert sorted(map(sorted, named)) == [["a"], ["b"]]
    assert all(is_over(shown[-1]) for shown in both.values())


@pytest.mark.slow
def test_a_run_that_fails_ends_with_what_there_is(kernel: Kernel) -> None:
    messages = kernel.run(
        "from melisma.schemes import find\n"
        "calls = []\n"
        "def fails(problem):\n"
        "    calls.append(problem)\n"
        "    if len(calls) > 3:\n"
        "        raise mel.InfeasibleError('no more')\n"
        "    return find('csa')(problem)\n"
        "mel.simulate(job(scheme=fails, noise=0.1), runs=None)"
    )
    assert "error" in kinds(messages)
    last = the_output(messages)[-1]
    done = int(re.findall(r"failed, (\d+) of 60 cycles", last)[0])
    assert done
    assert last.count("<tr>") == 1 + min(5, done)


@pytest.mark.slow
def test_an_interrupted_run_says_where_it_ended_and_can_be_resumed(
    kernel: Kernel,
) -> None:
    cell = kernel.start("mel.simulate(job(name='long', cycles=100_000))")
    begun = kernel.messages(lambda message: cycles(message) >= 2)
    kernel.manager.interrupt_kernel()
    messages = begun + kernel.messages(lambda message: is_end(message, cell))
    assert "error" in kinds(messages)
    last = the_output(messages)[-1]
    done = int(re.findall(r"cut short, (\d+) of 100000 cycles", last)[0])
    assert f"<td>{done}</td>" in last

    cell = kernel.start("mel.resume('runs/long')")
    resumed = kernel.messages(lambda message: cycles(message) > done)
    kernel.manager.interrupt_kernel()
    resumed += kernel.messages(lambda message: is_end(message, cell))
    first, *_, last = the_output(resumed)
    assert f"running, {done} of 100000 cycles" in first
    assert int(re.findall(r"cut short, (\d+) of", last)[0]) > done


@pytest.mark.slow
def test_a_run_that_is_awaited_is_interrupted_likewise(kernel: Kernel) -> None:
    code = "await mel.simulate_async(job(name='awaited', cycles=100_000))"
    cell = kernel.start(code)
    messages = kernel.messages(lambda message: cycles(message) >= 2)
    kernel.manager.interrupt_kernel()
    messages += kernel.messages(lambda message: is_end(message, cell))
    if not is_over(outputs(messages).popitem()[1][-1]):  # its thread ends by itself
        messages += kernel.messages(is_over)
    assert "error" in kinds(messages)
    last = the_output(messages)[-1]
    assert re.search(r"cut short, \d+ of 100000 cycles, runs/awaited", last)


@pytest.mark.slow
def test_an_interrupted_comparison_ends_with_the_cycle_under_way(
    kernel: Kernel,
) -> None:
    cell = kernel.start(
        "mel.compare(job(cycles=100_000), ['csa', 'eta'], seeds=1,\n"
        "    begin=lambda cycles: lambda: print('done'))"
    )
    kernel.messages(lambda message: "done" in words([message], "stdout"))
    kernel.manager.interrupt_kernel()
    ended = kernel.messages(lambda message: is_end(message, cell))
    assert "error" in kinds(ended)


@pytest.mark.slow
def test_an_interrupted_learner_leaves(kernel: Kernel) -> None:
    kernel.run(
        "server = mel.serve(job(), learners=2, watch=print).__enter__()\n"
        "import threading\n"
        "def says():\n"
        "    while not server._control.gathering.learners:\n"
        "        pass\n"
        "    print('here')"
    )
    cell = kernel.start(
        "threading.Thread(target=says).start()\nmel.join(server.invite(), name='pi')"
    )
    kernel.messages(lambda message: "here" in words([message], "stdout"))
    kernel.manager.interrupt_kernel()
    ended = kernel.messages(lambda message: is_end(message, cell))
    assert "error" in kinds(ended)
    kernel.run("server.__exit__(None, None, None)")


@pytest.mark.slow
def test_what_cannot_be_drawn_is_said_and_the_run_goes_on(kernel: Kernel) -> None:
    messages = kernel.run(
        "from melisma.views import notebook\n"
        "drawn, pages = notebook.html, []\n"
        "def breaks(*words):\n"
        "    pages.append(words)\n"
        "    return drawn(*words) if len(pages) < 2 else 1 / 0\n"
        "notebook.html = breaks\n"
        "try:\n"
        "    print(len(mel.simulate(job(), runs=None).history.loss))\n"
        "finally:\n"
        "    notebook.html = drawn"
    )
    assert words(messages, "stdout") == "60\n"
    warning = words(messages, "stderr")
    assert warning.count("is not shown any further: ZeroDivisionError") == 1
    assert len(the_output(messages)) == 1


@pytest.mark.slow
def test_a_notebook_that_is_saved_has_the_last_state(tmp_path: Path) -> None:
    notebook: Any = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        cells=[
            nbformat.v4.new_code_cell(f"{SETUP}\nmel.simulate(job(), runs=None)")  # type: ignore[no-untyped-call]
        ]
    )
    NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    (output,) = notebook.cells[0].outputs
    assert "finished, 60 of 60 cycles" in output["data"]["text/html"]


#: What a process does in which nothing is shown.
QUICK = "mel.simulate(mel.Job(cycles=2, samples=400, deadline='0.3 s'), runs=None)"


@pytest.mark.slow
def test_a_plain_process_prints_nothing_and_loads_no_ipython() -> None:
    code = f"import sys, melisma as mel; {QUICK}; print('IPython' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.slow
def test_an_ipython_in_a_terminal_prints_a_run_as_text(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "IPython", "--ipython-dir", str(tmp_path)]
    words += [
        "--no-banner",
        "--colors=NoColor",
        "-c",
        f"import melisma as mel; {QUICK}",
    ]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert re.sub(r"^Out\[\d\]: ", "", done.stdout) == (
        "<Run 'demo' by csa, in memory>\n"
    ), done.stderr
