"""What `melisma serve` is told of phones, before it listens."""

import pytest

from melisma.cli.serving import Reach
from melisma.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"local_ca": True, "plain_http": True}, "choose one of them"),
        ({"certificate": "c.pem"}, "needs its --key"),
        ({"phones_for": "12 parsecs"}, "12 parsecs"),
        ({"phones_for": "0h"}, "give a time to come"),
        ({"phones_at": "lab.example.org"}, "give a URL"),
        ({"phones_at": "https://"}, "give a URL"),
        ({"phones_at": "https://lab.example.org:99999"}, "give a URL"),
        ({"phones_at": "https://[::1"}, "give a URL"),
    ],
)
def test_what_cannot_be_is_said_before_anything_listens(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Reach(host="0.0.0.0", port=1, **options)  # type: ignore[arg-type]


def test_a_run_is_resumed_with_the_same_flags() -> None:
    reach = Reach(host="0.0.0.0", port=1, phones=True, phones_for="2h", local_ca=True)
    assert reach.flags() == (
        "--host 0.0.0.0 --port 1 --phones --phones-for 2h --local-ca"
    )
    assert Reach(host="h", port=2).flags() == "--host h --port 2"
