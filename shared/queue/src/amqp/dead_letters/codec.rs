//! The dead-letter codec: how a dead letter is written into an AMQP message, and read.
//!
//! Workers dead-letter a message themselves, with the lane and the reason in headers. The payload is
//! unchanged.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use push_model::time::UnixMillis;
use sha2::{Digest, Sha256};

use crate::{DeadLetter, Lane};

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

/// Reads any message of the dead-letter queue, even one that another program published.
pub(super) fn read(properties: &BasicProperties, payload: Vec<u8>) -> DeadLetter {
    let none = FieldTable::default();
    let headers = properties.headers().as_ref().unwrap_or(&none);
    let written = |name| headers.inner().get(name).and_then(text);
    let unknown = || "unknown: it does not say where it came from".to_owned();
    DeadLetter {
        id: id(properties, &payload),
        lane: written(LANE).and_then(|lane| Lane::from_name(&lane)),
        reason: written(REASON).unwrap_or_else(unknown),
        died_at: written(DIED_AT).and_then(|time| time.parse().ok()),
        payload: payload.into(),
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

    fn dead_by(entries: &[(&str, &str)]) -> BasicProperties {
        let entry = |(queue, reason): &(&str, &str)| {
            let mut entry = FieldTable::default();
            entry.insert("queue".into(), AMQPValue::LongString((*queue).into()));
            entry.insert("reason".into(), AMQPValue::LongString((*reason).into()));
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
        let letter = read(&properties, b"?".to_vec());
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
        assert_eq!(read(&properties, Vec::new()).reason.len(), MAX_REASON - 1);
    }

    #[test]
    fn a_message_without_headers_has_no_lane_but_a_stable_id_of_its_own() {
        let read = |payload: &[u8], properties| read(&properties, payload.to_vec());
        let letter = read(b"a", BasicProperties::default());
        assert_eq!((letter.lane, letter.died_at), (None, None));
        assert_eq!(letter.id, read(b"a", BasicProperties::default()).id);
        assert_ne!(letter.id, read(b"b", BasicProperties::default()).id);
        assert_ne!(letter.id, read(b"a", dead_by(&[("push.jobs", "rejected")])).id);
    }
}
