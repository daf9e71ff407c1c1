"""Code of an orchestrator runs where a device's owner trusts its hash, nowhere else."""

import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.learner.test_source import SPEC

from melisma.bundles.bundle import Bundle, digest
from melisma.errors import ConfigError, DataError
from melisma.fleets.messages import TaskSpec, Untrusted
from melisma.fleets.served import ModelServer
from melisma.learner import bundles
from melisma.learner.bundles import TrustedBundles, place
from melisma.learner.fog import FogLearner
from melisma.learner.service import FogService

RAN: list[str] = []
#: A module that says when it runs, and makes a model of so many classes.
SOURCE = """
from torch import nn
from {tests} import RAN
import my_sizes

RAN.append("{name}")

def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, my_sizes.CLASSES))
"""


def code(classes: int = 10) -> Bundle:
    text = SOURCE.format(tests=__name__, name=f"net-{classes}")
    sizes = f"CLASSES = {classes}\n"
    return Bundle.of({"my_nets.py": text.encode(), "my_sizes.py": sizes.encode()})


def spec_of(bundle: Bundle | str, **changes: Any) -> TaskSpec:
    hash = getattr(bundle, "hash", bundle)
    given = {"model": "my_nets:net", "bundle": hash} | changes
    return msgspec.structs.replace(SPEC, **given)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("bundle_")]:
        del sys.modules[name]
    RAN.clear()
    return tmp_path


class Orchestrator:
    """Sends a bundle, or whatever else, and counts how often."""

    def __init__(self, sent: Any) -> None:
        self.sent, self.asked = sent, 0

    def bundle(self, hash: str) -> object:
        self.asked += 1
        return ModelServer([], self.sent).bundle(hash)


class Liar(Orchestrator):
    def bundle(self, hash: str) -> object:
        self.asked += 1
        return self.sent


def device(orchestrator: Orchestrator, *trusted: str, **options: Any) -> FogService:
    trust = TrustedBundles(trusted, options.pop("ask", None))
    learner = FogLearner(name="pi", bundles=trust, **options)
    return FogService(learner, bundles_of=lambda: orchestrator)


def classes_of(service: FogService) -> int:
    model: Any = service._device._tasks[SPEC.task].model
    return int(model[1].out_features)


def test_trusted_code_makes_the_model_and_needs_no_other_leave() -> None:
    bundle = code()
    service = device(Orchestrator(bundle), bundle.hash)
    service.prepare(spec_of(bundle))
    assert (RAN, classes_of(service)) == (["net-10"], 10)
    assert "my_nets" not in sys.modules


def test_untrusted_code_is_laid_out_to_be_read_and_does_not_run(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = code()
    orchestrator = Orchestrator(bundle)
    service = device(orchestrator, "0" * 64, allowed=["my_nets:net"])
    for _ in range(3):
        with pytest.raises(Untrusted, match=f"{bundle.hash} is not trusted on this"):
            service.prepare(spec_of(bundle))
    (line,) = caplog.messages  # once, in one line
    folder = cache / "melisma" / "bundles" / bundle.hash
    assert f"melisma join … --trust {bundle.hash}" in line
    assert str(folder) in line
    assert "\n" not in line
    assert (folder / "my_sizes.py").read_text() == "CLASSES = 10\n"
    assert (RAN, orchestrator.asked) == ([], 1)
    service.prepare(SPEC)  # and other tasks go on


def test_it_is_fetched_once_and_found_after_a_restart() -> None:
    bundle = code()
    orchestrator = Orchestrator(bundle)
    for _ in range(2):
        device(orchestrator, bundle.hash).prepare(spec_of(bundle))
    assert orchestrator.asked == 1


OTHERS: dict[str, Any] = {
    "another bundle": dict(code(3).files),
    "more files": dict(code().files) | {"more.py": b""},
    "above": {"../my_nets.py": b""},
    "absolute": {"/my_nets.py": b""},
    "NUL": {"my_nets\0.py": b""},
    "text": {"my_nets.py": "text"},
    "no files": {},
    "nothing": None,
    "bytes": b"x",
    "pairs": [("my_nets.py", b"")],
}


@pytest.mark.parametrize("sent", OTHERS.values(), ids=OTHERS)
def test_other_files_than_those_of_the_hash_are_refused(cache: Path, sent: Any) -> None:
    bundle = code()
    service = device(Liar(sent), bundle.hash)
    with pytest.raises(DataError) as raised:
        service.prepare(spec_of(bundle))
    assert "\n" not in str(raised.value)
    assert RAN == []
    assert list(cache.rglob("*")) == []  # nothing was written
    service.prepare(SPEC)


@pytest.mark.parametrize("name", ["../x.py", "/x.py", "X/../x.py", "x\0.py", "con/.py"])
def test_hostile_paths_are_refused_though_they_have_the_hash(
    cache: Path, name: str
) -> None:
    files = {name: b"1 / 0", "my_nets.py": b""}
    hash = digest(files)
    service = device(Liar(files), hash)
    with pytest.raises(DataError, match="is no file of a bundle"):
        service.prepare(spec_of(hash))
    assert list(cache.rglob("*")) == []


def test_what_was_changed_on_disk_is_not_run(cache: Path) -> None:
    bundle = code()
    orchestrator = Orchestrator(bundle)
    device(orchestrator, bundle.hash).prepare(spec_of(bundle))
    RAN.clear()
    (place(bundle.hash) / "my_nets.py").write_text("1 / 0\n")
    target = cache / "elsewhere.py"
    target.write_bytes(bundle.files["my_sizes.py"])
    (place(bundle.hash) / "my_sizes.py").unlink()
    (place(bundle.hash) / "my_sizes.py").symlink_to(target)
    device(orchestrator, bundle.hash).prepare(spec_of(bundle))
    assert orchestrator.asked == 2
    assert not (place(bundle.hash) / "my_sizes.py").is_symlink()
    assert target.read_bytes() == bundle.files["my_sizes.py"]


def test_a_full_disk_costs_nothing_but_the_copy(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (cache / "melisma").write_text("a file where the folder would be")
    bundle = code()
    orchestrator = Orchestrator(bundle)
    service = device(orchestrator)
    for _ in range(2):
        with pytest.raises(Untrusted):
            service.prepare(spec_of(bundle))
    assert (orchestrator.asked, "cannot be written" in caplog.text) == (1, True)
    device(orchestrator, bundle.hash).prepare(spec_of(bundle))


def test_a_device_keeps_a_limited_number_of_bundles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bundles, "MOST_KEPT", 3)
    for classes in range(1, 6):
        with pytest.raises(Untrusted):
            device(Orchestrator(code(classes))).prepare(spec_of(code(classes)))
    assert len(list(place("").iterdir())) == 3
    assert place(code(5).hash).exists()


def test_a_device_is_not_sent_bundles_without_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bundles, "MOST_KEPT", 3)
    service, trusted = device(Orchestrator(code()), code(9).hash), code(9)
    for classes in range(1, 9):
        service._bundles_of = lambda n=classes: Orchestrator(code(n))  # type: ignore[misc]
        with pytest.raises(Untrusted, match="not trusted"):
            service.prepare(spec_of(code(classes)))
    assert len(caplog.messages) == 3
    assert len(list(place("").iterdir())) == 3
    service._bundles_of = lambda: Orchestrator(trusted)
    service.prepare(spec_of(trusted))


def test_another_bundle_has_its_own_modules_of_the_same_names() -> None:
    first, second = code(4), code(5)
    both = (first.hash, second.hash)
    service = device(Orchestrator(first), *both)
    for bundle, classes in ((first, 4), (second, 5), (first, 4)):
        service._bundles_of = lambda bundle=bundle: Orchestrator(bundle)  # type: ignore[misc]
        service.prepare(spec_of(bundle))
        assert classes_of(service) == classes
    assert RAN == ["net-4", "net-5"]  # each once


def test_names_that_are_not_in_it_need_leave_still() -> None:
    bundle = code()
    service = device(Orchestrator(bundle), bundle.hash)
    for name in ("os:getcwd", "my_net:net", "torch.nn:Identity"):
        with pytest.raises(ConfigError, match="unknown model"):
            service.prepare(spec_of(bundle, model=name))
    with pytest.raises(ConfigError, match="unknown task"):
        service.prepare(spec_of(bundle, recipe="os:getcwd"))
    # Nor is a package of a bundle a way around.
    service.prepare(spec_of(bundle))
    package = f"bundle_{bundle.hash[:16]}.my_nets:net"
    with pytest.raises(ConfigError, match="unknown model"):
        service.prepare(msgspec.structs.replace(SPEC, model=package))


def test_what_a_module_only_imports_is_not_called_by_its_name() -> None:
    text = "from os import abort\nfrom functools import partial\nfrom torch import nn\n"
    text += "from torch.nn import Identity\nmade = partial(nn.Linear, 784, 10)\n"
    bundle = Bundle.of(
        {"my_nets.py": text.encode(), "kit.py": b"from my_nets import *"}
    )
    service = device(Orchestrator(bundle), bundle.hash)
    for name in ("abort", "Identity"):
        for key in ("model", "recipe"):
            with pytest.raises(ConfigError, match="not of the bundle: define it in"):
                service.prepare(spec_of(bundle, **{key: f"my_nets:{name}"}))
    for name in ("my_nets:made", "kit:made"):
        service.prepare(spec_of(bundle, model=name))


def test_no_bundle_that_was_not_asked_for_is_looked_at() -> None:
    orchestrator = Orchestrator(code())
    device(orchestrator).prepare(SPEC)
    with pytest.raises(ConfigError, match="unknown model"):
        device(orchestrator).prepare(msgspec.structs.replace(SPEC, model="my_nets:net"))
    assert orchestrator.asked == 0


@pytest.mark.parametrize(
    "hash", ["../../x", "AB" * 32, "0" * 63, "x", 3, 10**63, "0" * 64 + "\n"]
)
def test_an_order_names_a_bundle_by_its_hash(hash: Any) -> None:
    with pytest.raises(ConfigError, match=r"bundle .*: give a SHA-256"):
        device(Orchestrator(None)).prepare(spec_of(hash))


@pytest.mark.parametrize("given", ["abc", "0" * 63, "0" * 65, "G" * 64, "", "AB" * 32])
def test_only_a_whole_hash_is_trusted(given: str) -> None:
    with pytest.raises(ConfigError, match=r"--trust .*: give the whole hash"):
        TrustedBundles([given])


class Owner:
    """Answers when told to, as people do."""

    def __init__(self, *answers: bool) -> None:
        self.answers, self.shown = list(answers), list[Bundle]()
        self.reads, self.answered = threading.Event(), threading.Event()

    def __call__(self, bundle: Bundle, folder: Path) -> bool:
        self.shown.append(bundle)
        self.reads.wait()
        return self.answers.pop(0)


def settled(service: FogService) -> None:
    """Wait until the owner has answered."""
    with service._device.bundles._asking:
        pass


@pytest.mark.parametrize("yes", [True, False])
def test_an_owner_is_asked_once_while_the_orchestrator_tries_again(yes: bool) -> None:
    bundle, owner = code(), Owner(yes)
    service = device(Orchestrator(bundle), ask=owner)
    for _ in range(3):
        with pytest.raises(Untrusted, match="waits for this device's owner"):
            service.prepare(spec_of(bundle))
    assert RAN == []
    owner.reads.set()
    settled(service)
    if yes:
        service.prepare(spec_of(bundle))
    else:
        with pytest.raises(Untrusted, match="is not trusted on this device"):
            service.prepare(spec_of(bundle))
    assert (["net-10"] if yes else []) == RAN
    assert owner.shown == [bundle]


def test_a_question_that_fails_is_a_no() -> None:
    def fails(bundle: Bundle, folder: Path) -> bool:
        threading.excepthook = lambda args: None
        raise OSError("the terminal is gone")

    bundle, before = code(), threading.excepthook
    service = device(Orchestrator(bundle), ask=fails)
    try:
        with pytest.raises(Untrusted, match="waits"):
            service.prepare(spec_of(bundle))
        settled(service)
    finally:
        threading.excepthook = before
    with pytest.raises(Untrusted, match="not trusted"):
        service.prepare(spec_of(bundle))


def test_two_bundles_are_asked_about_one_after_the_other() -> None:
    first, second, owner = code(4), code(5), Owner(False, True)
    service = device(Orchestrator(first), ask=owner)
    for bundle in (first, second):
        service._bundles_of = lambda bundle=bundle: Orchestrator(bundle)  # type: ignore[misc]
        with pytest.raises(Untrusted, match="waits"):
            service.prepare(spec_of(bundle))
    owner.reads.set()
    settled(service)
    with pytest.raises(Untrusted, match="waits"):
        service.prepare(spec_of(second))
    settled(service)
    service.prepare(spec_of(second))
    assert owner.shown == [first, second]


def test_what_the_code_raises_is_no_end_of_the_learner() -> None:
    bundle = Bundle.of({"my_nets.py": b"1 / 0\n"})
    service = device(Orchestrator(bundle), bundle.hash)
    for _ in range(2):
        with pytest.raises(ConfigError, match="ZeroDivisionError"):
            service.prepare(spec_of(bundle))
    service.prepare(SPEC)


def test_an_orchestrator_without_a_bundle_says_so() -> None:
    for served in (None, code(3)):
        with pytest.raises(DataError, match="there is no such bundle"):
            ModelServer([], served).bundle(code().hash)


def test_who_allows_no_model_is_told_once_how_to(
    caplog: pytest.LogCaptureFixture,
) -> None:
    learner = device(Orchestrator(code()))
    wanted = msgspec.structs.replace(SPEC, model="my_nets:net")
    for _ in range(3):
        with pytest.raises(ConfigError, match="unknown model"):
            learner.prepare(wanted)
    (line,) = caplog.messages
    assert "`melisma join … --allow my_nets:net`" in line
