import json
import re
import socket

from tests.cli.running import Melisma

from melisma import __version__, rpc


def test_a_line_for_each_thing_and_a_verdict(melisma: Melisma) -> None:
    done = melisma("doctor")
    assert (done.code, done.err) == (0, "")
    *lines, last = done.out.splitlines()
    assert all(re.match(r"(ok|note)\s+[a-z0-9]+\s+\S", line) for line in lines)
    assert last == "Nothing to change." or last.endswith("that stops training.")


def test_as_json_it_is_one_document(melisma: Melisma) -> None:
    with rpc.serve(port=0, say=len) as server:
        done = melisma("doctor", server.address, "--json")
    shown = json.loads(done.out)
    assert (shown["melisma"], shown["ok"], done.code) == (__version__, True, 0)
    keys = {"check", "level", "says", "fix", "facts"}
    assert all(found.keys() == keys for found in shown["findings"])
    link = {found["check"]: found["facts"] for found in shown["findings"]}["link"]
    assert link["up_bytes_per_s"] > 0


def test_what_stops_training_is_exit_code_1(melisma: Melisma) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    done = melisma("doctor", address)
    assert done.code == 1
    assert "problem reachable    nobody listens at" in done.out
    assert not json.loads(melisma("doctor", address, "--json").out)["ok"]
