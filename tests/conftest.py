import signal

import hypothesis
import pytest
import torch
from _pytest.runner import runtestprotocol

from melisma.testbed import Still

# How long an example takes says more of the machine than of the code.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

# Started in the background by a shell, tests and all they start would ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

STILL = Still()
STILL_S, ATTEMPTS = 0.2, 3  #: deadlines of tests are of a second


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    """Make a test with deadlines again if it failed while the machine stood still."""
    if item.get_closest_marker("alone") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(ATTEMPTS):
        STILL.longest_s = 0.0
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        failed = any(report.failed for report in reports)
        if not failed or STILL.longest_s < STILL_S or attempt + 1 == ATTEMPTS:
            break
        print(f"{item.nodeid}: {STILL.longest_s:.1f} s stood still, once more")
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Busy cores make a second thread far slower than none."""
    torch.set_num_threads(1)
