"""A device of the Push Message Service, on paho-mqtt 2: MQTT 5 over TCP or WebSocket.

    device = PushDevice(
        login=answer["result"]["mqtt"],  # of PUT /v1/device/{AppID}/{ClientID}
        renew=ask_my_backend,            # returns a new one, see below
        on_message=print,
    )
    device.run()

docs/reference/device-protocol.md describes the protocol.
"""

import heapq
import json
import random
import ssl
import threading
import time
from collections import OrderedDict
from itertools import count
from urllib.parse import urlsplit

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

__all__ = ["PushDevice", "PushError"]

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
BAD_LOGIN, NOT_AUTHORIZED, TAKEN_OVER = 0x86, 0x87, 0x8E

ANSWER = 10
"""The time that the broker has for an answer, in seconds."""
STABLE = 10
"""The time after which a connection counts as good, and the next pause is short again, in seconds."""
REMEMBERED = 1000
"""The ids of pushes that are remembered."""


class PushError(Exception):
    """Refused by the broker, or not understood. `code` is the reason code of MQTT, if there is one."""

    def __init__(self, message, code=None):
        super().__init__(message)
        self.code = code


class LastIds:
    """Remembers the last ids. Any object with these two methods may take its place, to remember them
    for longer."""

    def __init__(self):
        self._ids = OrderedDict()

    def __contains__(self, message_id):
        return message_id in self._ids

    def add(self, message_id):
        self._ids[message_id] = None
        while len(self._ids) > REMEMBERED:
            self._ids.popitem(last=False)


class PushDevice:
    """One device. `run` connects until `stop` is called, and calls these in its own thread:

    - `on_message(message)` for each push, the parsed JSON. The push is acknowledged when the call
      returns. If it raises, the push comes again after a pause.
    - `renew()` before the login expires and when the broker refuses it. It returns the answer of a new
      registration, or `result.mqtt` of it.
    - `on_state(state, error)`: "connected", "waiting" (until the next try), "taken over" (another
      connection has this client id; this one ends) or "stopped".

    Options, times in seconds: `order` holds pushes for so long to bring them into the order of
    `sequence` (0: as they come); `renew_before` the end of the login (a tenth of its time); `seen`
    remembers ids; `tls` is an `ssl.SSLContext` in place of the default one.
    """

    def __init__(
        self, login, on_message, renew=None, on_state=None, *, order=0, keep_alive=60,
        session_expiry=7 * 24 * 3600, min_pause=1, max_pause=60, renew_before=None, seen=None, tls=None,
    ):
        self._on_message, self._renew = on_message, renew
        self._on_state = on_state or (lambda state, error: None)
        self._order, self._keep_alive, self._session_expiry = order, keep_alive, session_expiry
        self._pauses, self._renew_before, self._tls = (min_pause, max_pause), renew_before, tls
        self._seen = LastIds() if seen is None else seen
        self._stopping, self._tries = threading.Event(), 0
        self._held, self._numbers, self._release_at = [], count(), None
        self._end = None
        self._use(login)

    def run(self):
        """Connects, and stays connected until `stop`. Then it may be called again."""
        while not self._stopping.is_set():
            error = None
            try:
                self._connect()
            except Exception as caught:  # The app's functions may raise anything.
                error = caught
            if self._stopping.is_set():
                break
            if getattr(error, "code", None) == TAKEN_OVER:
                return self._on_state("taken over", error)
            if error is not None:
                self._on_state("waiting", error)
                self._stopping.wait(self._pause())
        self._stopping.clear()
        self._on_state("stopped", None)

    def stop(self):
        """Lets `run` disconnect and return. The broker keeps the session, and pushes wait there."""
        self._stopping.set()

    def _use(self, answer):
        login = answer.get("result", answer)
        login = login.get("mqtt", login)
        url = urlsplit(login.get("url") or login.get("websocket_url") or "")
        if url.scheme not in PORTS or not url.hostname:
            raise PushError("the login has no URL")
        expires_at = login["expires_at"] / 1000
        before = self._renew_before
        if before is None:
            before = (expires_at - time.time()) / 10
        self._login, self._url = login, url
        self._expires_at, self._renew_at = expires_at, expires_at - before

    def _get_login(self):
        """Asks the app for a login if it is time. Until the old one ends, a failure may be repeated."""
        if time.time() < self._renew_at:
            return
        try:
            if self._renew is None:
                raise PushError("the login has expired")
            self._use(self._renew())
        except Exception:
            if time.time() >= self._expires_at:
                raise
            self._renew_at = max(self._renew_at, time.time() + self._pause())

    def _connect(self):
        """Serves one connection. Returns if it ended for a new login."""
        self._get_login()
        self._held, self._release_at, self._end = [], None, None
        self._is_subscribed = False
        client, until = self._client(), time.monotonic() + ANSWER
        client.connect(
            self._url.hostname, self._url.port or PORTS[self._url.scheme], self._keep_alive,
            clean_start=False, properties=self._properties(),
        )
        try:
            since = None
            while not self._stopping.is_set():
                code = client.loop(timeout=self._wait())
                self._release(client)
                if self._end is not None:
                    raise self._end
                if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
                    raise PushError(f"the connection ended ({code.name})")
                if not self._is_subscribed:
                    if time.monotonic() > until:
                        raise PushError("the broker does not answer")
                    continue
                since = since or time.monotonic()
                if time.monotonic() - since > STABLE:
                    self._tries = 0
                if time.time() >= self._renew_at:
                    login = self._login
                    self._get_login()
                    if self._login is not login:
                        return
        finally:
            client.disconnect()
            client.loop(timeout=0.1)

    def _client(self):
        over_websocket = self._url.scheme in ("ws", "wss")
        client = Client(
            CallbackAPIVersion.VERSION2, client_id=self._login["client_id"],
            protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True, reconnect_on_failure=False,
            transport="websockets" if over_websocket else "tcp",
        )
        if over_websocket:
            client.ws_set_options(path=self._url.path or "/")
        if self._url.scheme in ("mqtts", "wss"):
            client.tls_set_context(self._tls or ssl.create_default_context())
        client.username_pw_set(self._login["username"], self._login["password"])
        client.connect_timeout = ANSWER
        client.on_connect, client.on_subscribe = self._connected, self._subscribed
        client.on_message, client.on_disconnect = self._hold, self._disconnected
        return client

    def _properties(self):
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = int(self._session_expiry)
        return properties

    def _connected(self, client, _userdata, _flags, reason, _properties):
        if reason.is_failure:
            self._refused(reason)
        else:
            client.subscribe(self._login["topic"], qos=1)

    def _subscribed(self, _client, _userdata, _id, reasons, _properties):
        if reasons[0].is_failure:
            self._refused(reasons[0])
        else:
            self._is_subscribed = True
            self._on_state("connected", None)

    def _disconnected(self, _client, _userdata, flags, reason, _properties):
        if flags.is_disconnect_packet_from_server:
            self._refused(reason)

    def _refused(self, reason):
        if reason.value in (BAD_LOGIN, NOT_AUTHORIZED):
            self._renew_at = 0
        self._end = self._end or PushError(f"refused by the broker ({reason})", reason.value)

    def _hold(self, client, _userdata, received):
        try:
            message = json.loads(received.payload)
            sequence = message.get("sequence", 0) if self._order else 0
        except (ValueError, AttributeError):
            # It would come again and again.
            client.ack(received.mid, received.qos)
            return
        heapq.heappush(self._held, (sequence, next(self._numbers), message, received))
        self._release_at = self._release_at or time.monotonic() + self._order

    def _release(self, client):
        """Gives pushes to the app whose turn it is, and acknowledges each afterwards."""
        if self._release_at is None or time.monotonic() < self._release_at:
            return
        while self._held:
            _, _, message, received = heapq.heappop(self._held)
            message_id = message.get("message_id")
            if message_id not in self._seen:
                self._on_message(message)
                self._seen.add(message_id)
            client.ack(received.mid, received.qos)
        self._release_at = None

    def _wait(self):
        """Returns the longest time for which the network is waited for."""
        if self._release_at is None:
            return 0.5
        return min(0.5, max(0, self._release_at - time.monotonic()))

    def _pause(self):
        """Returns a random pause that grows with the number of tries."""
        shortest, longest = self._pauses
        longest = min(longest, shortest * 2 ** min(self._tries, 30))
        self._tries += 1
        return random.uniform(longest / 2, longest)
