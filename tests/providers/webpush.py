"""Checks requests of Web Push and webhooks with code that is not this service's.

- Web Push: every body is decrypted with http-ece, every VAPID header is verified with py-vapid, and by the rules
  of Apple's push service, the strictest.
- Webhooks: every signature is verified with standardwebhooks, and by the receivers in docs/examples, which answer
  for each device.

Usage: webpush.py EXAMPLES, the folder with the program webpush_samples.
"""

import base64
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import unittest
import urllib.parse
from pathlib import Path

import http_ece
import py_vapid
import standardwebhooks
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

RECEIVERS = Path(__file__).parents[2] / "docs" / "examples"
ENDPOINTS = [
    "https://fcm.googleapis.com/fcm/send/dpH5lCsTSSM:APA91bHq",
    "https://updates.push.services.mozilla.com/wpush/v2/gAAAAABk",
    "https://web.push.apple.com/QGuQyavXutnMH",
    "https://ntfy.example:8443/upAbC?up=1",
    "http://[::1]:8080/push",
]


def base64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def from_base64url(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Browser:
    """A browser with a subscription."""

    def __init__(self, endpoint):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.auth = os.urandom(16)
        public = self.key.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        keys = {"p256dh": base64url(public), "auth": base64url(self.auth)}
        self.subscription = {"endpoint": endpoint, "expirationTime": None, "keys": keys}

    def decrypt(self, body):
        return http_ece.decrypt(body, private_key=self.key, auth_secret=self.auth, version="aes128gcm")


def setUpModule():
    global BROWSERS, SAMPLES
    BROWSERS = {endpoint: Browser(endpoint) for endpoint in ENDPOINTS}
    subscriptions = json.dumps([browser.subscription for browser in BROWSERS.values()])
    program = subprocess.run(
        [EXAMPLES / "webpush_samples"], input=subscriptions.encode(), stdout=subprocess.PIPE, check=True)
    SAMPLES = json.loads(program.stdout)


class WebPush(unittest.TestCase):
    def samples(self):
        self.assertEqual(len(SAMPLES["webpush"]), 3 * len(ENDPOINTS))
        return [(sample, sample["request"]) for sample in SAMPLES["webpush"]]

    def test_a_browser_decrypts_what_was_sent(self):
        for sample, request in self.samples():
            body = base64.b64decode(request["body"])
            self.assertLessEqual(len(body), 4096)
            plaintext = BROWSERS[request["url"]].decrypt(body).decode()
            payload = json.loads(sample["payload"])
            if not sample["declarative"]:
                self.assertEqual({**json.loads(plaintext), **times(payload)}, payload)
                continue
            message = json.loads(plaintext)
            self.assertEqual(message["web_push"], 8030)
            notification = message["notification"]
            self.assertEqual(notification["title"], payload["notification"]["title"])
            self.assertEqual(notification["navigate"], "https://app.example/")
            self.assertEqual(notification["data"], {"message_id": payload["message_id"]})

    def test_no_key_and_no_salt_is_used_twice(self):
        bodies = [base64.b64decode(request["body"]) for _, request in self.samples()]
        self.assertEqual(len({body[:16] for body in bodies}), len(bodies))
        self.assertEqual(len({body[21:86] for body in bodies}), len(bodies))

    def test_a_push_service_verifies_who_sent_it(self):
        for sample, request in self.samples():
            header = request["headers"]["authorization"]
            self.assertTrue(py_vapid.Vapid02.verify(header))
            self.assertEqual(header.partition(",k=")[2], sample["public_key"])
            other = header.replace(sample["public_key"], sample["subscription"]["keys"]["p256dh"])
            self.assertFalse(py_vapid.Vapid02.verify(other))

    def test_the_strictest_push_service_accepts_the_token(self):
        for _, request in self.samples():
            token = request["headers"]["authorization"].removeprefix("vapid t=").partition(",")[0]
            head, claims, _ = token.split(".")
            self.assertEqual(json.loads(from_base64url(head)), {"typ": "JWT", "alg": "ES256"})
            claims = json.loads(from_base64url(claims))
            endpoint = urllib.parse.urlsplit(request["url"])
            self.assertEqual(claims["aud"], f"{endpoint.scheme}://{endpoint.netloc}")
            self.assertTrue(time.time() < claims["exp"] <= time.time() + 24 * 3600)
            self.assertRegex(claims["sub"], r"^mailto:[^@\s<>]+@[^@\s<>]+\.[a-z]+$")
            self.assertNotIn("localhost", claims["sub"])
            self.assertTrue(py_vapid._check_sub(claims["sub"]))

    def test_the_headers_are_those_of_rfc_8030(self):
        for _, request in self.samples():
            headers = request["headers"]
            self.assertEqual((request["method"], headers["content-encoding"]), ("POST", "aes128gcm"))
            self.assertTrue(0 <= int(headers["ttl"]) <= 60)
            self.assertRegex(headers["topic"], r"^[A-Za-z0-9_-]{1,32}$")

    def test_a_subscription_is_shown_as_it_was_registered(self):
        for sample, _ in self.samples():
            registered = {name: sample["subscription"][name] for name in ("endpoint", "keys")}
            self.assertEqual(sample["shown"], registered)


def times(payload):
    return {name: payload[name] for name in ("accepted_at", "sequence", "expires_at")}


class Webhook(unittest.TestCase):
    def test_a_receiver_verifies_the_signature_with_each_secret_that_is_valid(self):
        first, second = SAMPLES["webhook"]["secrets"]
        before, after = SAMPLES["webhook"]["requests"]
        for secret, request in [(first, before), (first, after), (second, after)]:
            body = base64.b64decode(request["body"])
            message = standardwebhooks.Webhook(secret).verify(body, request["headers"])
            self.assertEqual(message["type"], "push")
            self.assertEqual([device["client_id"] for device in message["devices"]],
                             ["phone-1", "phone-2", "phone-3"])
        with self.assertRaises(standardwebhooks.WebhookVerificationError):
            standardwebhooks.Webhook(second).verify(base64.b64decode(before["body"]), before["headers"])

    def test_both_requests_have_the_same_id(self):
        ids = {request["headers"]["webhook-id"] for request in SAMPLES["webhook"]["requests"]}
        self.assertEqual(len(ids), 1)

    def test_the_receiver_in_python_checks_and_answers(self):
        self.receiver_checks_and_answers(sys.executable, "webhook_receiver.py")

    @unittest.skipUnless(shutil.which("node"), "needs node")
    def test_the_receiver_in_node_checks_and_answers(self):
        self.receiver_checks_and_answers("node", "webhook_receiver.mjs")

    def receiver_checks_and_answers(self, program, name):
        self.assertLessEqual(len((RECEIVERS / name).read_text().splitlines()), 40)
        before, after = SAMPLES["webhook"]["requests"]
        body = base64.b64decode(after["body"])
        expected = {"phone-1": {"status": "sent"}, "phone-2": {"status": "gone"}, "phone-3": {"status": "sent"}}
        with Receiver(program, name, SAMPLES["webhook"]["secrets"][0]) as receiver:
            for request in (before, after):
                status, answer = receiver.post(base64.b64decode(request["body"]), request["headers"])
                self.assertEqual((status, json.loads(answer)), (200, {"devices": expected}))
            signature = after["headers"]["webhook-signature"]
            old = str(int(after["headers"]["webhook-timestamp"]) - 600)
            for damage in [
                {"webhook-signature": signature.split()[0]},
                {"webhook-signature": "v1,"},
                {"webhook-signature": "v1,\u00e9"},
                {"webhook-signature": signature.replace("v1,", "v2,")},
                {"webhook-timestamp": old},
                {"webhook-timestamp": "soon"},
                {"webhook-id": "msg_other"},
            ]:
                with self.subTest(damage=damage):
                    self.assertEqual(receiver.post(body, {**after["headers"], **damage})[0], 401)
            self.assertEqual(receiver.post(body + b" ", after["headers"])[0], 401)
            self.assertEqual(receiver.post(body, {})[0], 401)
            self.assertEqual(receiver.post(body, after["headers"])[0], 200, "it still runs")


class Receiver:
    """One of the example receivers, on a free port."""

    def __init__(self, program, name, secret):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [program, RECEIVERS / name, str(self.port)], env={**os.environ, "WEBHOOK_SECRET": secret},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.__exit__()
                    raise
                time.sleep(0.05)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def post(self, body, headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("POST", "/push", body, headers)
        response = connection.getresponse()
        answer = response.status, response.read()
        connection.close()
        return answer


if __name__ == "__main__":
    EXAMPLES = Path(sys.argv.pop(1))
    unittest.main(verbosity=1)
