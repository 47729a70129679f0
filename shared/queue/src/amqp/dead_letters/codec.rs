//! The dead-letter codec: how a dead letter is written into an AMQP message, and read.
//!
//! Workers dead-letter a message themselves, with the lane and the reason in headers. Letters of
//! earlier versions of the service may still be in the queue: those were dead-lettered by RabbitMQ,
//! which adds the header `x-death`. The payload is unchanged in both cases.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use push_model::time::UnixMillis;
use sha2::{Digest, Sha256};

use crate::{DeadLetter, Lane, amqp::topology::Names};

const LANE: &str = "x-push-lane";
const REASON: &str = "x-push-reason";
const DIED_AT: &str = "x-push-dead-since";
const DEATHS: &str = "x-death";

/// Longest reason, in bytes: all headers must fit into one frame, of 128 KiB at least.
const MAX_REASON: usize = 4096;

/// The headers of a message that a worker dead-letters.
pub(crate) fn headers(lane: Lane, reason: &str, now: UnixMillis) -> FieldTable {
    let end = reason.floor_char_boundary(MAX_REASON);
    let mut headers = FieldTable::default();
    let mut text = |name: &str, value: &str| {
        headers.insert(name.into(), AMQPValue::LongString(value.into()));
    };
    text(LANE, lane.name());
    text(REASON, reason.get(..end).unwrap_or_default());
    text(DIED_AT, &now.to_string());
    headers
}

/// Reads any message of the dead-letter queue, also one that another program published.
pub(super) fn read(names: &Names, properties: &BasicProperties, payload: Vec<u8>) -> DeadLetter {
    let id = id(properties, &payload);
    let none = FieldTable::default();
    let headers = properties.headers().as_ref().unwrap_or(&none);
    let written = |name| headers.inner().get(name).and_then(text);
    let payload = payload.into();
    match written(REASON) {
        Some(reason) => DeadLetter {
            id,
            lane: written(LANE).and_then(|lane| Lane::from_name(&lane)),
            reason,
            died_at: written(DIED_AT).and_then(|time| time.parse().ok()),
            payload,
        },
        None => {
            let Death { lane, reason, at: died_at } = death(names, headers);
            DeadLetter { id, lane, reason, died_at, payload }
        }
    }
}

/// The id of a letter, the same each time it is read: the message's own id or, for a message
/// without one, a hash of `x-death` and payload.
fn id(properties: &BasicProperties, payload: &[u8]) -> String {
    if let Some(id) = properties.message_id().as_ref().filter(|id| !id.as_str().is_empty()) {
        return id.to_string();
    }
    let deaths = properties.headers().as_ref().and_then(|headers| headers.inner().get(DEATHS));
    let mut hash = Sha256::new();
    hash.update(format!("{deaths:?}"));
    hash.update(payload);
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The queue that the server dropped a message from last, and why.
pub(crate) fn dropped_from(headers: &FieldTable) -> (String, String) {
    let last = match headers.inner().get(DEATHS) {
        Some(AMQPValue::FieldArray(deaths)) => deaths.as_slice().first(),
        _ => None,
    };
    let field = |name: &str| match last {
        Some(AMQPValue::FieldTable(death)) => death.inner().get(name).and_then(text),
        _ => None,
    };
    (field("queue").unwrap_or_default(), field("reason").unwrap_or_default())
}

/// What `x-death` says about a message.
struct Death {
    lane: Option<Lane>,
    reason: String,
    at: Option<UnixMillis>,
}

/// Reads the lane and the reason from `x-death`. It has an entry for each queue and reason; those
/// of the delay queues are skipped, because an expired delay is no failure.
fn death(names: &Names, headers: &FieldTable) -> Death {
    let deaths = match headers.inner().get(DEATHS) {
        Some(AMQPValue::FieldArray(deaths)) => deaths.as_slice(),
        _ => &[],
    };
    for death in deaths {
        let AMQPValue::FieldTable(death) = death else { continue };
        let field = |name| death.inner().get(name).and_then(text).unwrap_or_default();
        if let Some(lane) = names.lane_of(&field("queue")) {
            let reason = match field("reason").as_str() {
                "delivery_limit" => "it was delivered too often without being settled".to_owned(),
                other => format!("RabbitMQ dead-lettered it: {other}"),
            };
            let at = match death.inner().get("time") {
                // In seconds.
                Some(AMQPValue::Timestamp(seconds)) => Some(UnixMillis(0).plus_seconds(*seconds)),
                _ => None,
            };
            return Death { lane: Some(lane), reason, at };
        }
    }
    let reason = "unknown: it does not say where it came from".to_owned();
    Death { lane: None, reason, at: None }
}

fn text(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(text) => Some(text.to_string()),
        AMQPValue::ShortString(text) => Some(text.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new("push".to_owned())
    }

    fn dead_by(entries: &[(&str, &str)]) -> BasicProperties {
        let entry = |(queue, reason): &(&str, &str)| {
            let mut entry = FieldTable::default();
            entry.insert("queue".into(), AMQPValue::LongString((*queue).into()));
            entry.insert("reason".into(), AMQPValue::LongString((*reason).into()));
            entry.insert("time".into(), AMQPValue::Timestamp(7));
            AMQPValue::FieldTable(entry)
        };
        let deaths: Vec<AMQPValue> = entries.iter().map(entry).collect();
        let mut headers = FieldTable::default();
        headers.insert(DEATHS.into(), AMQPValue::FieldArray(deaths.into()));
        BasicProperties::default().with_headers(headers)
    }

    #[test]
    fn what_a_worker_writes_is_read_back() {
        let properties = BasicProperties::default()
            .with_message_id("m1".into())
            .with_headers(headers(Lane::Tasks, "not JSON", UnixMillis(1234)));
        let letter = read(&names(), &properties, b"?".to_vec());
        assert_eq!((letter.id.as_str(), letter.lane), ("m1", Some(Lane::Tasks)));
        assert_eq!(letter.died_at, Some(UnixMillis(1234)));
        assert_eq!((letter.reason.as_str(), &letter.payload[..]), ("not JSON", &b"?"[..]));
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let reason = "é".repeat(MAX_REASON);
        let properties = BasicProperties::default().with_headers(headers(
            Lane::Jobs,
            &format!("x{reason}"),
            UnixMillis(0),
        ));
        assert_eq!(read(&names(), &properties, Vec::new()).reason.len(), MAX_REASON - 1);
    }

    #[test]
    fn a_message_that_was_delayed_and_then_delivered_too_often_has_its_lane_and_reason() {
        let properties = dead_by(&[("push.jobs", "delivery_limit"), ("push.delay.4s", "expired")]);
        let letter = read(&names(), &properties, Vec::new());
        assert_eq!((letter.lane, letter.died_at), (Some(Lane::Jobs), Some(UnixMillis(7000))));
        assert_eq!(letter.reason, "it was delivered too often without being settled");
    }

    #[test]
    fn a_message_without_headers_has_no_lane_but_a_stable_id_of_its_own() {
        let read = |payload: &[u8], properties| read(&names(), &properties, payload.to_vec());
        let letter = read(b"a", BasicProperties::default());
        assert_eq!((letter.lane, letter.died_at), (None, None));
        assert_eq!(letter.id, read(b"a", BasicProperties::default()).id);
        assert_ne!(letter.id, read(b"b", BasicProperties::default()).id);
        assert_ne!(letter.id, read(b"a", dead_by(&[("push.jobs", "rejected")])).id);
    }
}
