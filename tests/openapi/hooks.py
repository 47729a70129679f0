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
    """Leaves out registrations whose `client_id` is not that of their path."""
    if isinstance(case.body, dict) and isinstance(case.body.get("client_id"), str):
        if case.body["client_id"] != (case.path_parameters or {}).get("ClientID"):
            return False
    return True
