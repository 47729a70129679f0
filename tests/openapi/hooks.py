"""What JSON Schema cannot say of the API: such requests are made otherwise, or not at all."""

import json
from pathlib import Path

import jsonschema_rs
import schemathesis

DESCRIPTION = json.loads(Path("../../ingest/openapi.json").read_text())
# The bodies that have a condition.
CONDITIONED = [
    jsonschema_rs.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": DESCRIPTION["components"]}
    )
    for name in ("Push", "AudienceQuestion")
]

# The hints of a push with the most bytes that each may have.
HINTS = {"collapse_key": 64, "channel_id": 256, "category": 256, "sound": 256}


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    """A batch request: a push on each line."""
    values = value if isinstance(value, list) else [value]
    texts = [text if isinstance(text, str) else json.dumps(text) for text in values]
    return "\n".join(texts).encode()


@schemathesis.hook
def before_load_schema(ctx, schema):
    """Leaves filters out: what covers a schema that contains itself takes minutes."""
    schemas = schema.get("components", {}).get("schemas", {})
    if "Targeting" in schemas:
        del schemas["Targeting"]["properties"]["filter"]


@schemathesis.hook
def filter_case(ctx, case):
    """Leaves out registrations whose `client_id` is not that of their path, and values of a targeting
    or a hint that have more bytes than characters allowed: JSON Schema counts characters only. So are
    subscriptions, whose JSON is in a string, and pictures: few texts of the form `uri` are URLs with a host.
    Samples have two decimals, which `multipleOf` cannot say of floats. Cursors come from earlier answers, and with
    strict handling a field that the schema leaves open is refused."""
    if "cursor" in (case.query or {}):
        return False
    if any(name.lower() == "prefer" for name in case.headers or {}):
        return False
    if isinstance(case.body, dict) and case.body.get("transport") == "webpush":
        return False
    if isinstance(case.body, dict) and case.body.get("image") is not None:
        return False
    if isinstance(case.body, dict) and isinstance(case.body.get("client_id"), str):
        if case.body["client_id"] != (case.path_parameters or {}).get("ClientID"):
            return False
    if isinstance(case.body, dict) and isinstance(case.body.get("condition"), dict):
        effective = with_effect(case.body)
        if any(not it.is_valid(case.body) and it.is_valid(effective) for it in CONDITIONED):
            return False
        sample = case.body["condition"].get("sample")
        shares = [sample.get("from"), sample.get("to")] if isinstance(sample, dict) else []
        if any(isinstance(share, float) and round(share, 2) != share for share in shares):
            return False
        targeting = case.body["condition"].get("targeting")
        lists = targeting.values() if isinstance(targeting, dict) else []
        values = [value for each in lists if isinstance(each, list) for value in each]
        if any(isinstance(value, str) and is_longer_in_bytes(value) for value in values):
            return False
        for name, most in HINTS.items():
            hint = case.body.get(name)
            if isinstance(hint, str) and is_longer_in_bytes(hint, most):
                return False
    return True


def with_effect(push):
    """Returns a push without what its types leave without effect: that may hold anything."""
    push = dict(push)
    push.pop({1: "data", 2: "notification"}.get(number(push.get("type"))), None)
    condition = push["condition"] = dict(push["condition"])
    unread = {0: ["targeting", "client_ids"], 1: ["client_ids"], 2: ["targeting"]}
    for name in unread.get(number(condition.get("type")), []):
        condition.pop(name, None)
    if isinstance(push.get("notification"), dict):
        notification = push["notification"] = dict(push["notification"])
        kind = notification.get("notification_type")
        unread = {1: ["icon", "button_text"], 3: ["small_icon", "small_icon_color"]}
        for name in unread.get(1 if kind is None else number(kind), []):
            notification.pop(name, None)
    return push


def number(value):
    """Returns a number, and nothing for what equals one in Python alone, such as True."""
    return value if type(value) in (int, float) else None


def is_longer_in_bytes(value, most=128):
    """Tells whether a value has at most so many characters and more bytes."""
    return len(value) <= most < len(value.encode(errors="surrogatepass"))
