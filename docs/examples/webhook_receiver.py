"""Receives messages of the push service: WEBHOOK_SECRET=whsec_… python3 webhook_receiver.py PORT"""
import base64, hashlib, hmac, json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))


def is_genuine(headers, body):
    request_id, sent_at = headers["webhook-id"] or "", headers["webhook-timestamp"] or ""
    if not sent_at.isdecimal() or abs(time.time() - int(sent_at)) > 300:
        return False
    signed = f"{request_id}.{sent_at}.".encode() + body
    right = "v1," + base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    given = (headers["webhook-signature"] or "").encode().split()
    return any([hmac.compare_digest(right.encode(), one) for one in given])


def deliver(token, payload):
    """Replace this with your own channel. Here a token is a telephone number."""
    if not token.startswith("+"):
        return {"status": "gone"}
    print("to", token, payload.get("notification") or payload.get("data"), flush=True)
    return {"status": "sent"}


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(min(int(self.headers["content-length"] or 0), 65536))
        if not is_genuine(self.headers, body):
            return self.send_error(401)
        message = json.loads(body)
        outcomes = {d["client_id"]: deliver(d["token"], message["payload"]) for d in message["devices"]}
        answer = json.dumps({"devices": outcomes}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
