//! Filters and samples.

use push_index::{Index, count_audience};
use push_model::{
    custom::CustomId,
    device::Device,
    filter::{Filter, MAX_LEAVES, Node, Sample},
    message::Audience,
    profile::Profile,
    targeting::Targeting,
};

use crate::index::support::{
    NOW, count_all, device, having, in_custom, in_topic, key, not, scan_all,
};

const PLAN: CustomId = CustomId(1);

fn sampled(from: u16, to: u16, seed: &str) -> Targeting {
    let mut targeting = Targeting::all_devices();
    targeting.sample = Some(Sample { from, to, seed: seed.into() });
    targeting
}

pub(crate) async fn samples_that_meet_share_the_devices_out(index: &dyn Index) {
    let devices: Vec<_> = (0..1000).map(|n| device(&format!("c{n}"), &[])).collect();
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    let (first, rest) = (sampled(0, 1000, "spring"), sampled(1000, 10_000, "spring"));
    let mut both = scan_all(index, &key(), &first, NOW, 7).await;
    let share = both.len();
    assert!((50..200).contains(&share), "{share}");
    assert_eq!(count_all(index, &first, NOW).await, share as u64);
    both.extend(scan_all(index, &key(), &rest, NOW, 500).await);
    both.sort();
    let mut all: Vec<_> = devices.iter().map(|device| device.client_id.to_string()).collect();
    all.sort();
    assert_eq!(both, all);
    let other = scan_all(index, &key(), &sampled(0, 1000, "summer"), NOW, 500).await;
    let spring = scan_all(index, &key(), &first, NOW, 500).await;
    assert_ne!(other, spring);
    // A count is the share that the sample says.
    let counts = count_audience(index, &key(), &Audience::Targeting(first)).await.unwrap();
    assert_eq!((counts.devices, counts.after_each_criterion[0].devices), (100, 100));
}

pub(crate) async fn a_topic_reaches_its_devices_however_many_they_are(index: &dyn Index) {
    let of = |n: usize| {
        let mut names = vec!["all".to_owned(), format!("one-{n}")];
        names.extend(n.is_multiple_of(3).then(|| "third".to_owned()));
        names.sort();
        let topics = names.iter().map(|name| name.parse().unwrap()).collect();
        let profile = Profile { topics, ..Profile::default() };
        Device { profile, ..device(&format!("c{n}"), &[]) }
    };
    let devices: Vec<_> = (0..3000).map(of).collect();
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    let counts = async |leaf: push_model::filter::Leaf| {
        let has = count_all(index, &having(leaf.clone()), NOW).await;
        assert_eq!(count_all(index, &not(leaf), NOW).await, 3000 - has);
        has
    };
    assert_eq!(counts(in_topic("all")).await, 3000);
    assert_eq!(counts(in_topic("third")).await, 1000);
    assert_eq!(counts(in_topic("one-7")).await, 1);
    assert_eq!(counts(in_topic("none")).await, 0);
    assert_eq!(scan_all(index, &key(), &having(in_topic("one-2999")), NOW, 9).await, ["c2999"]);
    for device in devices.iter().step_by(2) {
        assert!(index.remove_device(&key(), &device.client_id).await.unwrap());
    }
    assert_eq!(count_all(index, &having(in_topic("third")), NOW).await, 500);
    // A device that takes the slot of a removed one has none of its topics.
    let late: Vec<_> = (0..1500).map(|n| device(&format!("late{n}"), &[])).collect();
    index.put_devices(&key(), &late, NOW).await.unwrap();
    assert_eq!(count_all(index, &having(in_topic("all")), NOW).await, 1500);
    assert_eq!(count_all(index, &not(in_topic("all")), NOW).await, 1500);
}

pub(crate) async fn a_filter_with_as_many_tests_as_it_may_have_is_evaluated(index: &dyn Index) {
    let of = |n: usize| {
        let custom = vec![(PLAN, n.to_string().into())];
        let profile = Profile { custom, ..Profile::default() };
        Device { profile, ..device(&format!("c{n}"), &[]) }
    };
    let devices: Vec<_> = (0..200).map(of).collect();
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    let leaves: Vec<_> =
        (0..MAX_LEAVES).map(|n| in_custom(PLAN, &[&(2 * n).to_string()])).collect();
    let any = Node::Any((0..MAX_LEAVES).map(Node::Leaf).collect());
    for (root, expected) in [(any.clone(), 64), (Node::Not(Box::new(any)), 136)] {
        let mut targeting = Targeting::all_devices();
        targeting.filter = Some(Filter::new(leaves.clone(), root).unwrap().into());
        assert_eq!(count_all(index, &targeting, NOW).await, expected);
        assert_eq!(scan_all(index, &key(), &targeting, NOW, 50).await.len() as u64, expected);
    }
}
