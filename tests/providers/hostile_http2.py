"""Has a server of another implementation, hyper-h2, break the rules of HTTP/2 against the client of this service.

Each case is a script for the connections of a server. While it is hostile, each request must come to what is true of
it, in bounded time and memory. When it behaves again, every request must be answered, by the same client.

Usage: hostile_http2.py EXAMPLES, the folder with the program exchanges.
"""

import queue
import socket
import subprocess
import sys
import threading
import time
import unittest
from collections import Counter
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from hpack import Encoder
from hyperframe.frame import (ContinuationFrame, DataFrame, GoAwayFrame, HeadersFrame, PingFrame, PushPromiseFrame,
                              RstStreamFrame, SettingsFrame, WindowUpdateFrame)

# The most memory that the client may ever use, in KiB. It uses about a third of this when nothing is wrong.
MEMORY = 64 * 1024
# The bytes of a flood.
FLOOD = 4 * 1024 * 1024
# The time beyond its deadline that a request may take on a busy machine, in seconds.
BUSY = 10

LARGEST = 2**31 - 1
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, REFUSED_STREAM, ENHANCE_YOUR_CALM = 0, 1, 2, 3, 7, 11
STREAMS, WINDOW = 3, 4

# An answer with status 200, from the static table of HPACK.
OK = b"\x88"


class Peer:
    """The server's side of one connection."""

    def __init__(self, connection, settings):
        self.socket = connection
        self.http2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        values = {STREAMS: 100} | settings
        self.http2.local_settings = h2.settings.Settings(client=False, initial_values=values)
        self.arrived = queue.Queue()
        self.deaf = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        self.http2.initiate_connection()
        self.flush()

    def _read(self):
        data = b"-"
        while data and not self.deaf.is_set():
            try:
                data = self.socket.recv(65536)
            except OSError:
                data = b""
            self.arrived.put(data)

    def flush(self):
        self.socket.sendall(self.http2.data_to_send())

    def write(self, *frames):
        """Sends frames that the library would not write."""
        self.socket.sendall(b"".join(frame.serialize() for frame in frames))

    def flood(self, *frames, most=FLOOD):
        """Sends these frames over and over, whatever the client says."""
        once = b"".join(frame.serialize() for frame in frames)
        piece = once * max(1, 65536 // len(once))
        for _ in range(most // len(piece)):
            self.socket.sendall(piece)

    def events(self):
        while data := self.arrived.get():
            events = self.http2.receive_data(data)
            for event in events:
                if isinstance(event, h2.events.DataReceived):
                    self.http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self.flush()
            yield from events

    def requests(self):
        """The streams whose requests have arrived as a whole."""
        for event in self.events():
            if isinstance(event, h2.events.StreamEnded):
                yield event.stream_id

    def take(self, number):
        """Reads so many requests without answering them."""
        requests = self.requests()
        return [next(requests) for _ in range(number)]

    def wait(self):
        """Reads until the client has closed the connection."""
        for _ in self.events():
            pass

    def answer(self, stream):
        self.http2.send_headers(stream, [(":status", "200"), ("apns-id", "1")], end_stream=True)
        self.flush()

    def serve(self):
        for stream in self.requests():
            self.answer(stream)


def headers(stream, block=OK, *flags):
    return HeadersFrame(stream, block, flags=flags or ["END_HEADERS"])


def answer(stream):
    return headers(stream, OK, "END_HEADERS", "END_STREAM")


def ping():
    return PingFrame(0, opaque_data=b"are you?")


def block(*fields):
    return Encoder().encode(fields, huffman=False)


# --- The scripts ---------------------------------------------------------------------------------


def settings_flood(peer):
    peer.flood(SettingsFrame(0), most=FLOOD // 16)
    peer.serve()


def settings_flood_without_reading(peer):
    peer.take(1)
    peer.deaf.set()
    peer.flood(SettingsFrame(0, settings={STREAMS: 100}), most=64 * FLOOD)


def ping_flood(peer):
    peer.flood(ping(), most=FLOOD // 16)
    peer.serve()


def ping_flood_without_reading(peer):
    peer.take(1)
    peer.deaf.set()
    peer.flood(ping(), most=64 * FLOOD)


def limit_changes(peer):
    def limit(streams):
        peer.http2.update_settings({STREAMS: streams})
        peer.flush()

    time.sleep(0.5)
    limit(1)
    for number, stream in enumerate(peer.requests(), 1):
        if number == 10:
            limit(100)
        peer.answer(stream)
        if number == 40:
            # What was begun before is answered; then nothing is begun for a while.
            limit(0)
            threading.Timer(1, limit, [5]).start()


def silence(peer):
    peer.wait()


def window_overflow_of_the_connection(peer):
    peer.take(1)
    peer.write(WindowUpdateFrame(0, window_increment=LARGEST))
    peer.wait()


def window_overflow_of_a_stream(peer):
    for event in peer.events():
        if isinstance(event, h2.events.RequestReceived):
            peer.write(*[WindowUpdateFrame(event.stream_id, window_increment=LARGEST)] * 2)


def window_overflow_by_settings(peer):
    peer.take(1)
    peer.write(SettingsFrame(0, settings={WINDOW: 2**31}))
    peer.wait()


def endless_continuation(peer):
    stream, = peer.take(1)
    peer.write(headers(stream, OK, "PRIORITY"))
    peer.flood(ContinuationFrame(stream, b""))
    peer.wait()


def giant_headers(peer):
    field = block(("x", "y" * 12000))
    for stream in peer.requests():
        more = [ContinuationFrame(stream, field) for _ in range(4)]
        more[-1].flags.add("END_HEADERS")
        peer.write(HeadersFrame(stream, OK + field), *more)


def header_bomb(peer):
    # One large entry of the dynamic table, and a reference to it in each byte.
    bomb = OK + block(("x", "y" * 3900)) + b"\xbe" * 12000
    for stream in peer.requests():
        peer.write(headers(stream, bomb))


def broken_header_block(peer):
    stream, = peer.take(1)
    peer.write(headers(stream, b"\xff" * 40))
    peer.wait()


def endless_body(peer):
    stream, = peer.take(1)
    peer.write(headers(stream))
    sent = 0
    for _ in range(FLOOD // 8192):
        while sent + 8192 > peer.http2.remote_flow_control_window(stream):
            data = peer.arrived.get()
            if not data:
                return
            peer.http2.receive_data(data)
        peer.write(DataFrame(stream, b"a" * 8192))
        sent += 8192


def flood_of_empty_data(peer):
    stream, = peer.take(1)
    peer.write(headers(stream))
    peer.flood(DataFrame(stream, b""), most=8 * FLOOD)
    peer.wait()


def trailers_only(peer):
    for stream in peer.requests():
        peer.write(headers(stream, OK + block(("grpc-status", "0")), "END_HEADERS", "END_STREAM"))


def trailers_behind_a_body(peer):
    for stream in peer.requests():
        trailers = block(("x", "y"))
        peer.write(headers(stream), DataFrame(stream, b"{}"), headers(stream, trailers, "END_HEADERS", "END_STREAM"))


def headers_without_a_status(peer):
    for stream in peer.requests():
        peer.write(headers(stream, block(("x", "y")), "END_HEADERS", "END_STREAM"))


def informational_flood(peer):
    stream, = peer.take(1)
    peer.flood(headers(stream, block((":status", "103"), ("link", "y" * 100))))
    peer.write(answer(stream))
    peer.wait()


def endless_informational(peer):
    stream, = peer.take(1)
    while True:
        peer.write(headers(stream, block((":status", "103"), ("link", "y" * 100))))


def reset_flood(peer):
    for stream in peer.requests():
        peer.flood(RstStreamFrame(stream, error_code=INTERNAL_ERROR), most=FLOOD // 16)


def reset_without_an_error(peer):
    for stream in peer.requests():
        peer.write(RstStreamFrame(stream, error_code=NO_ERROR))


def reset_of_an_unknown_stream(peer):
    peer.take(1)
    peer.write(RstStreamFrame(9999, error_code=NO_ERROR))
    peer.wait()


def refusal(peer):
    for stream in peer.requests():
        peer.write(RstStreamFrame(stream, error_code=REFUSED_STREAM))


def goodbye_to_all(peer):
    peer.take(10)
    peer.write(GoAwayFrame(0, last_stream_id=0))
    peer.wait()


def goodbye_that_lowers_its_last_id(peer):
    first = peer.take(10)[0]
    peer.write(*(GoAwayFrame(0, last_stream_id=last) for last in [LARGEST, 9, first]), answer(first))
    peer.wait()


def goodbye_that_raises_its_last_id(peer):
    peer.take(10)
    peer.write(*(GoAwayFrame(0, last_stream_id=last) for last in [1, 5, LARGEST]))
    peer.wait()


def goodbye_again_and_again(peer):
    streams = peer.take(10)
    peer.flood(GoAwayFrame(0, last_stream_id=streams[4]), most=FLOOD // 16)
    peer.write(*(answer(stream) for stream in streams[:5]))
    peer.wait()


def goodbye_for_too_many_pings(peer):
    streams = peer.take(10)
    peer.write(GoAwayFrame(0, last_stream_id=0, error_code=ENHANCE_YOUR_CALM, additional_data=b"too_many_pings"))
    peer.wait()


def push(peer):
    stream, = peer.take(1)
    request = block((":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "a"))
    peer.write(PushPromiseFrame(stream, promised_stream_id=2, data=request, flags=["END_HEADERS"]))
    peer.wait()


def data_on_an_unknown_stream(peer):
    peer.take(1)
    peer.write(DataFrame(9999, b"who?"))
    peer.wait()


def data_before_headers(peer):
    stream, = peer.take(1)
    peer.write(DataFrame(stream, b"what?"))
    peer.wait()


def early_answers(peer):
    for event in peer.events():
        if isinstance(event, h2.events.RequestReceived):
            peer.write(answer(event.stream_id), RstStreamFrame(event.stream_id, error_code=NO_ERROR))


def slow_bodies(peer):
    streams = peer.take(10)
    peer.write(*(headers(stream) for stream in streams))
    while True:
        time.sleep(1)
        peer.write(*(DataFrame(stream, b"a") for stream in streams))


def slow_headers(peer):
    stream, = peer.take(1)
    for byte in headers(stream, block((":status", "200"), ("x", "y" * 500))).serialize():
        peer.socket.sendall(bytes([byte]))
        time.sleep(1)


def noise(peer):
    peer.take(1)
    peer.socket.sendall(bytes(range(256)) * 64)
    peer.wait()


def frame_without_an_end(peer):
    peer.take(1)
    peer.socket.sendall(b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + b"a" * FLOOD)
    peer.wait()


def unknown_frames(peer):
    peer.take(10)
    piece = b"\x00\x40\x00\xf7\xff\x00\x00\x00\x00" + b"a" * 0x4000
    for _ in range(8 * FLOOD // len(piece)):
        peer.socket.sendall(piece)
    peer.wait()


# --- The server and the client -------------------------------------------------------------------


class Server:
    """A server on a free port, whose connections follow a script until it behaves."""

    def __init__(self, script, settings):
        self.script, self.settings = script, settings
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection, self.script, self.settings), daemon=True).start()

    def _serve(self, connection, script, settings):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            script(Peer(connection, settings))
        except (OSError, StopIteration, RuntimeError, h2.exceptions.ProtocolError):
            # The client has closed the connection, or did not expect what the script sent.
            pass
        finally:
            connection.close()

    def behave(self):
        self.script, self.settings = Peer.serve, {}


class Client:
    """The program that sends requests."""

    def __init__(self, program, port):
        self.process = subprocess.Popen([program, f"http://127.0.0.1:{port}"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def send(self, requests, seconds, *again):
        """Sends requests, and returns the number of each outcome."""
        print(requests, int(seconds * 1000), *again, file=self.process.stdin, flush=True)
        outcomes = Counter()
        while line := self.process.stdout.readline().strip():
            number, outcome = line.split(" ", 1)
            outcomes[outcome] += int(number)
        return outcomes

    def memory(self):
        """The most memory that it used so far, in KiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self.process.stdout.close()


ANSWERED, CUT = "answered: 200 whole", "answered: 200 cut"
LATE, LOST, WAITED = "unanswered: Late", "unanswered: Lost", "not processed: Late"
REFUSED, GOING = "not processed: Refused", "not processed: GoingAway"
ENDED = "not processed: Unreachable Http Ended"
DEAD = "not processed: Unreachable Http Ended"
RESET = "unanswered: Reset({})"

# A script, the settings of its connections, the number of requests, the seconds that they have, and what may become of
# them.
CASES = [
    (settings_flood, {}, 10, 30, {ANSWERED}),
    (settings_flood_without_reading, {}, 10, 3, {LATE, LOST}),
    (ping_flood, {}, 10, 30, {ANSWERED}),
    (ping_flood_without_reading, {}, 10, 3, {LATE, LOST}),
    (limit_changes, {STREAMS: 0}, 60, 30, {ANSWERED}),
    (silence, {STREAMS: 0}, 10, 15, {"not processed: Unreachable Http Late(5s)"}),
    (silence, {WINDOW: 0}, 10, 3, {LATE}),
    (silence, {}, 10, 3, {LATE}),
    (window_overflow_of_the_connection, {}, 10, 15, {LOST}),
    (window_overflow_of_a_stream, {WINDOW: 0}, 10, 15, {RESET.format(FLOW_CONTROL_ERROR)}),
    (window_overflow_by_settings, {}, 10, 15, {LOST}),
    (endless_continuation, {}, 10, 15, {LOST}),
    (giant_headers, {}, 10, 15, {RESET.format(PROTOCOL_ERROR)}),
    (header_bomb, {}, 10, 15, {LOST}),
    (broken_header_block, {}, 10, 15, {LOST}),
    (endless_body, {}, 1, 15, {CUT}),
    (flood_of_empty_data, {}, 1, 3, {CUT}),
    (trailers_only, {}, 10, 15, {ANSWERED}),
    (trailers_behind_a_body, {}, 10, 15, {ANSWERED}),
    (headers_without_a_status, {}, 10, 15, {RESET.format(PROTOCOL_ERROR)}),
    (informational_flood, {}, 1, 30, {ANSWERED}),
    (endless_informational, {}, 1, 3, {LATE}),
    (reset_flood, {}, 10, 15, {RESET.format(INTERNAL_ERROR)}),
    (reset_without_an_error, {}, 10, 15, {RESET.format(NO_ERROR)}),
    (reset_of_an_unknown_stream, {}, 10, 15, {LOST}),
    (refusal, {}, 10, 15, {REFUSED}),
    (goodbye_to_all, {}, 10, 15, {GOING}),
    (goodbye_that_lowers_its_last_id, {}, 10, 15, {GOING: 9, ANSWERED: 1}),
    (goodbye_that_raises_its_last_id, {}, 10, 15, {GOING, LOST}),
    (goodbye_again_and_again, {}, 10, 15, {GOING: 5, ANSWERED: 5}),
    (goodbye_for_too_many_pings, {}, 10, 15, {GOING}),
    (push, {}, 10, 15, {LOST}),
    (data_on_an_unknown_stream, {}, 10, 15, {LOST}),
    (data_before_headers, {}, 10, 15, {LOST}),
    (early_answers, {WINDOW: 0}, 10, 15, {ANSWERED}),
    (slow_bodies, {}, 10, 3, {CUT}),
    (slow_headers, {}, 10, 3, {LATE}),
    (noise, {}, 10, 15, {LOST}),
    (frame_without_an_end, {}, 10, 15, {LOST}),
    (unknown_frames, {}, 10, 3, {LATE}),
]


class Hostile(unittest.TestCase):
    def test_each_request_comes_to_what_is_true_of_it_and_later_ones_are_answered(self):
        for script, settings, requests, seconds, expected in CASES:
            with self.subTest(script.__name__, settings=settings):
                self.check(script, settings, requests, seconds, expected)

    def check(self, script, settings, requests, seconds, expected):
        server = Server(script, settings)
        client = Client(EXAMPLES / "exchanges", server.port)
        try:
            begun = time.monotonic()
            outcomes = client.send(requests, seconds)
            took = time.monotonic() - begun
            self.assertEqual(outcomes.total(), requests)
            if isinstance(expected, dict):
                self.assertEqual(outcomes, expected)
            if LOST in expected:
                # A connection may be lost before all requests are sent on it.
                expected = set(expected) | {GOING, ENDED}
            self.assertLessEqual(set(outcomes), set(expected))
            self.assertLess(took, seconds + BUSY)
            self.assertLess(server.connections, 4, "a storm of connects")
            server.behave()
            # A connection that answers pings but no request is left after a few of these.
            client.send(10, 3)
            self.assertEqual(client.send(20, 30, "again"), {ANSWERED: 20})
            self.assertLess(client.memory(), MEMORY)
        finally:
            server.listener.close()
            client.close()


if __name__ == "__main__":
    EXAMPLES = Path(sys.argv.pop(1))
    unittest.main(verbosity=1)
