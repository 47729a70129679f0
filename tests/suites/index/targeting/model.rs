//! Random registrations, updates, removals and targetings: an engine gives the same answers as a
//! map in memory that targets by [`Targeting::matches`].
//!
//! There are few clients, values and times, so that updates, reused slots, equal values, changes of carrier and
//! registrations on both sides of a message's acceptance are frequent.

use std::collections::{BTreeMap, HashSet};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use push_index::{Index, Put, Selection, SweepStep, count_audience};
use push_model::{
    app::AppKey,
    attributes::{Attribute, Attributes},
    audience::AudienceCounts,
    device::{Carrier, Device, TargetFields, TransportKind, subscription},
    ids::ClientId,
    message::Audience,
    registration::{
        CARRIER_CHANGE_KEPT, CarrierChange, GoneDevice, RegistrationEpoch, change_after,
        partition_of,
    },
    targeting::Targeting,
    time::UnixMillis,
};

use crate::index::support::{NOW, device, scan_all, scan_carrier};

/// Random sequences for each engine, each in an app of its own.
const SEQUENCES: usize = 12;
/// Actions of a sequence.
const ACTIONS: usize = 60;

#[derive(Debug, Clone)]
enum Action {
    Put(Vec<Device>, UnixMillis),
    Remove(ClientId),
    /// With the token that the device has, or another one.
    RemoveGone(ClientId, bool, UnixMillis),
    Ask(Targeting, UnixMillis, usize),
    Find(Vec<ClientId>),
    Sweep,
}

/// A registered device.
#[derive(Debug)]
struct Known {
    device: Device,
    registered_at: UnixMillis,
    renewed_at: UnixMillis,
    change: Option<CarrierChange>,
    /// As an engine said it first.
    epoch: Option<RegistrationEpoch>,
}

impl Known {
    /// The transport in whose partitions later broadcasts find it.
    fn partition(&self) -> TransportKind {
        self.change.map_or(self.device.transport, |change| change.to.kind())
    }
}

/// The devices that are registered.
#[derive(Debug, Default)]
struct Model {
    devices: BTreeMap<ClientId, Known>,
    /// The epochs of removed devices.
    past: HashSet<RegistrationEpoch>,
}

impl Model {
    fn put(&mut self, device: &Device, now: UnixMillis) -> Put {
        match self.devices.get_mut(&device.client_id) {
            Some(known) => {
                let (before, after) = (known.device.carrier(), device.carrier());
                known.change = change_after(before, known.change, after, now);
                known.device.clone_from(device);
                known.renewed_at =
                    if device.transport.is_renewed() { now } else { known.registered_at };
                Put::Updated
            }
            None => {
                let known = Known {
                    device: device.clone(),
                    registered_at: now,
                    renewed_at: now,
                    change: None,
                    epoch: None,
                };
                self.devices.insert(device.client_id.clone(), known);
                Put::Created
            }
        }
    }

    fn remove(&mut self, client: &ClientId) -> bool {
        let removed = self.devices.remove(client);
        self.past.extend(removed.iter().filter_map(|known| known.epoch));
        removed.is_some()
    }

    /// The devices of the partition of a carrier.
    fn meant(&self, carrier: Carrier, targeting: &Targeting, by: UnixMillis) -> Vec<String> {
        let meant = self.devices.values().filter(|known| {
            known.registered_at <= by
                && partition_of(known.device.carrier(), known.change, by) == carrier
                && targeting.matches(&known.device)
        });
        meant.map(|known| known.device.client_id.to_string()).collect()
    }

    /// The counts of an audience, whenever its devices registered.
    fn counts(&self, targeting: &Targeting) -> AudienceCounts {
        let mut counts = AudienceCounts::none(targeting);
        for known in self.devices.values() {
            let has = |attribute| known.device.attributes.get(attribute);
            let held = |(attribute, _): &(_, _)| {
                has(*attribute).is_some_and(|has| targeting.wants(*attribute, has))
            };
            let held = targeting.criteria().take_while(held).count();
            let after_each = &mut counts.after_each_criterion;
            after_each.iter_mut().take(held).for_each(|after| after.devices += 1);
            if targeting.matches(&known.device) {
                counts.add_devices(known.partition(), 1);
            }
        }
        counts
    }
}

fn values(attribute: Attribute) -> &'static [&'static str] {
    match attribute {
        Attribute::Country => &["CN", "SG", "US"],
        Attribute::Language => &["zh", "zh-CN", "zh-Hans-CN", "zha", "en", "en-US"],
        Attribute::Brand => &["A", "B"],
        Attribute::Model => &["M1", "M2", "M3", "M4"],
        Attribute::OsVersion => &["33", "34"],
        Attribute::AppVersion => &["1.0", "1.0.0", "2"],
    }
}

fn a_client() -> impl Strategy<Value = ClientId> {
    (0..40_u32).prop_map(|i| format!("client-{i}").parse().unwrap())
}

fn a_time() -> impl Strategy<Value = UnixMillis> {
    let month = CARRIER_CHANGE_KEPT.as_millis() as u64;
    let times = [0, 1, 2, 3, 30_000, 62_000, 63_000, 130_000, 250_000, month, month + 1, 2 * month];
    prop::sample::select(times.to_vec()).prop_map(|later| UnixMillis(NOW.0 + later))
}

/// How stored subscriptions begin and go on behind their keys: each of the first four has a lane of its own.
const ENDPOINTS: [&str; 6] =
    ["fx", "my", "az", "sdb5p.notify.windows.com/w", "sntfy.sh/a", "sb.example/u"];

/// A transport and a token. Few of them most of the time, so that a device often comes back to the same carrier.
fn an_address() -> impl Strategy<Value = (TransportKind, Option<String>)> {
    let few = prop::sample::select(&TransportKind::ALL[..2]);
    let transport = prop_oneof![4 => few, 1 => prop::sample::select(&TransportKind::ALL[..])];
    let token = prop::option::of("[a-z]{1,200}");
    let browser = (prop::sample::select(&ENDPOINTS[..]), "[a-z]{1,40}").prop_map(|(at, name)| {
        let (beginning, rest) = at.split_at(1);
        let keys = "k".repeat(subscription::KEYS_LEN);
        (TransportKind::Webpush, Some(format!("{beginning}{keys}{rest}{name}")))
    });
    prop_oneof![2 => (transport, token), 1 => browser]
}

fn a_device() -> impl Strategy<Value = Device> {
    let attributes = Attribute::ALL
        .map(|attribute| prop::option::weighted(0.8, prop::sample::select(values(attribute))));
    (a_client(), attributes, an_address()).prop_map(|(client_id, values, (transport, token))| {
        let mut attributes = Attributes::default();
        for (attribute, value) in Attribute::ALL.into_iter().zip(values) {
            if let Some(value) = value {
                attributes.set(attribute, value).unwrap();
            }
        }
        Device {
            client_id,
            attributes,
            transport,
            token: token.map(Into::into),
            profile: push_model::profile::Profile::default(),
        }
    })
}

fn a_targeting() -> impl Strategy<Value = Targeting> {
    Attribute::ALL
        .map(|attribute| {
            let several = prop::sample::subsequence(values(attribute), 1..=2);
            prop::option::weighted(0.3, several)
        })
        .prop_map(|lists| {
            let mut targeting = Targeting::all_devices();
            for (attribute, list) in Attribute::ALL.into_iter().zip(lists) {
                let wanted = |value| attribute.normalise_wanted(value).unwrap();
                targeting.set(attribute, list.into_iter().flatten().map(wanted).collect());
            }
            targeting
        })
}

fn an_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (prop::collection::vec(a_device(), 1..12), a_time())
            .prop_map(|(devices, now)| Action::Put(devices, now)),
        2 => a_client().prop_map(Action::Remove),
        2 => (a_client(), prop::bool::weighted(0.8), a_time())
            .prop_map(|(client, same, since)| Action::RemoveGone(client, same, since)),
        4 => (a_targeting(), a_time(), 1..20_usize)
            .prop_map(|(targeting, by, limit)| Action::Ask(targeting, by, limit)),
        1 => prop::collection::vec(a_client(), 0..20).prop_map(Action::Find),
        2 => Just(Action::Sweep),
    ]
}

/// proptest makes the sequences from a fixed seed, so that a failure comes again. They are run
/// here, because proptest itself cannot await.
pub(crate) async fn every_engine_answers_like_the_model(index: &dyn Index) {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let sequence = prop::collection::vec(an_action(), ACTIONS);
    for number in 0..SEQUENCES {
        let actions = sequence.new_tree(&mut runner).unwrap().current();
        let app = AppKey::first(format!("app{number}").parse().unwrap());
        let mut model = Model::default();
        if number % 2 == 1 {
            crowd_dictionaries(index, &app).await;
        }
        for (step, action) in actions.iter().enumerate() {
            let at = format!("sequence {number}, step {step}: {action:?}");
            run(index, &app, &mut model, action, &at).await;
        }
        compare_all(index, &app, &model).await;
    }
}

/// Fills the dictionaries so that the values of the actions have codes around 256: in the Redis
/// engine codes have two bytes from there on.
async fn crowd_dictionaries(index: &dyn Index, app: &AppKey) {
    let number = |n: usize| {
        let (text, level) = (format!("other{n}"), (1000 + n).to_string());
        let fields = [
            ("brand", &*text),
            ("model", &*text),
            ("app_version", &*text),
            ("os_version", &*level),
        ];
        device("other", &fields)
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
            let expected: Vec<_> =
                devices.iter().map(|device| Ok(model.put(device, *now))).collect();
            assert_eq!(index.put_devices(app, devices, *now).await.unwrap(), expected, "{at}");
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
            assert_eq!(
                index.remove_devices(app, &[gone], since).await.unwrap(),
                [expected],
                "{at}"
            );
            assert!(!expected || model.remove(client), "{at}");
        }
        Action::Ask(targeting, by, limit) => {
            let extents = index.carriers(app).await.unwrap();
            let mut all = Vec::new();
            for carrier in Carrier::ALL {
                let expected = model.meant(carrier, targeting, *by);
                let extent = extents.iter().find(|extent| extent.carrier == carrier);
                let ranges = extent.map(|extent| extent.ranges.clone()).unwrap_or_default();
                let mut count = 0;
                for range in &ranges {
                    let counted = index.count_matching(
                        app,
                        *range,
                        Selection { carrier, targeting, registered_by: *by },
                    );
                    count += counted.await.unwrap();
                }
                let of = (carrier, targeting, *by);
                let found = scan_carrier(index, app, of, ranges, *limit).await;
                assert_eq!(sorted(&found), sorted(&expected), "{carrier:?} {at}");
                assert_eq!(count, expected.len() as u64, "{carrier:?} {at}");
                all.extend(found);
            }
            let once: HashSet<_> = all.iter().collect();
            assert_eq!(once.len(), all.len(), "a device is in two partitions, {at}");
            assert_eq!(scan_all(index, app, targeting, *by, *limit).await, sorted(&all), "{at}");
            let audience = Audience::Targeting(targeting.clone());
            let counts = count_audience(index, app, &audience).await.unwrap();
            assert_eq!(counts, model.counts(targeting), "{at}");
            let carriers = |known: &Known| {
                let now = known.change.map_or(known.device.carrier(), |change| change.to);
                [Some(now), known.change.map(|change| change.from)]
            };
            let has: HashSet<_> = model.devices.values().flat_map(carriers).flatten().collect();
            let listed: HashSet<_> = extents.iter().map(|extent| extent.carrier).collect();
            assert_eq!(listed, has, "{at}");
        }
        // A step of a sweep; in the Redis engine every second one frees values.
        Action::Sweep => {
            index.sweep(app, SweepStep::Now).await.unwrap();
        }
        Action::Find(clients) => {
            let mut named = clients.clone();
            named.sort_unstable();
            named.dedup();
            let registered: Vec<_> =
                named.iter().filter_map(|client| model.devices.get(client)).collect();
            let counts = count_audience(index, app, &Audience::Clients(named)).await.unwrap();
            assert_eq!(counts.devices, registered.len() as u64, "{at}");
            for transport in TransportKind::ALL {
                let has = |known: &&&Known| known.device.transport == transport;
                let expected = registered.iter().filter(has).count() as u64;
                let counted = counts.by_transport.get(&transport).copied().unwrap_or_default();
                assert_eq!(counted, expected, "{transport:?} {at}");
            }
            let targets = index.targets(app, clients, TargetFields::Address).await.unwrap();
            assert_eq!(targets.len(), clients.len(), "{at}");
            for (client, target) in clients.iter().zip(targets) {
                let device = |known: &Known| {
                    let Device { client_id, transport, token, .. } = known.device.clone();
                    (client_id, transport, token)
                };
                let expected = model.devices.get(client).map(device);
                let epoch = target.as_ref().ok().map(|target| target.epoch);
                let found = target.ok().map(|t| (t.client_id, t.transport, t.token));
                assert_eq!(found, expected, "{at}");
                if let (Some(known), Some(epoch)) = (model.devices.get_mut(client), epoch) {
                    assert_eq!(*known.epoch.get_or_insert(epoch), epoch, "it was renewed, {at}");
                    assert!(!model.past.contains(&epoch), "of a removed device, {at}");
                }
            }
        }
    }
}

/// Compares all devices with the model, by every way of reading them.
async fn compare_all(index: &dyn Index, app: &AppKey, model: &Model) {
    assert_eq!(index.count_devices(app).await.unwrap(), model.devices.len() as u64);
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
    let expected: BTreeMap<_, _> =
        model.devices.iter().map(|(id, known)| (id.clone(), known.device.clone())).collect();
    assert_eq!(listed, expected);
    for (client, device) in &expected {
        assert_eq!(index.device(app, client).await.unwrap().as_ref(), Some(device));
    }
}

fn sorted(ids: &[String]) -> Vec<String> {
    let mut ids = ids.to_vec();
    ids.sort();
    ids
}
