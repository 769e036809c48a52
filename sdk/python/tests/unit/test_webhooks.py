"""Webhooks, of both clients, against a scripted server; and the check of deliveries."""

import base64
import hashlib
import hmac
import http.client
import json
import os
import re
import threading
import time
import unittest
from http.server import HTTPServer
from pathlib import Path
from unittest import mock

from modbox import AsyncModbox, Modbox, WebhookError, verify_webhook
from server import Server, send_json

SECRET, OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
EVENT = {"seq": 7, "sandbox_id": "s", "sandbox_name": "my-agent", "time": "2026-01-01T00:00:00Z", "type": "failed", "message": "é", "data": {"cause": "oom"}}
BODY = json.dumps({"type": "failed", "timestamp": "2026-01-01T00:00:00Z", "data": EVENT}, ensure_ascii=False)
PAGE = (Path(__file__).parents[4] / "docs" / "webhooks.md").read_text()
HOOK = {
    "id": "h 1", "url": "https://a.example", "types": [], "enabled": True, "pending": 0, "dropped": 0, "created_by": "u",
    "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
}
DELIVERY = {"id": "d1", "webhook_id": "h 1", "type": "ping", "state": "delivered", "attempts": 1, "created_at": "2026-01-01T00:00:00Z", "duration_ms": 4}


def sign(body, at, secret=SECRET):
    key = base64.b64decode(secret[len("whsec_") :])
    return "v1," + base64.b64encode(hmac.new(key, f"msg_1.{at}.{body}".encode(), hashlib.sha256).digest()).decode()


def headers(body=BODY, at=None, secret=SECRET, **more):
    at = int(time.time()) if at is None else at
    return {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(at), "Webhook-Signature": sign(body, at, secret), **more}


class VerifyTest(unittest.TestCase):
    def test_known_signature(self):
        # Of a message that the npm package standardwebhooks signed.
        sent = {"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330", "webhook-signature": "v1,iLLwAfA+/sU4H1QdLj72TNwi22qqukywXbAd64heldc="}
        with mock.patch("time.time", return_value=1614265330.0):
            self.assertEqual(verify_webhook(sent, '{"type":"ping","timestamp":"2021-02-25T15:02:10Z","data":{}}', SECRET).type, "ping")

    def test_valid(self):
        several = f"v1a,AAAA v1,x v1,é {sign(BODY, int(time.time()), OTHER)} {headers()['Webhook-Signature']}"
        for sent, body, secrets in [
            (headers(), BODY, SECRET),
            (headers(), BODY.encode(), [SECRET]),
            (headers(), BODY, [OTHER, SECRET]),
            (headers(**{"Webhook-Signature": several}), BODY, SECRET),
        ]:
            message = verify_webhook(sent, body, secrets)
            self.assertEqual((message.id, message.type, message.timestamp.year), ("msg_1", "failed", 2026))
            self.assertEqual((message.event.sandbox_name, message.event.data), ("my-agent", {"cause": "oom"}))
        ping = '{"type":"ping","timestamp":"2026-01-01T00:00:00Z","data":{}}'
        self.assertIsNone(verify_webhook(headers(ping), ping, SECRET).event)

    def test_refused(self):
        now = int(time.time())
        cases = {
            "another body": (headers(), BODY + " ", SECRET),
            "another secret": (headers(), BODY, OTHER),
            "no secret": (headers(), BODY, []),
            "another id": (headers(**{"Webhook-Id": "msg_2"}), BODY, SECRET),
            "another time": (headers(**{"Webhook-Timestamp": str(now - 100)}), BODY, SECRET),
            "an old delivery": (headers(at=now - 360), BODY, SECRET),
            "a delivery of the future": (headers(at=now + 360), BODY, SECRET),
            "a time of letters": (headers(**{"Webhook-Timestamp": "now"}), BODY, SECRET),
            "another version": (headers(**{"Webhook-Signature": headers()["Webhook-Signature"].replace("v1,", "v2,")}), BODY, SECRET),
            "no JSON": (headers("text"), "text", SECRET),
            "no object": (headers("[]"), "[]", SECRET),
            "no event": (headers("{}"), "{}", SECRET),
        }
        for name in headers():
            cases[f"without {name}"] = ({k: v for k, v in headers().items() if k != name}, BODY, SECRET)
        for name, arguments in cases.items():
            with self.subTest(name), self.assertRaises(WebhookError):
                verify_webhook(*arguments)
        for bad in ["", "whsec_", "whsec_é"]:
            with self.subTest(bad), self.assertRaises(ValueError) as caught:
                verify_webhook(headers(), BODY, bad)
            self.assertNotIn("é", str(caught.exception))

    def test_receiver_of_the_documentation(self):
        example = re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL).group(1)
        example = re.sub(r"^receiver.*\n", "", example, flags=re.MULTILINE)
        handled = []
        names = {"handle": handled.append}
        exec(compile(example, "docs/webhooks.md", "exec"), names)
        names["Receiver"].log_message = lambda *_: None
        receiver = HTTPServer(("127.0.0.1", 0), names["Receiver"])
        self.addCleanup(receiver.server_close)
        for secret, status in [(SECRET, 204), (OTHER, 401)]:
            with mock.patch.dict(os.environ, {"MODBOX_WEBHOOK_SECRET": secret}):
                serving = threading.Thread(target=receiver.handle_request)
                serving.start()
                connection = http.client.HTTPConnection("127.0.0.1", receiver.server_port, timeout=60)
                connection.request("POST", "/", BODY.encode(), headers())
                self.assertEqual(connection.getresponse().status, status)
                connection.close()
                serving.join()
        self.assertEqual([(m.id, m.event.seq) for m in handled], [("msg_1", 7)])


class CallsTest(unittest.IsolatedAsyncioTestCase):
    async def test_calls(self):
        new = {**HOOK, "secret": SECRET}
        answers = [new, {"items": [HOOK]}, HOOK, HOOK, None, new, DELIVERY, {"items": [DELIVERY]}, DELIVERY, DELIVERY]

        def answer(seen, handler, n):
            value = answers[n % len(answers)]
            if value is not None:
                return send_json(handler, value)
            handler.send_response(204)
            handler.end_headers()

        server = Server(self, answer)
        with Modbox("mbx_test", base_url=server.url) as client:
            hooks = client.webhooks
            made = hooks.create(url=HOOK["url"], types=["created"])
            self.assertEqual((made.secret, made.description), (SECRET, ""))
            self.assertNotIn("whsec_", repr(made))
            self.assertEqual([w.id for w in hooks.list()], ["h 1"])
            self.assertEqual(hooks.get("h 1").url, HOOK["url"])
            hooks.update("h 1", enabled=False, types=[])
            hooks.delete("h 1")
            self.assertEqual(hooks.rotate("h 1", overlap_seconds=60).secret, SECRET)
            self.assertEqual(hooks.test("h 1").duration_ms, 4)
            self.assertEqual([d.webhook_id for d in hooks.deliveries("h 1", state="failed", limit=5)], ["h 1"])
            self.assertEqual(hooks.delivery("h 1", "d1", wait_seconds=9).state, "delivered")
            self.assertEqual(hooks.redeliver("h 1", "d1").id, "d1")
        async with AsyncModbox("mbx_test", base_url=server.url) as client:
            hooks = client.webhooks
            self.assertEqual((await hooks.create(url=HOOK["url"], types=["created"])).secret, SECRET)
            self.assertEqual([w.id async for w in hooks.list()], ["h 1"])
            self.assertEqual((await hooks.get("h 1")).url, HOOK["url"])
            await hooks.update("h 1", enabled=False, types=[])
            await hooks.delete("h 1")
            self.assertEqual((await hooks.rotate("h 1", overlap_seconds=60)).secret, SECRET)
            self.assertEqual((await hooks.test("h 1")).duration_ms, 4)
            self.assertEqual([d.webhook_id async for d in hooks.deliveries("h 1", state="failed", limit=5)], ["h 1"])
            self.assertEqual((await hooks.delivery("h 1", "d1", wait_seconds=9)).state, "delivered")
            self.assertEqual((await hooks.redeliver("h 1", "d1")).id, "d1")
        asked = [(r.method, r.path.replace("/v1/webhooks", ""), r.query, json.loads(r.body) if r.body else None) for r in server.requests]
        wanted = [
            ("POST", "", {}, {"url": "https://a.example", "types": ["created"]}),
            ("GET", "", {}, None),
            ("GET", "/h%201", {}, None),
            ("PATCH", "/h%201", {}, {"enabled": False, "types": []}),
            ("DELETE", "/h%201", {}, None),
            ("POST", "/h%201/rotate", {}, {"overlap_seconds": 60}),
            ("POST", "/h%201/test", {}, None),
            ("GET", "/h%201/deliveries", {"state": ["failed"], "limit": ["5"]}, None),
            ("GET", "/h%201/deliveries/d1", {"wait_seconds": ["9"]}, None),
            ("POST", "/h%201/deliveries/d1/redeliver", {}, None),
        ]
        self.assertEqual(asked, wanted * 2)
