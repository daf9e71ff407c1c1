"""Learners in a real Chromium beside Python's: one run, one model."""

import base64
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.browser.tabs import Live, enter, seen, tabs_of
from tests.fleets.learners import JOB, changed, of
from tests.web.browser import PATIENCE_S, Page, browsing

from melisma import rpc
from melisma.browser.phones import CALLS, TOKEN_FILE, Phones
from melisma.errors import ConfigError
from melisma.fleets.attendance import Attendance
from melisma.fleets.served import ModelServer
from melisma.jobs.building import task_of
from melisma.jobs.schema import Job
from melisma.learner.learner import Learner
from melisma.learning.parameters import parameters_of
from melisma.rpc.tokens import Tokens
from melisma.runs.records import Allocated, Dropped, Evaluated, Record, Uploaded
from melisma.system.law import Mode
from melisma.units import Deadline

pytestmark = pytest.mark.browser

NAMES = ["ada", "bo", "cy", "di", "ed", "fay"]


def short(**facts: Any) -> Job:
    return changed(**{"scheme": "csa", "samples": 400, "shard": 20, **facts})


def accuracy(records: list[Record]) -> float:
    return float(of(Evaluated, records)[-1].metrics["accuracy"])


def uploads(records: list[Record], *names: str) -> bool:
    sent = {record.learner for record in of(Uploaded, records)}
    return {*names} <= sent


@pytest.mark.slow
def test_a_page_trains_and_its_updates_are_as_anybodys(
    page: Page, tmp_path: Path
) -> None:
    run = Live(short(cycles=2, deadline=Deadline(3.0)), tmp_path / "run", 1)
    with tabs_of(page) as tabs:
        opened_s = time.monotonic()
        tab = tabs.join(run.link, "ada")
        run.until(lambda records: uploads(records, "ada"))
        print(f"\nfrom the link to an update: {time.monotonic() - opened_s:.1f} s")
        records = run.end()
        assert {r.learner for r in of(Uploaded, records)} == {"ada"}
        assert accuracy(records) > 0.5
        assert tab.until("document.getElementById('updates').textContent === '2'")
        assert "The training is over" in seen(tab, "state")
        assert not [error for error in tab.errors if "REFUSED" not in error]


@pytest.mark.slow
@pytest.mark.alone
def test_six_browsers_beside_two_python_learners_learn_as_eight(
    page: Page, tmp_path: Path
) -> None:
    """The same accuracy within 3 %, and every update in time."""
    job = short(cycles=4, samples=4000, deadline=Deadline(4.0))
    both = [Learner(name=name) for name in ("p", "q")]
    run = Live(job, tmp_path / "mixed", 8, python=both)
    with tabs_of(page) as tabs:
        for name in NAMES:
            tabs.join(run.link, name)
        mixed = run.end()
    eight = [Learner(name=f"p{n}") for n in range(8)]
    python = Live(job, tmp_path / "python", 8, python=eight).end()
    assert uploads(mixed, *NAMES, "p", "q")
    assert not [record for record in of(Uploaded, mixed) if record.late]
    assert accuracy(mixed) == pytest.approx(accuracy(python), abs=0.03)
    assert accuracy(mixed) > 0.8


@pytest.mark.slow
@pytest.mark.alone
def test_a_run_goes_on_without_a_closed_and_a_frozen_tab(
    page: Page, tmp_path: Path
) -> None:
    job = short(cycles=6, samples=1200, deadline=Deadline(3.0))
    run = Live(job, tmp_path / "run", 4, python=[Learner(name="p")])
    with tabs_of(page) as tabs:
        for name in ("ada", "bo", "cy"):
            tabs.join(run.link, name)
        run.until(lambda records: uploads(records, "ada", "bo", "cy", "p"))
        tabs.close("ada")
        tabs.open["bo"].call("Page.setWebLifecycleState", state="frozen")
        records = run.end()
        lost = {r.learner for r in records if isinstance(r, Dropped)}
        assert len(of(Evaluated, records)) == 6
        last = {r.learner for r in of(Uploaded, records) if r.cycle == 6}
        assert "ada" not in last
        assert {"cy", "p"} <= last
        assert lost <= {"ada", "bo"}


@pytest.mark.slow
def test_a_second_device_of_one_name_is_told_to_choose_another(
    page: Page, tmp_path: Path
) -> None:
    run = Live(short(cycles=1, deadline=Deadline(3.0)), tmp_path / "run", 2)
    with tabs_of(page) as tabs:
        # The page says what is wrong if it never connects.
        tabs.join(run.link, "ada").until(
            "document.getElementById('link').classList.contains('live')"
        )
        page.go(run.link)
        page.until("!document.getElementById('join').disabled")
        enter(page, "ada")
        page.until("!document.getElementById('error').hidden")
        assert "choose another one" in seen(page, "error")
        page.until("!document.getElementById('form').hidden")
        enter(page, "bo")
        assert {r.learner for r in of(Uploaded, run.end())} == {"ada", "bo"}


@pytest.mark.slow
def test_jobs_that_browsers_cannot_run_are_refused_or_have_no_link(
    tmp_path: Path,
) -> None:
    job = short(cycles=1, checks=0.5, deadline=Deadline(2.0))
    with pytest.raises(ConfigError, match="--phones: a browser does not do checks"):
        Live(job, tmp_path / "refused", 1, phones=Phones(required=True))
    learner = [Learner(name="p")]
    run = Live(job, tmp_path / "run", 1, python=learner)
    run.end()
    assert run.link == ""
    assert "checks" in run.phones.why


@contextmanager
def page_server(
    folder: Path, *services: object, **options: Any
) -> Iterator[tuple[rpc.Server, Phones]]:
    """The page, and nothing to learn, on a port with tokens."""
    phones = Phones(lifetime_s=60.0)
    phones.check(JOB, [])
    options = {"port": 0, "say": len, "folder": folder, **options}
    options["routes"] = phones.routes
    with rpc.serve(ModelServer([]), *services, **options) as server:
        phones.attend(server)
        yield server, phones


def test_the_link_has_a_token_that_only_learns_and_ends(tmp_path: Path) -> None:
    with page_server(tmp_path, plain=True) as (_, phones):
        tokens = Tokens(tmp_path / "tokens.json")
        token = phones.link.partition("#token=")[2]
        identity = tokens.identify(token)
        assert identity.patterns == CALLS
        assert not any(map(identity.may_call, ("watch", "control", "relay", "bundle")))
        (entry,) = tokens.list()
        assert entry.expires is not None
        assert (tmp_path / TOKEN_FILE).read_text().strip() == token


def test_a_link_that_lets_nobody_in_says_why_on_the_page(
    page: Page, tmp_path: Path
) -> None:
    with page_server(tmp_path, plain=True) as (server, phones):
        tokens = Tokens(tmp_path / "tokens.json")

        def shown(token: str) -> str:
            page.go("about:blank")
            page.go(f"{server.url}/join#token={token}")
            page.until("!document.getElementById('error').hidden")
            assert "token" not in page.look("location.href")  # nobody reads it there
            return seen(page, "error")

        good = phones.link.partition("#token=")[2]
        page.go(phones.link)
        page.until("!document.getElementById('form').hidden")
        tokens.revoke(good.partition(".")[0])
        assert "Ask for a new one" in shown(good)
        assert "expired" in shown(tokens.add(None, CALLS, -1.0))
        assert "not for phones" in shown(tokens.add(None, ("watch",)))
        assert "Ask for a new one" in shown("nonsense")


def test_the_page_loads_nothing_from_elsewhere_and_runs_no_text(
    page: Page, tmp_path: Path
) -> None:
    with page_server(tmp_path, plain=True) as (server, phones):
        page.go(phones.link)
        page.until("!document.getElementById('form').hidden")
        loaded = page.look(
            "performance.getEntriesByType('resource').map((entry) => entry.name)"
        )
        assert loaded
        assert all(name.startswith(server.url) for name in loaded)
        page.look(
            "const text = document.createElement('script');"
            "text.textContent = 'window.ran = true'; document.body.append(text)"
        )
        assert page.look("window.ran ?? false") is False


def test_a_browser_joins_over_tls_that_the_local_authority_signed(
    tmp_path: Path,
) -> None:
    """Chromium is told to trust the server's key; `tests/rpc` checks the chain."""
    with page_server(tmp_path, local_ca=True) as (server, phones):
        signed = x509.load_pem_x509_certificate((tmp_path / "signed.pem").read_bytes())
        key = signed.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )
        trusted = base64.b64encode(hashlib.sha256(key).digest()).decode()
        with browsing(f"--ignore-certificate-errors-spki-list={trusted}") as page:
            page.go(phones.link)
            page.until("!document.getElementById('join').disabled")
            enter(page, "ada")
            page.until("document.getElementById('link').textContent === 'connected'")
            assert list(server.peers) == ["ada"]
            fetched = "fetch('join/ca').then((answer) => answer.text())"
            assert page.look(fetched) == (tmp_path / "authority.pem").read_text()


BATTERY = """
const battery = new EventTarget();
battery.level = 0.4;
battery.charging = false;
navigator.getBattery = async () => battery;
"""


def test_a_phone_on_battery_is_away_if_its_owner_wants_it_so(
    page: Page, tmp_path: Path
) -> None:
    """The battery is made up, so that it can be plugged in."""
    method = "Page.addScriptToEvaluateOnNewDocument"
    script = page.call(method, source=BATTERY)["identifier"]
    attendance = Attendance()
    with page_server(tmp_path, attendance, plain=True) as (_, phones):
        page.go(phones.link)
        page.until("!document.getElementById('join').disabled")
        page.until("document.getElementById('device').textContent.includes('40 %')")
        page.look("document.getElementById('charging').click()")
        enter(page, "ada")
        page.until("document.getElementById('state').textContent.includes('charging')")
        until(lambda: {*attendance.absent} == {"ada"})
        page.look("battery.charging = true")
        page.look("battery.dispatchEvent(new Event('chargingchange'))")
        until(lambda: not attendance.absent)
        page.look("document.getElementById('charging').click()")
    page.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    page.errors.clear()


def until(true: Callable[[], bool]) -> None:
    """Poll until something is true; fail after a minute."""
    ends_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < ends_s


CHOOSE = """
(async () => {
  const bytes = Uint8Array.from(atob(%s), (c) => c.charCodeAt(0));
  const chosen = new DataTransfer();
  chosen.items.add(new File([bytes], "own.npz"));
  const input = document.getElementById("files");
  input.files = chosen.files;
  input.dispatchEvent(new Event("change"));
})()
"""


def choose(tab: Page, path: Path) -> None:
    """Choose a file on the page."""
    tab.look(CHOOSE % repr(base64.b64encode(path.read_bytes()).decode()))


@pytest.mark.slow
def test_a_phone_trains_on_files_that_never_leave_it(
    page: Page, tmp_path: Path
) -> None:
    job = short(cycles=2, deadline=Deadline(3.0), mode=Mode.FEDERATED)
    own = task_of(job).data.train[np.arange(200)]
    x, y = (own[name].numpy() for name in ("x", "y"))
    np.savez_compressed(tmp_path / "own.npz", x=x, y=y)
    np.savez(tmp_path / "other.npz", x=x[:, ..., :5], y=y)
    run = Live(job, tmp_path / "run", 1)
    with tabs_of(page):
        page.go(run.link)
        page.until("!document.getElementById('own').hidden")
        assert "Your data never leaves this device" in seen(page, "promise")
        choose(page, tmp_path / "other.npz")
        page.until(
            "document.getElementById('files-said').textContent.includes('task has')"
        )
        assert page.look("document.getElementById('join').disabled")
        choose(page, tmp_path / "own.npz")
        page.until("!document.getElementById('join').disabled")
        enter(page, "ada")
        records = run.end()
    assert {r.learner for r in of(Uploaded, records)} == {"ada"}
    assert {r.samples for r in of(Allocated, records)} == {200}
    model_bytes = sum(
        value.nbytes for value in parameters_of(task_of(job).model).values()
    )
    beside = run.server.metrics.received_bytes - 2 * model_bytes
    assert 0 < beside < x.nbytes / 4, "its two updates, and nothing like its data"
