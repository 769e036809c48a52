# Made from ../_async/states.py by tools/unasync.py. Change that file, then run make gen.
"""Saved states and forks of sandboxes."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from .. import _stateful as calls
from .._pages import Page
from .._schemas import Checkpoint, SandboxInfo, Timeouts
from .._stateful import Memory
from ..records import Forked
from .requester import Requester


class States:
    """The part of Sandboxes that is about states of memory."""

    _requester: Requester

    def pause(self, ref: str, *, memory: bool = True) -> SandboxInfo:
        """Saves a sandbox, ends its processes and frees its memory; returns when that is done.

        Calls into a paused sandbox resume it. Without ``memory`` only its files are saved, and a
        resume starts it anew with them.
        """
        return self._requester.perform(calls.pause(ref, memory))

    def archive(self, ref: str) -> SandboxInfo:
        """Moves the state of a paused sandbox to the server's object store; returns when that is done.

        Everything that needs the state fetches it first and takes longer. A sandbox that is not
        paused raises an error of code ``conflict``.
        """
        return self._requester.perform(calls.archive(ref))

    def resume(self, ref: str, *, memory: Optional[Memory] = None, wait_for_quota_seconds: Optional[int] = None) -> SandboxInfo:
        """Brings a paused sandbox back and returns when it can be used.

        Where its memory cannot be brought back it is started anew with its files, and
        ``memory_lost_reason`` says why; with memory ``require`` it stays paused and an error of
        code ``unsupported`` is raised, with ``discard`` it is started anew in any case.
        Without room in the quota ``quota_exceeded`` is raised, after ``wait_for_quota_seconds``.
        """
        return self._requester.perform(calls.resume(ref, memory, wait_for_quota_seconds))

    def fork(
        self,
        ref: str,
        *,
        count: Optional[int] = None,
        names: Optional[Sequence[str]] = None,
        env: Optional[Mapping[str, str]] = None,
        labels: Optional[Mapping[str, str]] = None,
        ttl_seconds: Optional[int] = None,
        timeouts: Union[Timeouts, Mapping[str, Any], None] = None,
        wait_for_quota_seconds: Optional[int] = None,
    ) -> List[Forked]:
        """Makes sandboxes (one, or ``count``, at most 100) with the memory, processes and files of a running or paused one.

        Returns when each child runs or has failed, in the order of the names. ``env`` and
        ``labels`` are added to the parent's; ttl and timeouts are the parent's unless given.
        Without room in the quota for all of them ``quota_exceeded`` is raised, after
        ``wait_for_quota_seconds``.
        """
        return self._requester.perform(calls.fork(ref, count, names, env, labels, ttl_seconds, timeouts, wait_for_quota_seconds))

    def update_env(self, ref: str, changes: Mapping[str, Optional[str]]) -> Dict[str, str]:
        """Sets environment variables, and deletes those that are None, for the commands that start afterwards.

        Returns all that callers have set.
        """
        return self._requester.perform(calls.update_env(ref, changes))


class Checkpoints:
    """The saved states of a sandbox; ``checkpoint`` is an id or a name."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    def create(self, ref: str, *, name: Optional[str] = None) -> Checkpoint:
        """Saves the state of a running or paused sandbox, memory and files; it goes on. Without a name one is made up."""
        return self._requester.perform(calls.create_checkpoint(ref, name))

    def list(self, ref: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Checkpoint]:
        """Lists them, oldest first."""
        return Page(self._requester, calls.list_checkpoints(ref), limit, cursor)

    def restore(self, ref: str, checkpoint: str) -> SandboxInfo:
        """Takes the sandbox back and returns when it runs. What it did since then is lost; the checkpoint stays."""
        return self._requester.perform(calls.restore_checkpoint(ref, checkpoint))

    def delete(self, ref: str, checkpoint: str) -> None:
        """Deletes a checkpoint."""
        self._requester.perform(calls.delete_checkpoint(ref, checkpoint))
