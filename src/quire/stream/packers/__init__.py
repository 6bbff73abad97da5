"""Packers: documents to windows. To add one, write a module and add a line to `PACKERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from quire.stream.packers.first_fit import FirstFitPacker
from quire.stream.packers.online import OnlineWindowPacker
from quire.stream.packers.packer import Packer, PackerOptions, Window
from quire.stream.packers.wrapped import WrappedPacker

PACKERS: Mapping[str, Callable[[PackerOptions], Packer]] = MappingProxyType(
    {"wrapped": WrappedPacker, "first_fit": FirstFitPacker, "online": OnlineWindowPacker}
)
"""By the name of ``strategy``."""

__all__ = ["PACKERS", "Packer", "PackerOptions", "Window"]
