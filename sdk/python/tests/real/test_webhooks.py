"""Deliveries of a server whose setting webhooks.allow_cidrs has 127.0.0.1. Needs MODBOX_URL and MODBOX_API_TOKEN."""

import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from modbox import AsyncModbox, Modbox, WebhookError, verify_webhook


class WebhooksTest(unittest.IsolatedAsyncioTestCase):
    def receive(self):
        """Starts a receiver; returns its address and the list of what it gets."""
        requests = []

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self):
                requests.append((self.headers, self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}/", requests

    def check(self, requests, sent, secret):
        headers, body = next(request for request in requests if request[0]["webhook-id"] == sent.id)
        self.assertEqual(verify_webhook(headers, body, secret).type, "ping")
        with self.assertRaises(WebhookError):
            verify_webhook(headers, body + b" ", secret)

    def test_delivery(self):
        url, requests = self.receive()
        with Modbox() as client:
            # Other tests of the workspace make events meanwhile; none of them is checkpoint_interval.
            hook = client.webhooks.create(url=url, types=["checkpoint_interval"])
            try:
                sent = client.webhooks.test(hook.id)
                self.assertEqual(client.webhooks.delivery(hook.id, sent.id, wait_seconds=60).state, "delivered")
                self.check(requests, sent, hook.secret)
                self.assertEqual([d.id for d in client.webhooks.deliveries(hook.id, state="delivered")], [sent.id])
            finally:
                client.webhooks.delete(hook.id)

    async def test_delivery_async(self):
        url, requests = self.receive()
        async with AsyncModbox() as client:
            hook = await client.webhooks.create(url=url, types=["checkpoint_interval"])
            try:
                sent = await client.webhooks.test(hook.id)
                self.assertEqual((await client.webhooks.delivery(hook.id, sent.id, wait_seconds=60)).state, "delivered")
                self.check(requests, sent, hook.secret)
            finally:
                await client.webhooks.delete(hook.id)
