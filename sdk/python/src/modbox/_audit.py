"""The audit log, for both clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Dict, List, Literal, Optional, TypedDict

from ._calls import Call, Listing, _into, known, listing
from .models import _by, _time, decode


class AuditFilter(TypedDict, total=False):
    """What to list of the audit log; nothing is all of the workspace."""

    since: Optional[datetime]
    until: Optional[datetime]
    #: An id.
    user: Optional[str]
    #: An id or a name.
    object: Optional[str]
    action: Optional[str]
    outcome: Optional[str]
    #: ``desc``, the newest first, when left out.
    order: Optional[Literal["asc", "desc"]]
    #: Only records with a greater number.
    after_seq: Optional[int]


@dataclass(frozen=True)
class AuditRecord:
    """Who did what to which object, from where, and how it ended. What is not known, or does not apply, is empty."""

    action: str
    #: ``ok``, ``started``, ``cancelled``, ``failed``, or the code of an error.
    outcome: str
    #: When the record was made, at the end of what it is about.
    time: datetime = _time()
    #: Of HTTP.
    status: Optional[int] = None
    duration_ms: Optional[int] = None
    request_id: str = ""
    route: str = ""
    permission: str = ""
    user_id: str = ""
    token_id: str = ""
    session_id: str = ""
    role: str = ""
    administrator: bool = False
    #: ``sandbox-url``: somebody who had that.
    via: str = ""
    address: str = ""
    user_agent: str = ""
    workspace_id: str = ""
    object_kind: str = ""
    object_id: str = ""
    object_name: str = ""
    #: Without secrets.
    command: List[str] = field(default_factory=list)
    command_truncated: bool = False
    details: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AuditEntry:
    """A record with its place in the log's chain of hashes, which are in hexadecimal."""

    #: Without gaps in the whole log.
    seq: int
    #: The hash of the record before.
    prev: str
    hash: str
    record: AuditRecord = _by(lambda w: decode(AuditRecord, w))


@dataclass(frozen=True)
class AuditReport:
    """Whether the log is what it was; ``problem`` is what is wrong first.

    Who keeps ``head_hash`` elsewhere can tell later whether the log was made anew.
    """

    ok: bool
    problem: str = ""
    #: How many were checked.
    records: int = 0
    #: The newest record that retention removed; 0 for none.
    anchor_seq: int = 0
    anchor_hash: str = ""
    #: The newest record.
    head_seq: int = 0
    head_hash: str = ""


def records(path: str, filter: AuditFilter, workspace: Optional[str] = None) -> Listing[AuditEntry]:
    known(AuditFilter, filter)
    pairs = [(k, v.isoformat() if isinstance(v, datetime) else v) for k, v in filter.items()]
    return listing(AuditEntry, path, pairs, workspace=workspace)


def verify() -> Call[AuditReport]:
    return Call("GET", "/v1/audit/verify", _into(AuditReport), repeatable=True, timeout=None)
