"""Runs in a browser: a page, the JSON behind it, and the wheel for who may steer."""

from melisma.views.web.site import Dashboard

__all__ = ["Dashboard"]
