"""An orchestrator beside other work: `melisma.serve`."""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import ExitStack
from contextvars import copy_context
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from melisma.algorithms.control import Control
from melisma.browser.phones import Phones
from melisma.bundles.bundle import Bundle
from melisma.jobs.schema import Job
from melisma.launch.loops import awake
from melisma.launch.serve import orchestrate
from melisma.launch.showing import Showing
from melisma.runs.records import Record
from melisma.runs.store import Watch
from melisma.views.run import Run
from melisma.views.run import open as open_run

if TYPE_CHECKING:
    from melisma import rpc


class Server:
    """An orchestrator in a thread of its own, started by ``with``.

    Leaving the block stops the run after the cycle that is under way.
    """

    def __init__(
        self,
        job: Job,
        folder: Any,  # a path, or a context manager that makes one
        host: str,
        port: int,
        learners: int,
        watch: Watch | None = None,
        bundle: Bundle | None = None,
    ) -> None:
        self.job, self.dashboard, self.bundle = job, "", bundle
        self.folder = folder if isinstance(folder, Path) else None
        self._new = None if isinstance(folder, Path) else folder
        self._options: dict[str, Any] = {"host": host, "port": port, "bundle": bundle}
        self._options |= {"learners": learners}
        self._watch = watch
        self._shown: Showing | None = None
        self._control, self._open, self.phones = Control(), ExitStack(), Phones()
        self._ready: Future[rpc.Server] = Future()
        self._ended: Future[list[Record]] = Future()

    def __enter__(self) -> Self:
        if self._new is not None:
            self.folder = self._open.enter_context(self._new)
        self._shown = self._showing(self.folder or Path())
        # In this context, by which a notebook knows whose output the thread's is.
        threading.Thread(
            target=copy_context().run,
            args=[self._serve, self._shown],
            name="orchestrator",
            daemon=True,
        ).start()
        self._ready.result()
        return self

    def _showing(self, folder: Path) -> Showing:
        run = Run(self.job, folder)
        return Showing(
            self.job, folder, self._watch, self._control, lambda: run.progress
        )

    def _serve(self, shown: Showing) -> None:
        try:
            with shown:
                records = orchestrate(
                    self.job,
                    self.folder or Path(),
                    watch=shown.watch,
                    ready=self._ready.set_result,
                    show=self._show,
                    control=self._control,
                    phones=self.phones,
                    say=lambda text: None,
                    **self._options,
                )
        except BaseException as error:  # a thread's edge: raised in whoever waits
            for future in (self._ready, self._ended):
                if not future.done():
                    future.set_exception(error)
        else:
            self._ended.set_result(records)

    def _show(self, link: str) -> None:
        self.dashboard = link

    def invite(self, name: str | None = None) -> str:
        """Return a join string: for one name, or the one that any learner may use."""
        server = self._ready.result()
        return server.join_string() if name is None else server.invite(name)

    def wait(self, timeout_s: float | None = None) -> Run:
        """Wait for the end and return the run; raise its error, or TimeoutError."""
        self._ended.result(timeout_s)
        assert self.folder is not None
        assert self._shown is not None
        return self._shown.shown(open_run(self.folder))

    async def wait_async(self) -> Run:
        """`wait`, with the event loop free meanwhile."""
        await awake(asyncio.wrap_future(self._ended))
        return self.wait()

    def stop(self) -> None:
        """Begin no more cycles."""
        self._control.stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        with self._open:
            failed = self._ended.exception()
        if failed and error is None:
            raise failed

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, traceback)
