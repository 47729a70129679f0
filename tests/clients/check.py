"""The client of clients/python, at a running service, over TCP and over WebSocket."""

import json
import threading
import unittest
from types import SimpleNamespace

from push_device import PushDevice
from service import eventually, push, register


class Device:
    """A device in a thread, which notes what happens to it."""

    def __init__(self, name, **options):
        self.received, self.states, self.renewals = [], [], 0
        self.name = name
        options.setdefault("login", register(name))
        options.setdefault("on_message", lambda message: self.received.append(message["data"]["page"]))
        self.device = PushDevice(renew=self.renew, on_state=self.note, min_pause=0.05, **options)
        self.start()

    def start(self):
        self.thread = threading.Thread(target=self.device.run, daemon=True)
        self.thread.start()

    def renew(self):
        self.renewals += 1
        return register(self.name)

    def note(self, state, error):
        code = getattr(error, "code", None)
        self.states.append(f"{state} {code}" if code else state)

    def connected(self, times=1):
        eventually(f"connected {times} times", lambda: self.states.count("connected") >= times)

    def receives(self, page):
        eventually(f"{page} arrives", lambda: page in self.received)

    def stop(self):
        self.device.stop()
        self.thread.join(30)


def websocket(name):
    login = register(name)["mqtt"]
    return {**login, "url": login["websocket_url"]}


class Devices(unittest.TestCase):
    def test_pushes_arrive_once_and_those_that_were_missed_arrive_later(self):
        for name, login in (("py-1", register("py-1")), ("py-2", websocket("py-2"))):
            one = Device(name, login=login)
            one.connected()
            push(name, "a")
            one.receives("a")
            one.stop()
            push(name, "b")
            one.start()
            one.receives("b")
            one.stop()
            self.assertEqual(one.received, ["a", "b"])

    def test_a_login_is_renewed_before_it_expires_and_the_session_goes_on(self):
        # It lasts for a minute.
        one = Device("py-3", renew_before=59)
        one.connected(2)
        push("py-3", "a")
        one.receives("a")
        one.stop()
        self.assertGreaterEqual(one.renewals, 1)
        self.assertNotIn("waiting", one.states)

    def test_a_login_that_is_refused_is_renewed(self):
        one = Device("py-4", login={**register("py-4")["mqtt"], "password": "wrong"})
        one.connected()
        one.stop()
        self.assertEqual((one.states[0], one.renewals), ("waiting 134", 1))

    def test_a_push_whose_handler_fails_comes_again(self):
        given = []

        def fail_once(message):
            given.append(message["data"]["page"])
            if len(given) == 1:
                raise OSError("full")

        one = Device("py-5", on_message=fail_once)
        one.connected()
        push("py-5", "a")
        eventually("it comes again", lambda: given == ["a", "a"])
        one.stop()

    def test_a_device_whose_place_another_connection_takes_ends(self):
        one = Device("py-6")
        one.connected()
        two = Device("py-6")
        two.connected()
        eventually("the first ends", lambda: one.states[-1] == "taken over 142")
        two.stop()
        one.thread.join(30)

    def test_what_was_received_is_acknowledged_again_and_put_in_order(self):
        login, received, acknowledged = register("py-7"), [], []
        for order, expected in ((0, [3, 1]), (0.05, [1, 3])):
            received.clear(), acknowledged.clear()
            device = PushDevice(login, lambda message: received.append(message["sequence"]), order=order)
            client = SimpleNamespace(ack=lambda mid, qos: acknowledged.append(mid))
            for mid, sequence in enumerate((3, 1, 3)):
                payload = json.dumps({"message_id": f"{sequence}", "sequence": sequence})
                device._hold(client, None, SimpleNamespace(payload=payload, mid=mid, qos=1))
            eventually("all are given", lambda: device._release(client) or len(acknowledged) == 3)
            self.assertEqual((received, sorted(acknowledged)), (expected, [0, 1, 2]))


if __name__ == "__main__":
    unittest.main()
