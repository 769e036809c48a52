# Made from ../_async/webhooks.py by tools/unasync.py. Change that file, then run make gen.
"""Webhooks and their deliveries."""

from __future__ import annotations

from typing import Optional, Sequence

from .. import _webhooks as calls
from .._pages import Page
from .._schemas import NewWebhook, Webhook, WebhookDelivery, WebhookDeliveryState
from .requester import Requester


class Webhooks:
    """The webhooks of the workspace: addresses to which the server sends events."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    def create(
        self, *, url: str, types: Sequence[str] = (), description: Optional[str] = None, enabled: Optional[bool] = None
    ) -> NewWebhook:
        """Adds a webhook, which gets the events of ``types``, or all, from now on. Never sent twice.

        Keep its secret: no other call returns it.
        """
        return self._requester.perform(calls.create(calls.webhook_body(url, description, types, enabled)))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Webhook]:
        """Lists them, the oldest first."""
        return Page(self._requester, calls.list_all(), limit, cursor)

    def get(self, webhook_id: str) -> Webhook:
        """Returns one."""
        return self._requester.perform(calls.get(webhook_id))

    def update(
        self,
        webhook_id: str,
        *,
        url: Optional[str] = None,
        types: Optional[Sequence[str]] = None,
        description: Optional[str] = None,
        enabled: Optional[bool] = None,
    ) -> Webhook:
        """Changes the given settings; a setting that is None stays. Empty ``types`` are all.

        ``enabled=False`` cancels the deliveries that wait.
        """
        return self._requester.perform(calls.update(webhook_id, calls.webhook_body(url, description, types, enabled)))

    def delete(self, webhook_id: str) -> None:
        """Deletes a webhook with its deliveries."""
        self._requester.perform(calls.delete(webhook_id))

    def rotate(self, webhook_id: str, *, overlap_seconds: Optional[int] = None) -> NewWebhook:
        """Gives a webhook another secret, and returns it. Never sent twice.

        The secret before signs as well for ``overlap_seconds``, a day by default and at most.
        """
        return self._requester.perform(calls.rotate(webhook_id, overlap_seconds))

    def test(self, webhook_id: str) -> WebhookDelivery:
        """Sends a delivery of type ``ping``."""
        return self._requester.perform(calls.test(webhook_id))

    def deliveries(
        self,
        webhook_id: str,
        *,
        state: Optional[WebhookDeliveryState] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page[WebhookDelivery]:
        """Lists the deliveries of a webhook, the newest first."""
        return Page(self._requester, calls.deliveries(webhook_id, state), limit, cursor)

    def delivery(self, webhook_id: str, delivery_id: str, *, wait_seconds: int = 0) -> WebhookDelivery:
        """Returns a delivery; waits at most ``wait_seconds``, up to 60, for an attempt that is due or under way."""
        return self._requester.perform(calls.delivery(webhook_id, delivery_id, wait_seconds))

    def redeliver(self, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        """Sends a delivery again at once, with the same id."""
        return self._requester.perform(calls.redeliver(webhook_id, delivery_id))
