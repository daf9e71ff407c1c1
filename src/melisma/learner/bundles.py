"""Code that an orchestrator sends: fetched by its hash, run only where it is trusted.

The owner of a device trusts one bundle of files, by the hash of all of them: when it
joins (``--trust HASH``), or when asked at a terminal that shows the files. Untrusted
ones are fetched and laid out to be read, and the task is refused.
"""

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType

from melisma.bundles import folders
from melisma.bundles.bundle import HASH, Bundle
from melisma.bundles.importing import importable
from melisma.errors import ConfigError, DataError
from melisma.fleets.messages import Untrusted
from melisma.learner.source import Bundles
from melisma.learning.data import cache_folder
from melisma.registry import imported

log = logging.getLogger("melisma.learner")

#: Shows a bundle, and where it lies, to the owner; returns whether it is trusted.
Ask = Callable[[Bundle, Path], bool]

#: Bundles that are kept on disk, and in memory; the least recently used goes first.
MOST_KEPT, MOST_HELD = 32, 8


class TrustedBundles:
    """The bundles that a device's owner trusts; others are asked for, if ``ask``.

    ``ask`` is called in a thread of its own, for one bundle at a time: an owner reads
    longer than an orchestrator waits, which tries again.
    """

    def __init__(self, trusted: Iterable[str] = (), ask: Ask | None = None) -> None:
        self._trusted, self._ask = set[str](), ask
        for hash in trusted:
            if not HASH.fullmatch(hash):
                raise ConfigError(
                    f"--trust {hash!r}: give the whole hash of a bundle, 64 digits "
                    "from 0 to f"
                )
            self._trusted.add(hash)
        self._refused: set[str] = set()  # and that was said
        self._held: OrderedDict[str, Bundle] = OrderedDict()
        self._asking, self._holding = threading.Lock(), threading.Lock()

    def fetch(self, hash: str, bundles_of: Callable[[], Bundles]) -> None:
        """Fetch a bundle unless it is here, to be read; DataError if another comes.

        Untrusted for one more where many were refused: the disk is not the sender's.
        """
        if self._found(hash) is not None:
            return
        if hash not in self._trusted and len(self._refused) >= MOST_KEPT:
            raise Untrusted(f"bundle {hash} and {MOST_KEPT} others are not trusted")
        bundle = Bundle.of(bundles_of().bundle(hash), hash)
        _keep(bundle)
        self._hold(bundle)

    def package(self, hash: str, what: str, name: str) -> str:
        """Return what precedes a name of a trusted bundle; "" for names not in it.

        Untrusted, before anything is imported, if its owner has not said so.
        """
        bundle = self._found(hash)
        if bundle is None:
            raise ConfigError(f"bundle {hash} is not here: serve it by rpc")
        if hash not in self._trusted:
            raise self._refusal(bundle)
        if not bundle.holds(name):
            return ""
        package = f"{importable(bundle, place(hash))}."
        _check_defined(package, what, name)
        return package

    def _found(self, hash: str) -> Bundle | None:
        """Return a bundle that was fetched; None if none was."""
        bundle = self._held.get(hash) or _kept(hash)
        if bundle:
            self._hold(bundle)
        return bundle

    def _hold(self, bundle: Bundle) -> None:
        """Keep a bundle in memory, so that a full disk costs no more fetches."""
        with self._holding:
            self._held[bundle.hash] = bundle
            self._held.move_to_end(bundle.hash)
            while len(self._held) > MOST_HELD:
                self._held.popitem(last=False)

    def _refusal(self, bundle: Bundle) -> Untrusted:
        """Ask the owner, or say what trusts the bundle; return the refusal."""
        hash, folder = bundle.hash, place(bundle.hash)
        if self._ask and hash not in self._refused:
            if self._asking.acquire(blocking=False):
                threading.Thread(
                    target=self._put,
                    args=(self._ask, bundle),
                    name="trust",
                    daemon=True,
                ).start()
            return Untrusted(f"bundle {hash} waits for this device's owner to trust it")
        if hash not in self._refused:
            self._refused.add(hash)
            kept = "to be read" if folder.exists() else "where it cannot be written"
            log.warning(
                "Refused to run code of the orchestrator, in %s %s. To trust it: "
                "melisma join … --trust %s",
                *(folder, kept, hash),
            )
        return Untrusted(
            f"bundle {hash} is not trusted on this device: melisma join … --trust HASH"
        )

    def _put(self, ask: Ask, bundle: Bundle) -> None:
        """Ask the owner, in a thread, and remember the answer for this process."""
        answers = self._refused
        try:
            if ask(bundle, place(bundle.hash)):
                answers = self._trusted
        finally:
            answers.add(bundle.hash)
            self._asking.release()


def _check_defined(package: str, what: str, name: str) -> None:
    """Raise ConfigError for a function that a bundle only imports from elsewhere.

    Its owner has trusted what the files do, not whatever can be reached from them.
    """
    function = imported(what, package + name)
    kinds = (FunctionType, BuiltinFunctionType, MethodType, type)
    if isinstance(function, kinds) and not f"{function.__module__}".startswith(package):
        raise ConfigError(
            f"{what} {name!r} is of {function.__module__}, not of the bundle: define "
            "it in the module that the job names"
        )


def place(hash: str) -> Path:
    """Return the folder in which a bundle is kept."""
    return cache_folder() / "bundles" / hash


def _kept(hash: str) -> Bundle | None:
    """Return what is on disk; None if there is nothing, or something else."""
    try:
        bundle = folders.read(place(hash), hash)
    except DataError:
        return None
    with suppress(OSError):
        os.utime(place(hash))
    return bundle


def _keep(bundle: Bundle) -> None:
    """Write to disk if there is room; what is trusted runs without."""
    with suppress(OSError):
        folders.write(bundle, place(bundle.hash))
        kept = [p for p in place("").iterdir() if HASH.fullmatch(p.name)]
        for old in sorted(kept, key=lambda path: -path.lstat().st_mtime)[MOST_KEPT:]:
            folders.remove(old)
