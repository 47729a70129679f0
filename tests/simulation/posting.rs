//! The way of a producer's pushes to the queue.

use std::{collections::BTreeMap, time::Duration};

use push_model::{
    envelope::{JobMarks, encode_job, encode_job_envelope},
    hints::Hints,
    ids::{ClientId, MessageId},
    message::{Audience, Payload},
    time::UnixMillis,
};
use push_queue::Lane;
use uuid::Uuid;

use crate::{
    oracle::people::{Copy, Push},
    world::{World, lock},
};

/// Accepts a push, by a program whose clock says `accepted_at`: returns the job, and notes the
/// acceptance with the push.
pub(crate) fn accept(
    world: &World,
    push: &mut Push,
    accepted_at: UnixMillis,
    time_to_live: Duration,
) -> Vec<u8> {
    let expires_at = accepted_at.plus(time_to_live);
    let payload = Payload {
        message_id: push.id,
        app_id: world.app.clone(),
        kind: 2,
        notification: None,
        data: Some(BTreeMap::new()),
        hints: Hints::default(),
        accepted_at,
        sequence: accepted_at.0 * 1000,
        expires_at,
    };
    let now_window = world.settings.run.now_window;
    let deadline = if time_to_live.is_zero() { accepted_at.plus(now_window) } else { expires_at };
    push.copies.push(Copy { accepted: world.now(), accepted_at, deadline });
    let dedup_nonce = push.copies.len() as u64;
    encode_job(&payload, &push.audience, JobMarks { dedup_nonce, ..JobMarks::default() })
        .expect("JSON")
}

/// Puts these jobs into the job lane as one envelope.
pub(crate) fn publish(world: &World, jobs: &[Vec<u8>]) {
    lock(&world.broker).push(Lane::Jobs, encode_job_envelope(jobs));
    world.changed.notify_waiters();
}

/// A push before its first acceptance.
pub(crate) fn push(number: u128, audience: Audience) -> Push {
    Push { id: MessageId::from_uuid(Uuid::from_u128(number)), audience, copies: Vec::new() }
}

pub(crate) fn named(names: &[&str]) -> Audience {
    let client = |name: &&str| -> ClientId { name.parse().expect("a client id") };
    Audience::Clients(names.iter().map(client).collect())
}
