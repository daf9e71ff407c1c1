"""How much disk an installed Melisma takes, by package: core, then each extra.

    .venv/bin/python benchmarks/install_size.py

Counts the files of the packages in this environment, compiled bytecode left out.
"""

import re
from collections.abc import Iterable, Iterator
from importlib import metadata

from packaging.requirements import Requirement

from melisma.provenance import provenance

#: Smaller packages are summed up.
SHOWN_BYTES = 5_000_000


def closure(requirements: Iterable[str], extras: frozenset[str]) -> dict[str, int]:
    """Return the bytes of all installed packages that these requirements need."""
    sizes: dict[str, int] = {}
    waiting = [(text, extras) for text in requirements]
    while waiting:
        text, wanted = waiting.pop()
        needed = Requirement(text)
        if needed.marker and not any(
            needed.marker.evaluate({"extra": extra}) for extra in wanted | {""}
        ):
            continue
        name = re.sub(r"[-_.]+", "-", needed.name).lower()
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if name in sizes and not needed.extras:
            continue
        sizes[name] = sum(_sizes(found))
        own = frozenset(needed.extras)
        waiting += [(requirement, own) for requirement in found.requires or ()]
    return sizes


def _sizes(distribution: metadata.Distribution) -> Iterator[int]:
    for file in distribution.files or ():
        path = file.locate()
        if file.suffix != ".pyc" and path.is_file():  # type: ignore[attr-defined]
            yield path.stat().st_size  # type: ignore[attr-defined]


def show(title: str, sizes: dict[str, int]) -> None:
    """Print a table, largest first."""
    print(f"\n{title}: {sum(sizes.values()) / 1e6:.0f} MB in {len(sizes)} packages")
    large = {n: s for n, s in sizes.items() if s >= SHOWN_BYTES}
    for name in sorted(large, key=large.__getitem__, reverse=True):
        print(f"  {name:24}{large[name] / 1e6:8.1f} MB")
    rest = sum(sizes.values()) - sum(large.values())
    print(f"  {f'{len(sizes) - len(large)} others':24}{rest / 1e6:8.1f} MB")


def main() -> None:
    """Print the sizes of this environment."""
    print(provenance())
    core = closure(["melisma"], frozenset())
    show("melisma", core)
    extras = metadata.metadata("melisma").get_all("Provides-Extra") or []
    for extra in extras:
        if extra in ("dev", "bench"):
            continue
        added = closure([f"melisma[{extra}]"], frozenset())
        more = {name: size for name, size in added.items() if name not in core}
        if more:
            show(f"melisma[{extra}] besides", more)


if __name__ == "__main__":
    main()
