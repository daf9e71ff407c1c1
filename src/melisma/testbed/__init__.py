"""Devices emulated on one machine: namespaces, links, CPU quotas, memory limits."""

from melisma.testbed.devices import DEVICES, Device
from melisma.testbed.links import LINKS, Link
from melisma.testbed.still import Still
from melisma.testbed.testbed import Place, Testbed, missing

__all__ = ["DEVICES", "LINKS", "Device", "Link", "Place", "Still", "Testbed", "missing"]
