//! Faults that are about no process: the index forgets, producers recall, devices come and go.

use std::{sync::Arc, time::Duration};

use push_model::{
    ids::MessageId,
    ledger::{Ahead, Recall},
};
use push_queue::Lane;

use crate::{
    broker::newer_envelope,
    custody::Touched,
    fault::Fault,
    people::device,
    world::{World, lock},
};

/// No world has broadcasts of more partitions.
const MOST_PARTITIONS: u32 = 3;
/// How long a recall is kept that came before its message.
const KEPT: Duration = Duration::from_hours(1);

/// Something happens in the world.
pub(crate) fn world(world: &Arc<World>, fault: Fault) {
    match fault {
        Fault::ForgetOne => forget(world, 1),
        Fault::ForgetThree => forget(world, 3),
        Fault::ForgetEntry => {
            let mut store = lock(&world.store);
            if let Some(message) = store.last_written() {
                store.forget_entry(message, &mut lock(&world.custody));
                drop(store);
                count_copies(world, message, Touched::Message, MOST_PARTITIONS);
            }
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
    let forgotten = lock(&world.store).forget(writes, &mut lock(&world.custody));
    for (message, touched) in forgotten {
        count_copies(world, message, touched, MOST_PARTITIONS);
    }
}

/// Notes how many queue messages are about what the index forgot.
fn count_copies(world: &World, message: MessageId, touched: Touched, partitions: u32) {
    let (broker, mut custody) = (lock(&world.broker), lock(&world.custody));
    let partitions = match touched {
        Touched::Partition(number) => number..number + 1,
        Touched::Message => 0..partitions,
    };
    for partition in partitions {
        custody.copies_at_loss(message, partition, broker.about(message, partition));
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
        let ahead = Ahead { accepted_at: now, keep_until: now.plus(KEPT) };
        store.recall(&world.app, message, &Recall { at: now, ahead: Some(ahead) });
    }
}

/// Registers a device that was never there.
fn register(world: &World) {
    let (mut store, now) = (lock(&world.store), world.now());
    let name = format!("new{}", store.people.len());
    store.register(device(&name, "CN"), now, now);
}

/// Removes the device that is told to be tried later, or the first.
fn remove(world: &World) {
    let (mut store, now) = (lock(&world.store), world.now());
    let inbox = lock(&world.inbox);
    let there = || store.people.iter().filter(|person| person.removed.is_none());
    let later = there().find(|person| inbox.later_first.contains(&person.device.client_id));
    if let Some(person) = later.or_else(|| there().next()) {
        let client = person.device.client_id.clone();
        store.remove(&client, now);
    }
}
