import os
import signal
import subprocess
import sys
import time

STOPPED = """
import time
from melisma.testbed import Still
still = Still()
print(flush=True)
time.sleep(1.5)
print(still.longest_s)
"""


def test_a_machine_that_stands_still_is_noticed() -> None:
    command = [sys.executable, "-c", STOPPED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.6)
        os.kill(process.pid, signal.SIGCONT)
        assert float(process.stdout.read()) > 0.5
