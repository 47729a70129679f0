"""Checks the requests to FCM and APNs with code that is not this service's.

- FCM: every body against Google's API description (fcm.v1.json), and against what firebase-admin makes of the
  same content.
- APNs: the part of Apple's against what firebase-admin makes, and the headers against Apple's rules.
- Both: the signed tokens with PyJWT.

Usage: check.py EXAMPLES, the folder with the program phone_requests.
"""

import importlib.resources
import json
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
import warnings
from pathlib import Path

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from firebase_admin import _messaging_encoder, messaging

NOW = 1_790_000_000_000
MESSAGE_ID = "0192f0c1-2b3a-7c4d-8e5f-60718293a4b5"
REGISTRATION = "cFyGJqxnT3mVhZ_8-wZ0aB:APA91bHPRgkF3JUikC4ENAHEeMrd41Zxv3hVZjC9KtT8OvPVGJ"
INSTALLATION = "eFyGJqxnT3mVhZ_8-wZ0aB"
DEVICE = "0a" * 32
LONGEST_ON_FCM = 28 * 86_400
LONGEST_ON_APNS = 30 * 86_400

SYSTEM = {"notification_type": 1, "title": 'Ti"t\u00e9', "desc": "line\n\U0001f600", "small_icon": "bell",
          "small_icon_color": "#FF8800", "open_type": 2, "open_content": "https://news.example/1"}
BUTTON = {"notification_type": 3, "title": "T", "icon": "https://news.example/i.png", "button_text": "Go",
          "open_type": 1}
HINTS = {"priority": "normal", "collapse_key": "score", "channel_id": "sport", "category": "MATCH",
         "image": "https://news.example/a.png", "sound": "goal", "badge": 3}

# Name, type, content, hints, time to live, FCM address.
PUSHES = [
    ("system", 1, SYSTEM, {}, 60, REGISTRATION),
    ("system_with_hints", 1, SYSTEM, HINTS, 3600, INSTALLATION),
    ("button", 1, BUTTON, {"priority": "high"}, 0, REGISTRATION),
    ("empty", 1, {"notification_type": 1}, {}, 10**12, REGISTRATION),
    ("data", 2, {"a": "1", "\u00e9": "\u0001\n", "from": "x", "google.a": "y", "message_id": "z"}, {}, 60,
     REGISTRATION),
    ("data_with_hints", 2, {}, HINTS, 86_400, INSTALLATION),
    ("data_now", 2, {"k": "v" * 2000}, {"priority": "high"}, 0, REGISTRATION),
]


def payload(kind, content, hints):
    """Returns what an MQTT device receives."""
    field = "notification" if kind == 1 else "data"
    ids = {"message_id": MESSAGE_ID, "app_id": "news", "type": kind}
    times = {"accepted_at": NOW, "sequence": NOW * 1000, "expires_at": NOW}
    return ids | {field: content} | hints | times


def pem(key):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                             serialization.NoEncryption()).decode()


def setUpModule():
    global RSA, EC, REQUESTS
    RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    EC = ec.generate_private_key(ec.SECP256R1())
    cases = {
        "now": NOW,
        "fcm": {"type": "service_account", "project_id": "news-1f3a5", "private_key_id": "5d1e",
                "private_key": pem(RSA), "client_email": "push@news-1f3a5.iam.gserviceaccount.com",
                "token_uri": "https://oauth2.googleapis.com/token"},
        "apns": {"key_pem": pem(EC), "key_id": "ABC123DEFG", "team_id": "TEAM123456",
                 "topic": "com.example.news", "sandbox": False},
        "pushes": [{"name": name, "payload": payload(kind, content, hints), "fcm_token": token,
                    "apns_token": DEVICE.upper(), "time_to_live": seconds}
                   for name, kind, content, hints, seconds, token in PUSHES],
    }
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "cases.json").write_text(json.dumps(cases, ensure_ascii=False))
        subprocess.run([EXAMPLES / "phone_requests", folder], check=True)
        REQUESTS = json.loads((folder / "requests.json").read_text())


class Description:
    """Google's description of FCM, by which a body is checked."""

    def __init__(self):
        documents = importlib.resources.files("googleapiclient") / "discovery_cache" / "documents"
        document = json.loads((documents / "fcm.v1.json").read_text())
        self.schemas = document["schemas"]
        self.send = document["resources"]["projects"]["resources"]["messages"]["methods"]["send"]

    def check(self, schema, value, path):
        if "$ref" in schema:
            schema = self.schemas[schema["$ref"]]
        kinds = {"string": str, "object": dict, "integer": int, "boolean": bool}
        assert isinstance(value, kinds[schema["type"]]), f"{path}: {value!r} is no {schema['type']}"
        assert "enum" not in schema or value in schema["enum"], f"{path}: {value!r}"
        if schema.get("format") == "google-duration":
            assert re.fullmatch(r"\d+s", value), f"{path}: {value!r}"
        if schema.get("format") == "int32":
            assert -2**31 <= value < 2**31, f"{path}: {value!r}"
        if schema["type"] == "object":
            self.check_fields(schema, value, path)

    def check_fields(self, schema, value, path):
        for name, field in value.items():
            if "additionalProperties" in schema:
                self.check(schema["additionalProperties"], field, f"{path}.{name}")
                continue
            # The JSON form of Protocol Buffers takes the names of fields in both forms.
            camel = re.sub(r"_([a-z])", lambda letter: letter[1].upper(), name)
            assert camel in schema["properties"], f"{path} has no field {name}"
            self.check(schema["properties"][camel], field, f"{path}.{name}")


def read(request):
    """Returns a body, in which no name is there twice."""
    def unique(pairs):
        names = [name for name, _ in pairs]
        assert len(names) == len(set(names)), names
        return dict(pairs)
    return json.loads(request["body"], object_pairs_hook=unique)


def by_firebase(kind, content, hints, seconds, token):
    """Returns what firebase-admin makes of a push."""
    ids = {"message_id": MESSAGE_ID, "app_id": "news", "sequence": str(NOW * 1000)}
    notification = android_notification = None
    if kind == 1:
        kept = ["open_type", "open_content", "icon", "button_text"]
        data = ids | {"notification_type": str(content["notification_type"])}
        data |= {name: str(content[name]) for name in kept if name in content}
        data |= {name: hints[name] for name in ["category"] if name in hints}
        notification = messaging.Notification(content.get("title"), content.get("desc"), hints.get("image"))
        android_notification = messaging.AndroidNotification(
            icon=content.get("small_icon"), color=content.get("small_icon_color"),
            sound=hints.get("sound"), tag=hints.get("collapse_key", MESSAGE_ID),
            click_action="OPEN_LINK" if content.get("open_type") == 2 else None,
            channel_id=hints.get("channel_id"), notification_count=hints.get("badge"))
    else:
        reserved = re.compile(r"(from|message_type|collapse_key|message_id|app_id|sequence|)$|google|gcm|data\.")
        data = ids | {("data." if reserved.match(name) else "") + name: value for name, value in content.items()}
    android = messaging.AndroidConfig(
        collapse_key=hints.get("collapse_key"), ttl=min(seconds, LONGEST_ON_FCM),
        priority=hints.get("priority", "high" if kind == 1 else "normal"), notification=android_notification)
    field = "fid" if token == INSTALLATION else "token"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        message = messaging.Message(data=data, notification=notification, android=android, **{field: token})
    message = _messaging_encoder.MessageEncoder().default(message)
    # The description has the names of this enum in capitals; both are read.
    message["android"]["priority"] = message["android"]["priority"].upper()
    return message


class Fcm(unittest.TestCase):
    def test_every_body_is_one_of_the_api_description(self):
        description = Description()
        for name, request in [*REQUESTS["fcm"]["pushes"].items(), ("probe", REQUESTS["fcm"]["probe"])]:
            with self.subTest(name):
                description.check(description.send["request"], read(request), "body")
                self.assertEqual(request["method"], description.send["httpMethod"])
                path = description.send["path"].replace("{+parent}", "projects/news-1f3a5")
                self.assertEqual(request["path"], f"/{path}")

    def test_a_body_that_is_wrong_is_noticed(self):
        description = Description()
        for body in [{"message": {"tocken": "a"}}, {"message": {"data": {"a": 1}}},
                     {"message": {"android": {"priority": "URGENT"}}}, {"message": {"android": {"ttl": "1"}}}]:
            with self.assertRaises(AssertionError):
                description.check(description.send["request"], body, "body")

    def test_every_body_is_what_firebase_admin_makes_of_the_same_content(self):
        for name, *push in PUSHES:
            with self.subTest(name):
                self.assertEqual(read(REQUESTS["fcm"]["pushes"][name]), {"message": by_firebase(*push)})

    def test_no_name_in_data_is_one_that_fcm_reserves(self):
        for name, request in REQUESTS["fcm"]["pushes"].items():
            for key in read(request)["message"]["data"]:
                self.assertIsNone(re.match(r"from$|message_type$|google|gcm", key), name)

    def test_the_assertion_is_signed_for_the_scope_of_messages(self):
        exchange = REQUESTS["fcm"]["exchange"]
        form = dict(urllib.parse.parse_qsl(exchange["body"], strict_parsing=True))
        self.assertEqual(form["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer")
        claims = jwt.decode(form["assertion"], RSA.public_key(), algorithms=["RS256"],
                            audience="https://oauth2.googleapis.com/token",
                            options={"verify_exp": False, "verify_iat": False})
        self.assertIn(claims["scope"], Description().send["scopes"])
        self.assertEqual(claims["iss"], "push@news-1f3a5.iam.gserviceaccount.com")
        self.assertLessEqual(claims["exp"] - claims["iat"], 3600)
        self.assertLessEqual(claims["iat"], NOW / 1000)
        self.assertEqual(jwt.get_unverified_header(form["assertion"])["kid"], "5d1e")


class Apns(unittest.TestCase):
    def test_the_part_of_apples_is_what_firebase_admin_makes_of_the_same_content(self):
        for name, kind, content, hints, *_ in PUSHES:
            with self.subTest(name):
                aps = messaging.Aps(content_available=True)
                if kind == 1:
                    alert = messaging.ApsAlert(content.get("title"), body=content.get("desc"))
                    aps = messaging.Aps(alert, hints.get("badge"), hints.get("sound"), category=hints.get("category"),
                                        mutable_content="image" in hints)
                expected = _messaging_encoder.MessageEncoder.encode_aps(aps)
                body = read(REQUESTS["apns"]["pushes"][name])
                # An alert without a text is left out there.
                body["aps"] = {key: value for key, value in body["aps"].items() if value != {}}
                self.assertEqual(body["aps"], expected)
                self.assertEqual((body["message_id"], body["type"]), (MESSAGE_ID, kind))
                self.assertEqual(body.get("data"), content if kind == 2 else None)

    def test_every_header_follows_apples_rules(self):
        for name, kind, _, hints, seconds, _ in PUSHES:
            with self.subTest(name):
                request = REQUESTS["apns"]["pushes"][name]
                headers = request["headers"]
                self.assertEqual((request["method"], request["path"]), ("POST", f"/3/device/{DEVICE}"))
                self.assertEqual(headers["apns-topic"], "com.example.news")
                self.assertRegex(headers["apns-id"], r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
                self.assertLessEqual(len(headers["apns-collapse-id"].encode()), 64)
                self.assertEqual(headers["apns-collapse-id"], hints.get("collapse_key", MESSAGE_ID))
                self.assertEqual(headers["apns-push-type"], "alert" if kind == 1 else "background")
                usual = "10" if kind == 1 else "5"
                self.assertEqual(headers["apns-priority"], "5" if hints.get("priority") == "normal" else usual)
                latest = NOW // 1000 + min(seconds, LONGEST_ON_APNS)
                self.assertEqual(int(headers["apns-expiration"]), latest if seconds else 0)
                self.assertLessEqual(len(request["body"].encode()), 4096)

    def test_the_provider_token_is_signed_with_the_key_of_the_team(self):
        for request in REQUESTS["apns"]["pushes"].values():
            scheme, token = request["headers"]["authorization"].split(" ")
            self.assertEqual(scheme.lower(), "bearer")
            claims = jwt.decode(token, EC.public_key(), algorithms=["ES256"], options={"verify_iat": False})
            self.assertEqual(claims["iss"], "TEAM123456")
            self.assertTrue(0 <= NOW / 1000 - claims["iat"] < 3600 and claims["iat"] % 1800 == 0)
            self.assertEqual(jwt.get_unverified_header(token), {"alg": "ES256", "kid": "ABC123DEFG"})


if __name__ == "__main__":
    EXAMPLES = Path(sys.argv.pop(1))
    unittest.main(verbosity=1)
