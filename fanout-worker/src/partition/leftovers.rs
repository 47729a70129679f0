//! Decides which devices of a partition are tried again, when, and how many together. Pure.

use push_model::{
    ids::ClientId,
    ledger::{Leftover, leftover},
    time::UnixMillis,
};

/// The most devices that are tried together after one try without an answer. One of them may break
/// the connection, and then the others of its batch may receive the push twice.
const SMALL_BATCH: usize = 32;

/// The next action for a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextAction {
    /// Try these devices again.
    Retry { index: usize, devices: usize },
    /// Read devices that were not tried yet.
    Read,
    /// Do nothing before this time.
    WaitUntil(UnixMillis),
}

/// Decides on the next action. `at_end`: every device was read. `backlog`: no more devices are read while
/// this many wait for another try.
pub(super) fn next(
    leftovers: &[Leftover],
    now: UnixMillis,
    at_end: bool,
    backlog: u64,
    batch: usize,
) -> NextAction {
    let first = (0..).zip(leftovers).min_by_key(|(_, leftover)| leftover.due_at);
    match first {
        Some((index, leftover)) if leftover.due_at <= now => {
            let devices = batch_size(leftover.unanswered, batch).min(leftover.clients.len());
            NextAction::Retry { index, devices }
        }
        Some((_, first)) if at_end || leftover::count(leftovers) >= backlog => {
            NextAction::WaitUntil(first.due_at)
        }
        _ => NextAction::Read,
    }
}

/// Returns how many devices are tried together, by the number of their tries without an answer.
fn batch_size(unanswered: u32, batch: usize) -> usize {
    match unanswered {
        0 => batch,
        1 => batch.min(SMALL_BATCH),
        _ => 1,
    }
}

/// Takes the first devices out of the leftover at `index`.
pub(super) fn take(leftovers: &mut Vec<Leftover>, index: usize, devices: usize) -> Vec<ClientId> {
    let Some(leftover) = leftovers.get_mut(index) else { return Vec::new() };
    let rest = leftover.clients.split_off(devices.min(leftover.clients.len()));
    let taken = std::mem::replace(&mut leftover.clients, rest);
    if leftover.clients.is_empty() {
        leftovers.remove(index);
    }
    taken
}

/// Takes these devices out of all leftovers.
pub(super) fn remove(leftovers: &mut Vec<Leftover>, clients: &[ClientId]) {
    for leftover in &mut *leftovers {
        leftover.clients.retain(|client| !clients.contains(client));
    }
    leftovers.retain(|leftover| !leftover.clients.is_empty());
}

/// Adds devices to be tried again; they join others of the same time and number of tries.
pub(super) fn add(leftovers: &mut Vec<Leftover>, more: Leftover) {
    if more.clients.is_empty() {
        return;
    }
    let same = |known: &&mut Leftover| {
        (known.attempt, known.unanswered, known.throttled, known.due_at)
            == (more.attempt, more.unanswered, more.throttled, more.due_at)
    };
    match leftovers.iter_mut().find(same) {
        Some(known) => known.clients.extend(more.clients),
        None => leftovers.push(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leftover(unanswered: u32, due_at: u64, devices: usize) -> Leftover {
        let clients = (0..devices).map(|n| format!("d{n}").parse().unwrap()).collect();
        Leftover { attempt: 1, unanswered, throttled: 0, due_at: UnixMillis(due_at), clients }
    }

    fn next_at(leftovers: &[Leftover], now: u64, at_end: bool) -> NextAction {
        next(leftovers, UnixMillis(now), at_end, 100, 1000)
    }

    #[test]
    fn what_is_due_first_is_tried_first_and_reading_goes_on_meanwhile() {
        let waiting = [leftover(0, 50, 5), leftover(0, 20, 7)];
        assert_eq!(next_at(&waiting, 20, false), NextAction::Retry { index: 1, devices: 7 });
        assert_eq!(next_at(&waiting, 19, false), NextAction::Read);
        assert_eq!(next_at(&[], 0, false), NextAction::Read);
    }

    #[test]
    fn a_partition_that_is_read_or_has_too_many_leftovers_waits_for_the_first_of_them() {
        assert_eq!(next_at(&[leftover(0, 20, 7)], 19, true), NextAction::WaitUntil(UnixMillis(20)));
        assert_eq!(
            next_at(&[leftover(0, 20, 100)], 19, false),
            NextAction::WaitUntil(UnixMillis(20))
        );
    }

    #[test]
    fn devices_without_an_answer_are_tried_in_small_groups_and_then_one_by_one() {
        let devices = |unanswered| match next_at(&[leftover(unanswered, 0, 900)], 0, true) {
            NextAction::Retry { devices, .. } => devices,
            other => panic!("{other:?}"),
        };
        assert_eq!([devices(0), devices(1), devices(2), devices(9)], [900, 32, 1, 1]);
    }

    #[test]
    fn a_group_is_taken_out_and_the_rest_stays() {
        let mut waiting = vec![leftover(1, 0, 3)];
        assert_eq!(take(&mut waiting, 0, 2).len(), 2);
        assert_eq!(waiting[0].clients.len(), 1);
        assert_eq!(take(&mut waiting, 0, 2).len(), 1);
        assert!(waiting.is_empty());
        add(&mut waiting, leftover(1, 5, 2));
        add(&mut waiting, leftover(1, 5, 1));
        add(&mut waiting, leftover(2, 5, 1));
        assert_eq!((waiting.len(), waiting[0].clients.len()), (2, 3));
    }
}
