"""Registers a device, prints what it receives and ends after the first push.

    PUSH_SERVER=http://127.0.0.1:8080 PUSH_SECRET=SECRET python example.py news display-2
"""

import json
import os
import sys
from urllib.request import Request, urlopen

from push_device import PushDevice

app, name = sys.argv[1:]


def register():
    """In a product, your backend does this: the secret never leaves it."""
    headers = {"Authorization": os.environ["PUSH_SECRET"], "Content-Type": "application/json"}
    url = f"{os.environ['PUSH_SERVER']}/v1/device/{app}/{name}"
    with urlopen(Request(url, b'{"country": "IE"}', headers, method="PUT"), timeout=10) as answer:
        return json.load(answer)


def show(message):
    print("received", json.dumps(message), flush=True)
    device.stop()


device = PushDevice(
    register(), show, register, on_state=lambda state, error: print(state, error or "", flush=True)
)
device.run()
