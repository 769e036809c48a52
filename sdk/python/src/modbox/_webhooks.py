"""Webhooks and their deliveries, for both clients; and the check of a delivery, for receivers."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Dict, Mapping, Optional, Sequence, Union

from ._calls import DEFAULT, WAIT_SLACK_SECONDS, Call, Listing, _body, _into, _nothing, _query, _segment, listing
from ._decode import decode, parse_time
from ._schemas import Event, NewWebhook, Webhook, WebhookDelivery

#: The difference between the clocks of the server and the receiver that is permitted.
TOLERANCE_SECONDS = 300


def _path(webhook_id: str, call: str = "") -> str:
    return f"/v1/webhooks/{_segment(webhook_id)}{call}"


def _delivery(webhook_id: str, delivery_id: str, call: str = "") -> str:
    return _path(webhook_id, f"/deliveries/{_segment(delivery_id)}{call}")


def webhook_body(
    url: Optional[str], description: Optional[str], types: Optional[Sequence[str]], enabled: Optional[bool]
) -> Dict[str, Any]:
    return _body(url=url, description=description, types=None if types is None else list(types), enabled=enabled)


def create(body: Dict[str, Any]) -> Call[NewWebhook]:
    return Call("POST", "/v1/webhooks", _into(NewWebhook), repeatable=False, json=body)


def list_all() -> Listing[Webhook]:
    return listing(Webhook, "/v1/webhooks")


def get(webhook_id: str) -> Call[Webhook]:
    return Call("GET", _path(webhook_id), _into(Webhook), repeatable=True)


def update(webhook_id: str, body: Dict[str, Any]) -> Call[Webhook]:
    return Call("PATCH", _path(webhook_id), _into(Webhook), repeatable=True, json=body)


def delete(webhook_id: str) -> Call[None]:
    return Call("DELETE", _path(webhook_id), _nothing, repeatable=False)


def rotate(webhook_id: str, overlap_seconds: Optional[int]) -> Call[NewWebhook]:
    return Call("POST", _path(webhook_id, "/rotate"), _into(NewWebhook), repeatable=False, json=_body(overlap_seconds=overlap_seconds))


def test(webhook_id: str) -> Call[WebhookDelivery]:
    return Call("POST", _path(webhook_id, "/test"), _into(WebhookDelivery), repeatable=False)


def deliveries(webhook_id: str, state: Optional[str]) -> Listing[WebhookDelivery]:
    return listing(WebhookDelivery, _path(webhook_id, "/deliveries"), state=state)


def delivery(webhook_id: str, delivery_id: str, wait_seconds: int) -> Call[WebhookDelivery]:
    path = _query(_delivery(webhook_id, delivery_id), wait_seconds=wait_seconds or None)
    return Call("GET", path, _into(WebhookDelivery), repeatable=True, timeout=wait_seconds + WAIT_SLACK_SECONDS if wait_seconds else DEFAULT)


def redeliver(webhook_id: str, delivery_id: str) -> Call[WebhookDelivery]:
    return Call("POST", _delivery(webhook_id, delivery_id, "/redeliver"), _into(WebhookDelivery), repeatable=False)


class WebhookError(Exception):
    """The request is not a valid delivery of a webhook: answer it with status 401."""


@dataclass(frozen=True)
class WebhookMessage:
    """A delivery as the receiver gets it."""

    #: The same when a delivery comes again; ignore the ids that you know.
    id: str
    #: The type of the event; ``ping`` for a test.
    type: str
    #: The time of the event.
    timestamp: datetime
    #: The event; None for a test.
    event: Optional[Event]


def verify_webhook(headers: Mapping[str, str], body: Union[bytes, str], secrets: Union[str, Sequence[str]]) -> WebhookMessage:
    """Checks the signature and the time of a delivery, and returns its content.

    Pass the body exactly as it came. Several secrets may be valid, during a rotation. Raises WebhookError for every
    other request, and ValueError for a secret that is not one of a webhook. Signatures follow the Standard Webhooks
    scheme, v1.
    """
    found = {name.lower(): value for name, value in headers.items()}
    message_id, stamp, signatures = (found.get(name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature"))
    if not message_id or not stamp or not signatures:
        raise WebhookError("the header webhook-id, webhook-timestamp or webhook-signature is missing")
    if not re.fullmatch("[0-9]{1,12}", stamp):
        raise WebhookError("webhook-timestamp is not a number")
    if abs(time.time() - int(stamp)) > TOLERANCE_SECONDS:
        raise WebhookError(f"webhook-timestamp is more than {TOLERANCE_SECONDS} seconds from this machine's time")
    content = body.encode() if isinstance(body, str) else body
    signed = f"{message_id}.{stamp}.".encode() + content
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        digest = hmac.new(_key(secret), signed, hashlib.sha256).digest()
        want = b"v1," + base64.b64encode(digest)
        if any(hmac.compare_digest(want, signature.encode()) for signature in signatures.split(" ")):
            return _message(message_id, content)
    raise WebhookError("no signature is by this secret")


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(re.sub("^whsec_", "", secret), validate=True)
    except (binascii.Error, ValueError):
        key = b""  # the text of the error has the secret
    if not key:
        raise ValueError("a secret is not one of a webhook: whsec_ and base64")
    return key


def _message(message_id: str, content: bytes) -> WebhookMessage:
    try:
        wire = json.loads(content)
        event = decode(Event, wire["data"]) if "seq" in wire["data"] else None
        return WebhookMessage(message_id, wire["type"], parse_time(wire["timestamp"]), event)
    except (ValueError, TypeError, KeyError, AttributeError) as err:
        raise WebhookError("the body is not an event") from err
