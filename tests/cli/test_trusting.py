"""`--bundle` and `--trust` at the command line, and what an owner is shown."""

import os
import sys
import termios
from pathlib import Path

import pytest
from tests.cli.running import Melisma, quick_job

from melisma.bundles.bundle import Bundle
from melisma.cli import trusting
from melisma.cli.trusting import ask, asker, shown, typed


@pytest.mark.parametrize("given", ["abc", "0" * 63, "AB" * 32, "../" + "0" * 61])
def test_what_is_no_hash_is_not_trusted(melisma: Melisma, given: str) -> None:
    done = melisma("join", "127.0.0.1:1", "--trust", given)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"--trust {given!r}: give the whole hash" in done.err


def test_nothing_to_bundle_is_one_line(melisma: Melisma, tmp_path: Path) -> None:
    done = melisma("serve", quick_job(tmp_path), "--bundle")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "there is nothing to bundle" in done.err
    job = quick_job(tmp_path, "model = 'no_such_module:net'\n")
    done = melisma("serve", job, "--bundle")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "there is no module 'no_such_module'" in done.err
    assert not (tmp_path / "runs").exists()


def test_no_text_passes_for_ours_and_none_is_hidden() -> None:
    text = "x = 1\x1b[2J\rhidden = 2  # \u202e\nother.py, 3 bytes\n"
    lines = list(shown(Bundle.of({"kit/a.py": text.encode(), "b.py": b""})))
    assert lines == [
        "b.py, 0 bytes",
        f"kit/a.py, {len(text.encode())} bytes",
        r"    1 | x = 1\x1b[2J",
        r"    2 | hidden = 2  # \u202e",
        "    3 | other.py, 3 bytes",
    ]


@pytest.mark.parametrize(
    ("answer", "trusted"),
    [("yes", True), ("y", False), ("", False), ("no", False), ("yes please", False)],
)
def test_only_yes_is_a_yes(
    answer: str,
    trusted: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(trusting, "typed", lambda: answer)
    bundle = Bundle.of({"mine.py": b"x = 1\n"})
    assert ask(bundle, Path("/the/place")) is trusted
    told = capsys.readouterr()
    assert "x = 1" in told.out
    assert "/the/place" in told.err
    assert bundle.hash in told.err


def test_what_was_typed_before_the_question_is_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner, terminal = os.openpty()
    flush = termios.tcflush

    def flush_then_answer(file: int, queue: int) -> None:
        flush(file, queue)
        os.write(owner, b"no\n")

    monkeypatch.setattr(termios, "tcflush", flush_then_answer)
    os.write(owner, b"yes\n")
    assert typed(terminal) == "no"
    for file in (owner, terminal):
        os.close(file)
    assert typed(terminal) == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_only_an_owner_at_a_terminal_is_asked(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert asker(silent=True) is None
    assert asker(silent=False) is (trusting.ask if terminal else None)
    monkeypatch.setattr(sys, "stdin", None)
    assert asker(silent=False) is None


@pytest.mark.parametrize("flag", ["--quiet", "--until-eof"])
def test_a_quiet_learner_and_one_with_a_parent_never_ask(
    melisma: Melisma, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    asked = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("melisma.cli.learner._exit_at_eof", lambda: None)
    monkeypatch.setattr(
        "melisma.launch.joining.join",
        lambda address, **options: asked.append(options["ask"]),
    )
    monkeypatch.setattr("melisma.cli.learner.end", lambda code: None)
    melisma("join", "127.0.0.1:1", flag)
    melisma("join", "127.0.0.1:1")
    assert asked == [None, trusting.ask]
