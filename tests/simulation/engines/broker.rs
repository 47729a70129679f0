//! The broker's content, which all processes of a simulation share.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use push_model::{
    envelope::{Task, Work, decode_job_envelope},
    ids::MessageId,
};
use push_queue::{IsolatedEnvelope, Lane};

/// The beginning of an envelope that a newer program wrote.
const NEWER: &[u8] = b"{\"v\":9";

/// A message of the queue.
#[derive(Debug, Clone)]
pub(crate) struct Queued {
    id: u64,
    pub(crate) payload: Bytes,
    /// Number of its deliveries.
    pub(crate) deliveries: u32,
}

#[derive(Debug)]
struct Held {
    lane: Lane,
    message: Queued,
    session: u64,
}

/// The broker's content.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    next: u64,
    ready: BTreeMap<Lane, VecDeque<Queued>>,
    /// Delayed messages. A timer of the world moves them to their lane.
    later: Vec<(Lane, Bytes)>,
    /// Messages that are delivered and not settled, and the session that holds each.
    held: BTreeMap<u64, Held>,
    dead: Vec<(Lane, String)>,
    /// Messages that are on their way to the broker, also if their publish was answered with an
    /// error or their publisher is dead.
    arriving: Vec<(Lane, Bytes)>,
}

impl Broker {
    /// Stores a message at the end of a lane.
    pub(crate) fn push(&mut self, lane: Lane, payload: Bytes) {
        self.next += 1;
        let message = Queued { id: self.next, payload, deliveries: 0 };
        self.ready.entry(lane).or_default().push_back(message);
    }

    /// Stores a delayed message.
    pub(crate) fn delay(&mut self, lane: Lane, payload: Bytes) {
        self.later.push((lane, payload));
    }

    /// A delayed message is due: it goes to the end of its lane.
    pub(crate) fn due(&mut self, lane: Lane, payload: Bytes) {
        take_one(&mut self.later, lane, &payload);
        self.push(lane, payload);
    }

    /// A message that was announced has arrived, or never will.
    pub(crate) fn arrives(&mut self, lane: Lane, payload: &Bytes) {
        take_one(&mut self.arriving, lane, payload);
    }

    /// Announces a message that is on its way, however its publish is answered.
    pub(crate) fn announce(&mut self, lane: Lane, payload: Bytes) {
        self.arriving.push((lane, payload));
    }

    /// Returns how many queue messages concern a partition, or the whole of its message.
    pub(crate) fn about(&self, message: MessageId, partition: u32) -> u32 {
        let ready =
            self.ready.iter().flat_map(|(lane, all)| all.iter().map(|m| (*lane, &m.payload)));
        let held = self.held.values().map(|held| (held.lane, &held.message.payload));
        let arriving = self.arriving.iter().map(|(lane, payload)| (*lane, payload));
        let later = self.later.iter().map(|(lane, payload)| (*lane, payload));
        let is_about = |(lane, payload): (Lane, &Bytes)| {
            let mut parts = parts_of(lane, payload).into_iter();
            parts.any(|(id, number)| id == message && (lane == Lane::Jobs || number == partition))
        };
        ready.chain(held).chain(arriving).chain(later).filter(|one| is_about(*one)).count() as u32
    }

    /// Returns how many messages of a lane wait.
    pub(crate) fn depth(&self, lane: Lane) -> usize {
        self.ready.get(&lane).map_or(0, VecDeque::len)
    }

    /// Stores a dead letter.
    pub(crate) fn put_aside(&mut self, lane: Lane, reason: &str) {
        self.dead.push((lane, reason.to_owned()));
    }

    /// Delivers a message if the prefetch of the session allows it: the first, or another one.
    pub(crate) fn take(
        &mut self,
        lane: Lane,
        session: u64,
        prefetch: usize,
        which: impl FnOnce(usize) -> usize,
    ) -> Option<(u64, Queued)> {
        let mine = |held: &&Held| held.session == session && held.lane == lane;
        if self.held.values().filter(mine).count() >= prefetch {
            return None;
        }
        let ready = self.ready.get_mut(&lane).filter(|ready| !ready.is_empty())?;
        let mut message = ready.remove(which(ready.len()))?;
        message.deliveries += 1;
        let id = message.id;
        self.held.insert(id, Held { lane, message: message.clone(), session });
        Some((id, message))
    }

    /// A session settles a message. False if it does not hold it any more.
    pub(crate) fn ack(&mut self, id: u64, session: u64) -> bool {
        let held = self.holds(id, session);
        if held {
            self.held.remove(&id);
        }
        held
    }

    /// Returns true if a session holds a message.
    pub(crate) fn holds(&self, id: u64, session: u64) -> bool {
        self.held.get(&id).is_some_and(|held| held.session == session)
    }

    /// A session gives a message back: to the front of its lane, or to another position.
    pub(crate) fn give_back(
        &mut self,
        id: u64,
        session: u64,
        which: impl FnOnce(usize) -> usize,
    ) -> bool {
        let held = self.holds(id, session);
        if held && let Some(held) = self.held.remove(&id) {
            let lane = self.ready.entry(held.lane).or_default();
            lane.insert(which(lane.len() + 1), held.message);
        }
        held
    }

    /// A session has ended, so its messages are delivered again. Returns the partitions that they
    /// concern.
    pub(crate) fn end_session(
        &mut self,
        session: u64,
        mut which: impl FnMut(usize) -> usize,
    ) -> Vec<(MessageId, u32)> {
        let of_session = self.held.iter().filter(|(_, held)| held.session == session);
        let ids: Vec<u64> = of_session.map(|(id, _)| *id).collect();
        let mut parts = Vec::new();
        for id in ids.into_iter().rev() {
            parts.extend(self.parts(id));
            self.give_back(id, session, &mut which);
        }
        parts
    }

    /// The partitions that a held message concerns.
    pub(crate) fn parts(&self, id: u64) -> Vec<(MessageId, u32)> {
        let held = self.held.get(&id);
        held.map(|held| parts_of(held.lane, &held.message.payload)).unwrap_or_default()
    }

    /// Returns true if nothing is left but envelopes of a newer program.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.values().all(|held| is_newer(&held.message.payload))
            && self.later.iter().all(|(_, payload)| is_newer(payload))
            && self.ready.values().flatten().all(|message| is_newer(&message.payload))
    }

    /// Returns the number of envelopes of a newer program.
    pub(crate) fn newer(&self) -> usize {
        let ready = self.ready.values().flatten().map(|message| &message.payload);
        let held = self.held.values().map(|held| &held.message.payload);
        let later = self.later.iter().map(|(_, payload)| payload);
        ready.chain(held).chain(later).filter(|payload| is_newer(payload)).count()
    }

    pub(crate) fn dead(&self) -> &[(Lane, String)] {
        &self.dead
    }

    /// The content as text, for the report on a violation.
    pub(crate) fn rest(&self) -> String {
        let ready = self.ready.values().flatten().map(|message| &message.payload);
        let held = self.held.values().map(|held| &held.message.payload);
        let texts = ready.chain(held).map(|payload| String::from_utf8_lossy(payload).into_owned());
        format!("{:?} and {} later", texts.collect::<Vec<_>>(), self.later.len())
    }
}

fn take_one(from: &mut Vec<(Lane, Bytes)>, lane: Lane, payload: &Bytes) {
    if let Some(place) = from.iter().position(|(l, p)| (*l, p) == (lane, payload)) {
        from.swap_remove(place);
    }
}

/// An envelope that a newer program wrote.
pub(crate) fn newer_envelope() -> Bytes {
    Bytes::from_static(b"{\"v\":9}")
}

fn is_newer(payload: &Bytes) -> bool {
    payload.starts_with(NEWER)
}

/// The partitions of messages that a queue message concerns.
pub(crate) fn parts_of(lane: Lane, payload: &Bytes) -> Vec<(MessageId, u32)> {
    match lane {
        Lane::Isolated => {
            let isolated = IsolatedEnvelope::decode(payload);
            isolated.map(|all| parts_of(all.lane.into(), &all.envelope)).unwrap_or_default()
        }
        Lane::Jobs => {
            let jobs = decode_job_envelope(payload).unwrap_or_default();
            jobs.into_iter().flatten().map(|job| (job.head.message_id, 0)).collect()
        }
        Lane::Tasks => match Task::decode(payload) {
            Ok(Task { job, work: Work::Partition(task), .. }) => {
                vec![(job.head.message_id, task.partition)]
            }
            _ => Vec::new(),
        },
    }
}
