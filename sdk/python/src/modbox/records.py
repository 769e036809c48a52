"""Records beside sandboxes: executions, checkpoints, snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ._decode import _by, decode
from ._schemas import (
    AptPackageChecks,
    Checkpoint,
    Execution,
    InvalidAptPackage,
    OutputStream,
    PrunedImage,
    PrunedImages,
    SandboxInfo,
    Snapshot,
)
from .errors import ModboxError, new_error

__all__ = [
    "AptPackageChecks",
    "BuiltSnapshot",
    "Checkpoint",
    "Execution",
    "Forked",
    "InvalidAptPackage",
    "OutputStream",
    "PrunedImage",
    "PrunedImages",
    "Snapshot",
]


@dataclass(frozen=True)
class Forked:
    """The outcome of one child of a fork: it runs when ``error`` is None.

    A child that was recorded and then failed has both.
    """

    sandbox: Optional[SandboxInfo] = _by(lambda w: decode(SandboxInfo, w), default=None)
    error: Optional[ModboxError] = _by(lambda w: new_error(w["code"], w["detail"]), default=None)


@dataclass(frozen=True)
class BuiltSnapshot:
    """The result of a build; ``unchanged`` says that it was there already."""

    snapshot: Snapshot
    unchanged: bool


