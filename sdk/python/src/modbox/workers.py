"""The workers of a server."""

from ._async.workers import AsyncWorkers
from ._schemas import Worker, WorkerState
from ._sync.workers import Workers

__all__ = [
    "AsyncWorkers",
    "Worker",
    "WorkerState",
    "Workers",
]
