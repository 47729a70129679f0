//! Faults that concern no process: the index loses writes, producers recall, devices register and
//! leave.

use std::{sync::Arc, time::Duration};

use push_model::{
    ids::MessageId,
    ledger::{EarlyRecall, Recall},
};
use push_queue::Lane;

use crate::{
    engines::broker::newer_envelope,
    faults::fault::Fault,
    oracle::custody::Touched,
    oracle::people::device,
    world::{World, lock},
};

/// More partitions than a broadcast of any world has.
const MOST_PARTITIONS: u32 = 3;
/// Time for which a recall is kept that came before a worker began its message.
const KEPT: Duration = Duration::from_hours(1);

/// Carries out a fault in the world.
pub(crate) fn world(world: &Arc<World>, fault: Fault) {
    match fault {
        Fault::ForgetOne => forget(world, 1),
        Fault::ForgetThree => forget(world, 3),
        Fault::ForgetEntry => {
            let mut store = lock(&world.store);
            if let Some(message) = store.last_written() {
                store.forget_entry(message, &mut lock(&world.custody));
                drop(store);
                count_queue_messages(world, message, Touched::Message, MOST_PARTITIONS);
            }
        }
        Fault::Evict => {
            let once: Vec<_> = lock(&world.pushes)
                .iter()
                .filter(|push| push.copies.len() == 1)
                .map(|push| push.id)
                .collect();
            lock(&world.store).evict(once, world.now());
        }
        Fault::Recall => recall(world),
        Fault::Register => register(world),
        Fault::Remove => remove(world),
        Fault::Reuse => {
            remove(world);
            register(world);
        }
        Fault::Newer => {
            Lane::ALL.into_iter().for_each(|lane| lock(&world.broker).push(lane, newer_envelope()));
            world.changed.notify_waiters();
        }
        _ => {}
    }
}

fn forget(world: &World, writes: usize) {
    let touched_messages = lock(&world.store).forget(writes, &mut lock(&world.custody));
    for (message, touched) in touched_messages {
        count_queue_messages(world, message, touched, MOST_PARTITIONS);
    }
}

/// Notes how many queue messages concern the partitions whose state the index lost.
fn count_queue_messages(world: &World, message: MessageId, touched: Touched, partitions: u32) {
    let (broker, mut custody) = (lock(&world.broker), lock(&world.custody));
    let partitions = match touched {
        Touched::Partition(number) => number..number + 1,
        Touched::Message => 0..partitions,
    };
    for partition in partitions {
        custody.messages_at_loss(message, partition, broker.about(message, partition));
    }
}

/// Recalls the message that was written last, or the first that is not recalled.
fn recall(world: &World) {
    let (mut store, now) = (lock(&world.store), world.now());
    let pushes = lock(&world.pushes);
    let open: Vec<_> = pushes.iter().map(|push| push.id).collect();
    let is_open = |id: &_| store.recalled_for(id, now).is_none();
    let last = store.last_written().filter(is_open);
    if let Some(message) = last.or_else(|| open.iter().copied().find(is_open)) {
        let early = EarlyRecall { accepted_at: now, keep_until: now.plus(KEPT) };
        store.recall(&world.app, message, &Recall { at: now, early: Some(early) });
    }
}

/// Registers a new device.
fn register(world: &World) {
    let (mut store, now) = (lock(&world.store), world.now());
    let name = format!("new{}", store.people.len());
    store.register(device(&name, "CN"), now, now);
}

/// Removes the device whose first try has an answer of its own, or the first device.
fn remove(world: &World) {
    let (mut store, now) = (lock(&world.store), world.now());
    let inbox = lock(&world.inbox);
    let there = || store.people.iter().filter(|person| person.removed.is_none());
    let later = there().find(|person| inbox.first.contains_key(&person.device.client_id));
    if let Some(person) = later.or_else(|| there().next()) {
        let client = person.device.client_id.clone();
        store.remove(&client, now);
    }
}
