"""Tables, reports and pages of a run, made from its records alone; no torch.

Names are imported on first use, so that reading rows does not load the page.
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
