"""Whether the machine itself stands still: a virtual one may stop for seconds."""

import threading
import time

#: Between two looks at the clock.
LOOK_S = 0.005


class Still:
    """Notes for how long this process did not run though it could have."""

    def __init__(self) -> None:
        self.longest_s = 0.0  #: since it was last set to 0
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            began = time.monotonic()
            time.sleep(LOOK_S)
            slept_s = time.monotonic() - began
            self.longest_s = max(self.longest_s, slept_s - LOOK_S)
