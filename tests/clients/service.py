"""The calls of a backend."""

import json
import os
import time
from urllib.request import Request, urlopen


def call(method, path, body):
    headers = {"Authorization": os.environ["PUSH_SECRET"], "Content-Type": "application/json"}
    request = Request(os.environ["PUSH_SERVER"] + path, json.dumps(body).encode(), headers, method=method)
    with urlopen(request, timeout=10) as answer:
        return json.load(answer)["result"]


def register(name):
    return call("PUT", f"/v1/device/news/{name}", {"country": "IE"})


def push(name, page):
    condition = {"type": 2, "client_ids": [name]}
    body = {"type": 2, "time_to_live": 600, "condition": condition, "data": {"page": page}}
    return call("POST", "/v1/message/push/news", body)


def metric(name):
    with urlopen(os.environ["METRICS_URL"], timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return int(line.split()[1])
    raise AssertionError(f"no {name}")


def eventually(what, condition):
    """Waits until a condition holds, and returns its value."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within 30 s: {what}")
