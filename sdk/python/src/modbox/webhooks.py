"""Webhooks: addresses to which a server sends events, and the check of what it sends."""

from ._async.webhooks import AsyncWebhooks
from ._schemas import NewWebhook, Webhook, WebhookDelivery, WebhookDeliveryState
from ._sync.webhooks import Webhooks
from ._webhooks import WebhookError, WebhookMessage, verify_webhook

__all__ = [
    "AsyncWebhooks",
    "NewWebhook",
    "Webhook",
    "WebhookDelivery",
    "WebhookDeliveryState",
    "WebhookError",
    "WebhookMessage",
    "Webhooks",
    "verify_webhook",
]
