//! Random actions. There are few clients, values and times, so that updates, reused slots, equal values, changes of
//! carrier and registrations on both sides of a message's acceptance are frequent.

use std::sync::Arc;

use proptest::{prelude::*, strategy::Union};
use push_model::{
    attributes::{Attribute, Attributes},
    custom::{CustomId, Declarations, ValueType},
    device::{Device, TransportKind, subscription},
    filter::{Column, Filter, Leaf, Limit, Node, Sample, Test},
    ids::{ClientId, Topic, UserId},
    profile::{CustomChange, DeviceWrite, Profile, ProfileChange, TopicsChange, UserChange},
    registration::CARRIER_CHANGE_KEPT,
    targeting::Targeting,
    time::UnixMillis,
};

use crate::index::support::NOW;

#[derive(Debug, Clone)]
pub(super) enum Action {
    Put(Vec<Device>, UnixMillis),
    /// Registrations that name a part of the profile.
    Write(Vec<DeviceWrite>, UnixMillis),
    Patch(Vec<(ClientId, ProfileChange)>),
    Remove(ClientId),
    /// With the token that the device has, or another one.
    RemoveGone(ClientId, bool, UnixMillis),
    Ask(Targeting, UnixMillis, usize),
    Find(Vec<ClientId>),
    /// Asks for a user's devices, and counts an audience in which these devices are taken for the user's.
    FindUser(UserId, Vec<ClientId>),
    Sweep,
}

/// The custom attributes, with normalised values.
const CUSTOM: [(&str, ValueType, &[&str]); 4] = [
    ("plan", ValueType::String, &["free", "pro", "team"]),
    ("level", ValueType::Number, &["-1", "7", "10", "200"]),
    ("build", ValueType::Version, &["1.9", "1.10", "2.0-rc1", "2.0", "2.0.0"]),
    ("seen", ValueType::Time, &["2026-01-01T00:00:00.000Z", "2026-11-28T08:00:00.000Z"]),
];
const TOPICS: [&str; 5] = ["f1", "news/de", "news/en", "t:1", "x"];
const USERS: [&str; 3] = ["anna", "ben@example.org", "c"];

fn values(attribute: Attribute) -> &'static [&'static str] {
    match attribute {
        Attribute::Country => &["CN", "SG", "US"],
        Attribute::Language => &["zh", "zh-CN", "zh-Hans-CN", "zha", "en", "en-US"],
        Attribute::Brand => &["A", "B"],
        Attribute::Model => &["M1", "M2", "M3", "M4"],
        Attribute::OsVersion => &["33", "34", "100"],
        Attribute::AppVersion => &["1.0", "1.0.0", "2", "beta"],
    }
}

/// Declares the custom attributes again, so that each has an id that no device has a value of.
pub(super) fn declare(declared: &mut Declarations) {
    for (name, value_type, _) in CUSTOM {
        declared.remove(name);
        declared.add(name.parse().unwrap(), value_type).unwrap();
    }
}

/// The custom attributes by their ids.
type Custom = Vec<(CustomId, ValueType, &'static [&'static str])>;

/// An action of an app with these declarations.
pub(super) fn an_action(declared: &Declarations) -> impl Strategy<Value = Action> + use<> {
    let custom: Custom = CUSTOM
        .iter()
        .map(|(name, value_type, values)| (declared.find(name).unwrap().id, *value_type, *values))
        .collect();
    let devices = prop::collection::vec(a_device(&custom), 1..12);
    let writes = prop::collection::vec((a_device(&custom), a_change(&custom)), 1..12);
    let patches = prop::collection::vec((a_client(), a_change(&custom)), 1..12);
    prop_oneof![
        3 => (devices, a_time()).prop_map(|(devices, now)| Action::Put(devices, now)),
        3 => (writes, a_time()).prop_map(|(writes, now)| {
            let write = |(device, change)| DeviceWrite { device, change };
            Action::Write(writes.into_iter().map(write).collect(), now)
        }),
        3 => patches.prop_map(Action::Patch),
        2 => a_client().prop_map(Action::Remove),
        2 => (a_client(), prop::bool::weighted(0.8), a_time())
            .prop_map(|(client, same, since)| Action::RemoveGone(client, same, since)),
        6 => (a_targeting(&custom), a_time(), 1..20_usize)
            .prop_map(|(targeting, by, limit)| Action::Ask(targeting, by, limit)),
        1 => prop::collection::vec(a_client(), 0..20).prop_map(Action::Find),
        1 => (a_user(), prop::collection::vec(a_client(), 0..20))
            .prop_map(|(user, clients)| Action::FindUser(user, clients)),
        2 => Just(Action::Sweep),
    ]
}

fn a_client() -> impl Strategy<Value = ClientId> {
    (0..40_u32).prop_map(|i| format!("client-{i}").parse().unwrap())
}

fn a_user() -> impl Strategy<Value = UserId> {
    prop::sample::select(&USERS[..]).prop_map(|user| user.parse().unwrap())
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

fn a_device(custom: &Custom) -> impl Strategy<Value = Device> + use<> {
    let attributes = Attribute::ALL
        .map(|attribute| prop::option::weighted(0.8, prop::sample::select(values(attribute))));
    (a_client(), attributes, an_address(), a_profile(custom)).prop_map(
        |(client_id, values, (transport, token), profile)| {
            let mut attributes = Attributes::default();
            for (attribute, value) in Attribute::ALL.into_iter().zip(values) {
                if let Some(value) = value {
                    attributes.set(attribute, value).unwrap();
                }
            }
            Device { client_id, attributes, transport, token: token.map(Into::into), profile }
        },
    )
}

/// Values of some custom attributes.
fn some_values(custom: &Custom) -> impl Strategy<Value = Vec<(CustomId, Arc<str>)>> + use<> {
    let value = |(id, _, values): &(CustomId, ValueType, &'static [&'static str])| {
        let id = *id;
        let value = prop::sample::select(*values).prop_map(move |value| (id, Arc::from(value)));
        prop::option::weighted(0.5, value)
    };
    let values: Vec<_> = custom.iter().map(value).collect();
    values.prop_map(|values| values.into_iter().flatten().collect())
}

fn some_topics() -> impl Strategy<Value = Vec<Topic>> {
    let topics = prop::sample::subsequence(&TOPICS[..], 0..=3);
    topics.prop_map(|topics| topics.into_iter().map(|topic| topic.parse().unwrap()).collect())
}

/// A profile; most devices of the actions have one.
fn a_profile(custom: &Custom) -> impl Strategy<Value = Profile> + use<> {
    let profile = (some_values(custom), some_topics(), prop::option::of(a_user()));
    let profile = profile.prop_map(|(custom, topics, user_id)| Profile { custom, topics, user_id });
    prop_oneof![1 => Just(Profile::default()), 3 => profile]
}

fn a_change(custom: &Custom) -> impl Strategy<Value = ProfileChange> + use<> {
    let merge =
        (some_values(custom), prop::collection::vec(prop::bool::weighted(0.7), CUSTOM.len()));
    let merge = merge.prop_map(|(values, stay)| {
        let merged = values.into_iter().zip(stay);
        merged.map(|((id, value), stays)| (id, stays.then_some(value))).collect()
    });
    let of_custom = prop_oneof![
        2 => Just(CustomChange::Keep),
        1 => some_values(custom).prop_map(CustomChange::Replace),
        2 => merge.prop_map(CustomChange::Merge),
    ];
    let of_topics = prop_oneof![
        2 => Just(TopicsChange::Keep),
        1 => some_topics().prop_map(TopicsChange::Replace),
        2 => (some_topics(), some_topics())
            .prop_map(|(add, remove)| TopicsChange::Edit { add, remove }),
    ];
    let of_user = prop_oneof![
        2 => Just(UserChange::Keep),
        2 => prop::option::weighted(0.8, a_user()).prop_map(UserChange::Set),
    ];
    (of_custom, of_topics, of_user).prop_map(|(custom, topics, user_id)| ProfileChange {
        custom,
        topics,
        user_id,
    })
}

fn a_targeting(custom: &Custom) -> impl Strategy<Value = Targeting> + use<> {
    let lists = |weight| {
        Attribute::ALL.map(|attribute| {
            let several = prop::sample::subsequence(values(attribute), 1..=2);
            prop::option::weighted(weight, several)
        })
    };
    let sample = (prop::sample::select(vec![(0, 5000), (5000, 10_000), (2500, 7500)]), "[ab]")
        .prop_map(|((from, to), seed)| Sample { from, to, seed: seed.into() });
    let sample = prop::option::weighted(0.2, sample);
    let filtered = (lists(0.1), a_filter(custom).prop_map(Some), sample.clone());
    prop_oneof![2 => (lists(0.3), Just(None), sample), 3 => filtered].prop_map(
        |(lists, filter, sample)| {
            let mut targeting = Targeting::all_devices();
            for (attribute, list) in Attribute::ALL.into_iter().zip(lists) {
                let wanted = |value| attribute.normalise_wanted(value).unwrap();
                targeting.set(attribute, list.into_iter().flatten().map(wanted).collect());
            }
            targeting.filter = filter.map(Arc::new);
            targeting.sample = sample;
            targeting
        },
    )
}

/// A filter that has its leaves in place.
#[derive(Debug, Clone)]
enum Tree {
    Leaf(Leaf),
    All(Vec<Tree>),
    Any(Vec<Tree>),
    Not(Box<Tree>),
}

impl Tree {
    /// Moves the leaves to a list.
    fn node(self, leaves: &mut Vec<Leaf>) -> Node {
        let mut all = |trees: Vec<Self>| trees.into_iter().map(|tree| tree.node(leaves)).collect();
        match self {
            Self::All(trees) => Node::All(all(trees)),
            Self::Any(trees) => Node::Any(all(trees)),
            Self::Not(tree) => Node::Not(Box::new(tree.node(leaves))),
            Self::Leaf(leaf) => {
                leaves.push(leaf);
                Node::Leaf(leaves.len() - 1)
            }
        }
    }
}

fn a_filter(custom: &Custom) -> impl Strategy<Value = Filter> + use<> {
    let leaf = a_leaf(custom).prop_map(Tree::Leaf);
    let tree = leaf.prop_recursive(4, 16, 3, |part| {
        let parts = prop::collection::vec(part.clone(), 1..=3);
        prop_oneof![
            parts.clone().prop_map(Tree::All),
            parts.prop_map(Tree::Any),
            part.prop_map(|part| Tree::Not(Box::new(part))),
        ]
    });
    tree.prop_map(|tree| {
        let mut leaves = Vec::new();
        let root = tree.node(&mut leaves);
        Filter::new(leaves, root).unwrap()
    })
}

fn a_leaf(custom: &Custom) -> impl Strategy<Value = Leaf> + use<> {
    let built_in = Attribute::ALL.into_iter().map(|attribute| {
        let wanted = |text: &str| attribute.normalise_wanted(text).unwrap();
        let values: Vec<Box<str>> = values(attribute).iter().map(|value| wanted(value)).collect();
        (Column::BuiltIn(attribute), Leaf::order_of(attribute), values)
    });
    let custom = custom.iter().map(|(id, value_type, values)| {
        // A value that no device has.
        let values = values.iter().chain(&["0"]).map(|value| Box::from(*value)).collect();
        (Column::Custom(*id), value_type.order(), values)
    });
    let topics = TOPICS.iter().chain(&["none"]).map(|topic| Box::from(*topic)).collect();
    let columns = built_in.chain(custom).chain([(Column::Topic, None, topics)]);
    Union::new(columns.map(|(column, order, values): (_, _, Vec<_>)| {
        let listed = prop::sample::subsequence(values.clone(), 1..=2).prop_map(Test::In);
        let limit = (prop::sample::select(values), any::<bool>())
            .prop_map(|(value, inclusive)| Limit { value: value.into(), inclusive });
        let range = (limit.clone(), limit, 0..3).prop_map(|(from, to, ends)| Test::Range {
            from: (ends != 0).then_some(from),
            to: (ends != 1).then_some(to),
        });
        let range = if order.is_some() { range.boxed() } else { listed.clone().boxed() };
        prop_oneof![listed, range].prop_map(move |test| Leaf::new(column, order, test)).boxed()
    }))
}
