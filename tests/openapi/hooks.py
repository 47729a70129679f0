"""What JSON Schema cannot say of the API: such requests are made otherwise, or not at all."""

import json

import schemathesis

# The hints of a push with the most bytes that each may have.
HINTS = {"collapse_key": 64, "channel_id": 256, "category": 256, "sound": 256}


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    """A batch request: a push on each line."""
    values = value if isinstance(value, list) else [value]
    texts = [text if isinstance(text, str) else json.dumps(text) for text in values]
    return "\n".join(texts).encode()


@schemathesis.hook
def filter_case(ctx, case):
    """Leaves out registrations whose `client_id` is not that of their path, and values of a targeting
    or a hint that have more bytes than characters allowed: JSON Schema counts characters only. So are
    subscriptions, whose JSON is in a string, and pictures: few texts of the form `uri` are URLs with a host."""
    if isinstance(case.body, dict) and case.body.get("transport") == "webpush":
        return False
    if isinstance(case.body, dict) and case.body.get("image") is not None:
        return False
    if isinstance(case.body, dict) and isinstance(case.body.get("client_id"), str):
        if case.body["client_id"] != (case.path_parameters or {}).get("ClientID"):
            return False
    if isinstance(case.body, dict) and isinstance(case.body.get("condition"), dict):
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


def is_longer_in_bytes(value, most=128):
    """Tells whether a value has at most so many characters and more bytes."""
    return len(value) <= most < len(value.encode(errors="surrogatepass"))
