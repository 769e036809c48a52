"""The audit log."""

from ._async.audit import AsyncAudit
from ._schemas import AuditEntry, AuditFilter, AuditRecord, AuditReport
from ._sync.audit import Audit

__all__ = [
    "AsyncAudit",
    "Audit",
    "AuditEntry",
    "AuditFilter",
    "AuditRecord",
    "AuditReport",
]
