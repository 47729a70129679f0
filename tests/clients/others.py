"""paho-mqtt over WebSocket, in both versions of MQTT; and a proxy in front of it."""

import json
import socket
import ssl
import struct
from urllib.parse import urlsplit

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from service import eventually, metric, push, register


def receives(name, protocol):
    login = register(name)["mqtt"]
    url, received, subscribed = urlsplit(login["websocket_url"]), [], []
    client = Client(
        CallbackAPIVersion.VERSION2, client_id=login["client_id"], protocol=protocol, transport="websockets"
    )
    client.ws_set_options(path=url.path)
    client.username_pw_set(login["username"], login["password"])
    if url.scheme == "wss":
        client.tls_set_context(ssl.create_default_context())
    client.on_connect = lambda *_: client.subscribe(login["topic"], qos=1)
    client.on_subscribe = lambda *_: subscribed.append(True)
    client.on_message = lambda _client, _userdata, message: received.append(json.loads(message.payload))
    client.connect(url.hostname, url.port)
    client.loop_start()
    eventually("it is subscribed", lambda: subscribed)
    for page in ("7", "x" * 100, "y" * 2000):
        push(name, page)
        eventually("the push arrives", lambda: any(m["data"]["page"] == page for m in received))
    client.disconnect()
    client.loop_stop()
    return url


def a_trusted_proxy_names_the_client(url):
    """The service trusts this machine. The client that it names may have an address of its own."""
    address = (url.hostname, url.port)
    addresses = socket.inet_aton("192.0.2.1") + socket.inet_aton("10.0.0.1") + struct.pack("!HH", 50000, 443)
    version_2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + addresses
    fields = "".join(
        f"{name}: {value}\r\n"
        for name, value in {
            "Host": "push.example.com", "Connection": "Upgrade", "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Protocol": "mqtt",
        }.items()
    )
    request = f"GET {url.path} HTTP/1.1\r\n{fields}\r\n".encode()
    for header in (version_2, b"PROXY TCP4 192.0.2.1 10.0.0.1 50000 443\r\n", b""):
        with socket.create_connection(address, timeout=30) as connection:
            connection.sendall(header + request)
            assert connection.recv(12) == b"HTTP/1.1 101", header
    assert metric("push_broker_untrusted_proxies_total") == 0


for protocol in (MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5):
    url = receives(f"paho-{protocol.name}", protocol)
if url.scheme == "ws":
    a_trusted_proxy_names_the_client(url)
