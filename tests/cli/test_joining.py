"""`melisma join`: exit codes by which a service knows whether to try again."""

from pathlib import Path

from tests.cli.running import Melisma
from tests.rpc.test_outages import in_its_place, with_certificate
from tests.rpc.test_security import secured, with_token

from melisma.cli import NO_ACCESS, UNVERIFIED


def test_who_is_not_let_in_by_the_server_itself_exits_for_good(
    melisma: Melisma, tmp_path: Path
) -> None:
    with secured(tmp_path) as server:
        done = melisma("join", with_token(server.invite(), "ab.wrong"), "--quiet")
    assert (done.code, "does not accept this token" in done.err) == (NO_ACCESS, True)


def test_who_meets_another_certificate_first_may_try_again(
    melisma: Melisma, tmp_path: Path
) -> None:
    with in_its_place(0, with_certificate(tmp_path, 1), times=1) as place:
        join = f"melisma://ab.secret@127.0.0.1:{place.port}#{'00' * 32}"
        done = melisma("join", join, "--quiet")
    assert (done.code, "another certificate" in done.err) == (UNVERIFIED, True)


def test_the_unit_gives_up_where_trying_again_is_of_no_use() -> None:
    unit = Path(__file__).parents[2] / "deploy" / "melisma-learner.service"
    assert f"\nRestartPreventExitStatus={NO_ACCESS}\n" in unit.read_text("utf-8")
