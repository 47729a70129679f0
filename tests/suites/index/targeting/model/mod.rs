//! Random registrations, patches, removals, sweeps and targetings: an engine gives the same answers as a map in memory
//! that changes profiles by [`ProfileChange::apply`](push_model::profile::ProfileChange::apply) and targets by
//! [`Targeting::matches`](push_model::targeting::Targeting::matches).
//!
//! In the middle of a sequence the app declares its custom attributes anew.
//!
//! - `actions`: random actions
//! - `oracle`: the map

mod actions;
mod oracle;

use std::collections::{BTreeMap, HashSet};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use push_index::{Index, Selection, SweepStep, count_audience};
use push_model::{
    app::{App, AppKey},
    attributes::Attribute,
    custom::Declarations,
    device::{Carrier, Device, TargetFields, TransportKind},
    ids::{ClientId, UserId},
    message::{Audience, NamedUsers},
    profile::{DeviceWrite, Profile},
    registration::GoneDevice,
    secret::Secret,
    targeting::Targeting,
    time::UnixMillis,
};

use self::{
    actions::{Action, an_action, declare},
    oracle::{Known, Model, retain_declared},
};
use crate::index::support::{NOW, device, scan_all, scan_carrier};

/// Random sequences for each engine, each in an app of its own.
const SEQUENCES: usize = 12;
/// Actions of each half of a sequence.
const ACTIONS: usize = 40;

/// proptest makes the sequences from a fixed seed, so that a failure comes again. They are run
/// here, because proptest itself cannot await.
pub(crate) async fn every_engine_answers_like_the_model(index: &dyn Index) {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    for number in 0..SEQUENCES {
        let mut record =
            App::new(format!("app{number}").parse().unwrap(), &Secret::generate(), NOW);
        declare(&mut record.attributes);
        assert!(index.create_app(&record).await.unwrap());
        let app = AppKey::from(&record);
        let mut model = Model::default();
        if number % 2 == 1 {
            crowd_dictionaries(index, &app, &record.attributes).await;
        }
        for half in ["first", "second"] {
            let sequence = prop::collection::vec(an_action(&record.attributes), ACTIONS);
            let actions = sequence.new_tree(&mut runner).unwrap().current();
            for (step, action) in actions.iter().enumerate() {
                let at = format!("sequence {number}, {half} half, step {step}: {action:?}");
                run(index, &app, &mut model, action, &at).await;
            }
            compare_all(index, &app, &model, &record.attributes).await;
            declare(&mut record.attributes);
            assert!(index.update_app(&record).await.unwrap());
            record.revision += 1;
            model.retain_declared(&record.attributes);
        }
        // Nothing is left of the attributes that the app declared before.
        for _ in 0..4 {
            index.sweep(&app, SweepStep::Now).await.unwrap();
        }
        for device in all_devices(index, &app).await.values() {
            assert_eq!(device.profile.custom, [], "sequence {number}: {device:?}");
        }
        compare_all(index, &app, &model, &record.attributes).await;
    }
}

/// Fills the dictionaries so that the values of the actions have codes around 256: in the Redis
/// engine codes have two bytes from there on.
async fn crowd_dictionaries(index: &dyn Index, app: &AppKey, declared: &Declarations) {
    let number = |n: usize| {
        let (text, level) = (format!("other{n}"), (1000 + n).to_string());
        let fields = [
            ("brand", &*text),
            ("model", &*text),
            ("app_version", &*text),
            ("os_version", &*level),
        ];
        let custom = declared.iter().map(|declared| (declared.id, level.as_str().into())).collect();
        let profile = Profile { custom, topics: vec![text.parse().unwrap()], user_id: None };
        Device { profile, ..device("other", &fields) }
    };
    let others: Vec<_> = (0..253).map(number).collect();
    for put in index.put_devices(app, &others, UnixMillis(0)).await.unwrap() {
        put.unwrap();
    }
    assert!(index.remove_device(app, &others[0].client_id).await.unwrap());
}

async fn run(index: &dyn Index, app: &AppKey, model: &mut Model, action: &Action, at: &str) {
    match action {
        Action::Put(devices, now) => {
            let write = |device: &Device| Ok(model.write(&DeviceWrite::from(device.clone()), *now));
            let expected: Vec<_> = devices.iter().map(write).collect();
            assert_eq!(index.put_devices(app, devices, *now).await.unwrap(), expected, "{at}");
        }
        Action::Write(writes, now) => {
            let expected: Vec<_> =
                writes.iter().map(|write| Ok(model.write(write, *now))).collect();
            if let [write] = &**writes {
                let put = index.register(app, write, None, *now).await.unwrap().map(|(put, _)| put);
                assert_eq!([put], *expected, "{at}");
            } else {
                assert_eq!(index.write_devices(app, writes, *now).await.unwrap(), expected, "{at}");
            }
        }
        Action::Patch(changes) => {
            let patch = |(client, change): &(_, _)| model.patch(client, change);
            let expected: Vec<_> = changes.iter().map(patch).collect();
            assert_eq!(index.patch_devices(app, changes).await.unwrap(), expected, "{at}");
        }
        Action::Remove(client) => {
            let expected = model.remove(client);
            assert_eq!(index.remove_device(app, client).await.unwrap(), expected, "{at}");
        }
        Action::RemoveGone(client, same_token, since) => {
            let known = model.devices.get(client);
            let transport = known.map_or(TransportKind::Fcm, |known| known.device.transport);
            let stored = known.and_then(|known| known.device.token.clone());
            let token = if *same_token { stored } else { Some("ANOTHER".into()) };
            let (client_id, since, code) = (client.clone(), *since, "gone");
            let gone = GoneDevice { client_id, transport, token, since, code };
            let expected = known.is_some_and(|known| {
                gone.is_of(transport, known.device.token.as_deref(), known.renewed_at)
            });
            let removed = index.remove_devices(app, &[gone], since).await.unwrap();
            assert_eq!(removed, [expected], "{at}");
            assert!(!expected || model.remove(client), "{at}");
        }
        Action::Ask(targeting, by, limit) => {
            ask(index, app, model, (targeting, *by, *limit), at).await;
        }
        // A step of a sweep; in the Redis engine every second one frees values.
        Action::Sweep => {
            index.sweep(app, SweepStep::Now).await.unwrap();
        }
        Action::Find(clients) => find(index, app, model, clients, at).await,
        Action::FindUser(user, clients) => {
            find_user(index, app, model, (user, clients), at).await;
        }
    }
}

/// Compares a broadcast's devices and the counts of its audience.
async fn ask(
    index: &dyn Index,
    app: &AppKey,
    model: &Model,
    (targeting, by, limit): (&Targeting, UnixMillis, usize),
    at: &str,
) {
    let extents = index.carriers(app).await.unwrap();
    let mut all = Vec::new();
    for carrier in Carrier::ALL {
        let expected = model.meant(carrier, targeting, by);
        let extent = extents.iter().find(|extent| extent.carrier == carrier);
        let ranges = extent.map(|extent| extent.ranges.clone()).unwrap_or_default();
        let mut count = 0;
        for range in &ranges {
            let selection = Selection { carrier, targeting, registered_by: by };
            count += index.count_matching(app, *range, selection).await.unwrap();
        }
        let found = scan_carrier(index, app, (carrier, targeting, by), ranges, limit).await;
        assert_eq!(sorted(&found), sorted(&expected), "{carrier:?} {at}");
        assert_eq!(count, expected.len() as u64, "{carrier:?} {at}");
        all.extend(found);
    }
    let once: HashSet<_> = all.iter().collect();
    assert_eq!(once.len(), all.len(), "a device is in two partitions, {at}");
    assert_eq!(scan_all(index, app, targeting, by, limit).await, sorted(&all), "{at}");
    let audience = Audience::Targeting(targeting.clone());
    let counts = count_audience(index, app, &audience).await.unwrap();
    let mut expected = model.counts(targeting);
    if targeting.sample.is_some() {
        assert_eq!(counts.by_transport.values().sum::<u64>(), counts.devices, "{at}");
        expected.by_transport.clone_from(&counts.by_transport);
    }
    assert_eq!(counts, expected, "{at}");
    let carriers = |known: &Known| {
        let now = known.change.map_or(known.device.carrier(), |change| change.to);
        [Some(now), known.change.map(|change| change.from)]
    };
    let has: HashSet<_> = model.devices.values().flat_map(carriers).flatten().collect();
    let listed: HashSet<_> = extents.iter().map(|extent| extent.carrier).collect();
    assert_eq!(listed, has, "{at}");
}

/// Compares named devices, and the counts of an audience of them.
async fn find(index: &dyn Index, app: &AppKey, model: &mut Model, clients: &[ClientId], at: &str) {
    let named = sorted_clients(clients);
    let registered: Vec<_> = named.iter().filter_map(|client| model.devices.get(client)).collect();
    let counts = count_audience(index, app, &Audience::Clients(named.clone())).await.unwrap();
    assert_eq!(counts.devices, registered.len() as u64, "{at}");
    for transport in TransportKind::ALL {
        let has = |known: &&&Known| known.device.transport == transport;
        let expected = registered.iter().filter(has).count() as u64;
        let counted = counts.by_transport.get(&transport).copied().unwrap_or_default();
        assert_eq!(counted, expected, "{transport:?} {at}");
    }
    let targets = index.targets(app, clients, TargetFields::WithLanguage).await.unwrap();
    assert_eq!(targets.len(), clients.len(), "{at}");
    for (client, target) in clients.iter().zip(targets) {
        let device = |known: &Known| {
            let language = known.device.attributes.get(Attribute::Language).map(str::to_owned);
            let Device { client_id, transport, token, profile, .. } = known.device.clone();
            (client_id, transport, token, profile.user_id, language)
        };
        let expected = model.devices.get(client).map(device);
        let epoch = target.as_ref().ok().map(|target| target.epoch);
        let found = target.ok().map(|t| {
            let language = t.language.as_deref().map(str::to_owned);
            (t.client_id, t.transport, t.token, t.user_id, language)
        });
        assert_eq!(found, expected, "{at}");
        if let (Some(known), Some(epoch)) = (model.devices.get_mut(client), epoch) {
            assert_eq!(*known.epoch.get_or_insert(epoch), epoch, "it was renewed, {at}");
            assert!(!model.past.contains(&epoch), "of a removed device, {at}");
        }
    }
}

/// Compares a user's devices, and counts those that he has of these.
async fn find_user(
    index: &dyn Index,
    app: &AppKey,
    model: &Model,
    (user, clients): (&UserId, &[ClientId]),
    at: &str,
) {
    let expected = model.devices_of(user);
    let users = [user.clone(), "nobody".parse().unwrap()];
    let found = index.user_devices(app, &users).await.unwrap();
    assert_eq!(found, [expected.clone(), Vec::new()], "{at}");
    let clients = sorted_clients(clients);
    let of_user = clients.iter().filter(|client| expected.contains(client)).count() as u64;
    let users = vec![(user.clone(), u32::try_from(clients.len()).unwrap())];
    let audience = Audience::Users(NamedUsers { clients, users });
    assert_eq!(count_audience(index, app, &audience).await.unwrap().devices, of_user, "{at}");
}

/// Every device of the app, as lists have them.
async fn all_devices(index: &dyn Index, app: &AppKey) -> BTreeMap<ClientId, Device> {
    let mut slots = HashSet::new();
    let mut listed = BTreeMap::new();
    for mut range in index.extent(app).await.unwrap() {
        assert!(slots.insert(range.shard));
        loop {
            let scanned = index.list_devices(app, range, 7).await.unwrap();
            for device in scanned.items {
                assert!(listed.insert(device.client_id.clone(), device).is_none());
            }
            let Some(next) = scanned.next else { break };
            range.from = next;
        }
    }
    listed
}

/// Compares all devices with the model, by every way of reading them. Values of attributes that are not declared
/// do not count.
async fn compare_all(index: &dyn Index, app: &AppKey, model: &Model, declared: &Declarations) {
    assert_eq!(index.count_devices(app).await.unwrap(), model.devices.len() as u64);
    let declared_only = |mut device: Device| {
        retain_declared(&mut device.profile, declared);
        device
    };
    let listed = all_devices(index, app).await;
    let listed: BTreeMap<_, _> =
        listed.into_iter().map(|(id, device)| (id, declared_only(device))).collect();
    let expected: BTreeMap<_, _> =
        model.devices.iter().map(|(id, known)| (id.clone(), known.device.clone())).collect();
    for (client, device) in &expected {
        assert_eq!(listed.get(client), Some(device), "in the list");
    }
    assert_eq!(listed.len(), expected.len());
    for (client, device) in &expected {
        let found = index.device(app, client).await.unwrap().map(declared_only);
        assert_eq!(found.as_ref(), Some(device));
    }
}

fn sorted(ids: &[String]) -> Vec<String> {
    let mut ids = ids.to_vec();
    ids.sort();
    ids
}

/// Clients in their order, each once.
fn sorted_clients(clients: &[ClientId]) -> Vec<ClientId> {
    let mut clients = clients.to_vec();
    clients.sort_unstable();
    clients.dedup();
    clients
}
