"""The dashboard: a page, the JSON API behind it, and control of the live run."""

from melisma.views.web.site import Dashboard

__all__ = ["Dashboard"]
