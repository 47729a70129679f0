//! Envelopes that are processed alone ([`Lane::Isolated`](crate::Lane::Isolated)).
//!
//! When a process dies, the queue delivers all messages again that it held, and counts that for each
//! of them. So the count alone does not tell which of them ended the process. An envelope that was
//! delivered often moves to a lane from which a worker takes one message at a time: there the count
//! grows only for the message that was in work.

use bytes::Bytes;

use crate::WorkLane;

/// An envelope of the isolated lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IsolatedEnvelope {
    /// The lane it came from.
    pub lane: WorkLane,
    /// The number of its deliveries before it was moved. Its deliveries from here on are counted on
    /// top, so that each of them is later than all before.
    pub deliveries: u32,
    /// The envelope, unchanged: it is not decoded to be moved, because that may be what ends a
    /// process.
    pub envelope: Bytes,
}

/// The length of what stands before the envelope: the lane, and the number.
const HEAD: usize = 5;

impl IsolatedEnvelope {
    /// The payload of its queue message.
    pub fn encode(&self) -> Bytes {
        let mut payload = Vec::with_capacity(HEAD + self.envelope.len());
        payload.push(match self.lane {
            WorkLane::Jobs => b'j',
            WorkLane::Tasks => b't',
        });
        payload.extend(self.deliveries.to_be_bytes());
        payload.extend_from_slice(&self.envelope);
        payload.into()
    }

    /// Reads the payload of a queue message. None if it is none of these.
    pub fn decode(payload: &Bytes) -> Option<Self> {
        let (head, _) = payload.split_first_chunk::<HEAD>()?;
        let [lane, deliveries @ ..] = *head;
        let lane = match lane {
            b'j' => WorkLane::Jobs,
            b't' => WorkLane::Tasks,
            _ => return None,
        };
        let deliveries = u32::from_be_bytes(deliveries);
        Some(Self { lane, deliveries, envelope: payload.slice(HEAD..) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_isolated_envelope_is_read_as_it_was_written() {
        for lane in WorkLane::ALL {
            for envelope in [Bytes::new(), Bytes::from_static(b"{}")] {
                let isolated = IsolatedEnvelope { lane, deliveries: 7, envelope };
                assert_eq!(IsolatedEnvelope::decode(&isolated.encode()), Some(isolated));
            }
        }
        for other in [&b""[..], b"j123", b"{\"v\":1}"] {
            assert_eq!(IsolatedEnvelope::decode(&Bytes::from_static(other)), None);
        }
    }
}
