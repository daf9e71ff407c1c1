"""What became of a run: rows and one page, from its records alone; no torch.

The page is imported when it is asked for: who only reads rows does without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from melisma.views.accounts import Account, account, read
    from melisma.views.page import PAGE, ROWS, write

__all__ = ["PAGE", "ROWS", "Account", "account", "read", "write"]

_ROOMS = {"PAGE": "page", "ROWS": "page", "write": "page"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS.get(name, 'accounts')}"), name)
