"""Calls the service with the client that openapi-python-client has generated."""

import os
import time

from push_client import AuthenticatedClient
from push_client.api.devices import put_device
from push_client.api.messages import get_message
from push_client.api.push import push
from push_client.models import (
    Accepted,
    Condition,
    ConditionType,
    Data,
    DeviceDraft,
    Error,
    ErrorStatus,
    MessageReport,
    ReportState,
    Notification,
    NotificationType,
    Priority,
    Push,
    PushType,
    RegisteredDevice,
    Targeting,
    TransportKind,
)

APP = "clients"
client = AuthenticatedClient(
    os.environ["PUSH_SERVER"],
    token=os.environ["PUSH_SECRET"],
    prefix="",
    auth_header_name="Authorization",
    raise_on_unexpected_status=True,
)


def wait_for_report(message_id):
    """Returns the report of a message as soon as every device has an outcome."""
    deadline = time.monotonic() + 20
    while True:
        report = get_message.sync(APP, message_id, client=client)
        assert isinstance(report, MessageReport), report
        if report.result.state == ReportState.DONE:
            return report.result
        assert time.monotonic() < deadline, report
        time.sleep(0.05)


# `discard` takes every message and sends nothing.
draft = DeviceDraft(country="SG", language="zh-CN", transport=TransportKind.DISCARD)
registered = put_device.sync(APP, "python-1", client=client, body=draft)
assert isinstance(registered, RegisteredDevice), registered
assert registered.result.language == "zh-cn", registered
assert registered.result.transport == TransportKind.DISCARD, registered

phone = put_device.sync(APP, "python-2", client=client, body=DeviceDraft(country="Nowhere"))
assert isinstance(phone, RegisteredDevice), phone
assert phone.result.mqtt and phone.result.mqtt.topic == "push/clients/python-2", phone
assert phone.result.warnings and "country" in phone.result.warnings[0], phone

to_a_country = Push(
    type_=PushType.NOTIFICATION,
    time_to_live=60,
    condition=Condition(ConditionType.TARGETING, targeting=Targeting(country=["SG"])),
    notification=Notification(title="你好", notification_type=NotificationType.SYSTEM),
    priority=Priority.HIGH,
    dry_run=True,
)
checked = push.sync(APP, client=client, body=to_a_country)
assert isinstance(checked, Accepted), checked
unsent = get_message.sync(APP, checked.result.message_id, client=client)
assert isinstance(unsent, Error) and unsent.status == ErrorStatus.NOT_FOUND, unsent

data = Data()
data["order"] = "4711"
to_one = Push(
    type_=PushType.DATA,
    time_to_live=60,
    condition=Condition(ConditionType.CLIENT_IDS, client_ids=["python-1"]),
    data=data,
)
keyed = [push.sync(APP, client=client, body=to_one, idempotency_key="order-4711") for _ in range(2)]
assert isinstance(keyed[0], Accepted) and keyed[0] == keyed[1], keyed
sent = push.sync(APP, client=client, body=to_one)
assert isinstance(sent, Accepted) and sent != keyed[0], sent
report = wait_for_report(sent.result.message_id)
assert (report.targeted, report.sent, report.pending) == (1, 1, 0), report

to_one.condition = Condition(ConditionType.CLIENT_IDS)
refused = push.sync_detailed(APP, client=client, body=to_one)
assert refused.status_code == 400, refused
assert isinstance(refused.parsed, Error), refused
assert refused.parsed.status == ErrorStatus.MESSAGE_ILLEGAL, refused
assert "client_ids" in refused.parsed.message, refused
