"""The audit log, for both clients."""

from __future__ import annotations

from datetime import datetime
from typing import Optional

from ._calls import Call, Listing, _into, known, listing
from ._schemas import AuditEntry, AuditFilter, AuditReport


def records(path: str, filter: AuditFilter, workspace: Optional[str] = None) -> Listing[AuditEntry]:
    known(AuditFilter, filter)
    pairs = [(k, v.isoformat() if isinstance(v, datetime) else v) for k, v in filter.items()]
    return listing(AuditEntry, path, pairs, workspace=workspace)


def verify() -> Call[AuditReport]:
    return Call("GET", "/v1/audit/verify", _into(AuditReport), repeatable=True, timeout=None)
