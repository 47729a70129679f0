"""What JSON Schema cannot say of the API: such requests are made otherwise, or not at all."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    """A batch request: a push on each line."""
    values = value if isinstance(value, list) else [value]
    texts = [text if isinstance(text, str) else json.dumps(text) for text in values]
    return "\n".join(texts).encode()


@schemathesis.hook
def filter_case(ctx, case):
    """Leaves out registrations whose `client_id` is not that of their path, and values of a targeting
    that have more bytes than characters allowed: JSON Schema counts characters only."""
    if isinstance(case.body, dict) and isinstance(case.body.get("client_id"), str):
        if case.body["client_id"] != (case.path_parameters or {}).get("ClientID"):
            return False
    if isinstance(case.body, dict) and isinstance(case.body.get("condition"), dict):
        targeting = case.body["condition"].get("targeting")
        lists = targeting.values() if isinstance(targeting, dict) else []
        values = [value for each in lists if isinstance(each, list) for value in each]
        if any(isinstance(value, str) and is_longer_in_bytes(value) for value in values):
            return False
    return True


def is_longer_in_bytes(value):
    """Tells whether a value has at most 128 characters and more than 128 bytes."""
    return len(value) <= 128 < len(value.encode(errors="surrogatepass"))
