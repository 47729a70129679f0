//! Scans and counts: the devices that match, one call after the other.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    pin::pin,
    time::{Duration, Instant},
};

use push_index::{Index, Put, Selection, count_audience};
use push_model::{
    app::AppKey,
    attributes::Attribute,
    device::{TargetFields, TransportKind},
    message::Audience,
    slots::SlotRange,
    targeting::{MAX_TARGETING_VALUES, Targeting},
    time::UnixMillis,
};

use crate::index::support::{NOW, client, count_all, device, key, scan_all, wanted};

pub(crate) async fn pages_cover_a_slot_range_once_and_in_order_whatever_their_size(
    index: &dyn Index,
) {
    let devices: Vec<_> = (0..2500)
        .map(|i| device(&format!("c{i}"), &[("country", if i % 3 == 0 { "CN" } else { "SG" })]))
        .collect();
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    let third = wanted(Attribute::Country, &["cn"]);
    let mut expected: Vec<_> =
        devices.iter().step_by(3).map(|device| device.client_id.to_string()).collect();
    expected.sort();
    for limit in [1, 7, 100, 100_000] {
        assert_eq!(scan_all(index, &key(), &third, NOW, limit).await, expected, "{limit}");
    }
    assert_eq!(count_all(index, &third, NOW).await, expected.len() as u64);
    assert_eq!(count_all(index, &Targeting::all_devices(), NOW).await, 2500);

    let mut listed = Vec::new();
    for mut range in index.extent(&key()).await.unwrap() {
        while let Ok(scanned) = index.list_devices(&key(), range, 13).await {
            listed.extend(scanned.items);
            let Some(next) = scanned.next else { break };
            range.from = next;
        }
    }
    let by_id = |devices: &[push_model::device::Device]| -> BTreeMap<_, _> {
        devices.iter().map(|device| (device.client_id.clone(), device.clone())).collect()
    };
    assert_eq!(listed.len(), devices.len());
    assert_eq!(by_id(&listed), by_id(&devices));

    // Slot ranges that are cut anywhere cover the same devices, each once.
    let mut cut = Vec::new();
    for SlotRange { shard, from, to } in index.extent(&key()).await.unwrap() {
        let middle = from + (to - from) / 3;
        for (from, to) in [(from, middle), (middle, to)] {
            let range = SlotRange { shard, from, to };
            let scanned = index
                .scan(
                    &key(),
                    range,
                    Selection {
                        carrier: TransportKind::Mqtt.into(),
                        targeting: &third,
                        registered_by: NOW,
                    },
                    TargetFields::Address,
                    5000,
                )
                .await
                .unwrap();
            assert_eq!(scanned.next, None);
            cut.extend(scanned.items.iter().map(|target| target.client_id.to_string()));
        }
    }
    cut.sort();
    assert_eq!(cut, expected);
}

pub(crate) async fn a_device_in_a_reused_slot_is_not_reached_by_an_earlier_message(
    index: &dyn Index,
) {
    let cn = |id: &str| device(id, &[("country", "CN")]);
    let early: Vec<_> = (0..300).map(|i| cn(&format!("early{i}"))).collect();
    index.put_devices(&key(), &early, NOW).await.unwrap();
    let slots =
        |extent: &[SlotRange]| extent.iter().map(|range| range.to - range.from).sum::<u32>();
    let before = slots(&index.extent(&key()).await.unwrap());
    for device in &early[..200] {
        assert!(index.remove_device(&key(), &device.client_id).await.unwrap());
    }
    let accepted = UnixMillis(NOW.0 + 5);
    let late: Vec<_> = (0..100).map(|i| cn(&format!("late{i}"))).collect();
    index.put_devices(&key(), &late, UnixMillis(accepted.0 + 1)).await.unwrap();
    let after = slots(&index.extent(&key()).await.unwrap());
    assert!(after < before + 100, "freed slots are used again: {before} before, {after} after");

    let mut expected: Vec<_> = early[200..].iter().map(|d| d.client_id.to_string()).collect();
    expected.sort();
    for targeting in [Targeting::all_devices(), wanted(Attribute::Country, &["CN"])] {
        assert_eq!(scan_all(index, &key(), &targeting, accepted, 50).await, expected);
        assert_eq!(count_all(index, &targeting, accepted).await, 100);
        assert_eq!(count_all(index, &targeting, UnixMillis(accepted.0 + 1)).await, 200);
    }
}

pub(crate) async fn an_update_moves_a_device_from_one_audience_to_another(index: &dyn Index) {
    let at = |country| device("c", &[("country", country), ("brand", "B")]);
    let (cn, sg) = (wanted(Attribute::Country, &["CN"]), wanted(Attribute::Country, &["SG"]));
    index.put_devices(&key(), &[at("CN")], NOW).await.unwrap();
    assert_eq!((count_all(index, &cn, NOW).await, count_all(index, &sg, NOW).await), (1, 0));
    index.put_devices(&key(), &[at("SG")], NOW).await.unwrap();
    assert_eq!((count_all(index, &cn, NOW).await, count_all(index, &sg, NOW).await), (0, 1));
    index.put_devices(&key(), &[device("c", &[])], NOW).await.unwrap();
    assert_eq!((count_all(index, &cn, NOW).await, count_all(index, &sg, NOW).await), (0, 0));
    assert_eq!(scan_all(index, &key(), &wanted(Attribute::Brand, &["b"]), NOW, 9).await.len(), 0);
}

/// Beyond 255 values a code has two bytes, and must be read and changed as a whole: one byte of it
/// belongs to other values too.
pub(crate) async fn among_hundreds_of_values_each_reaches_its_own_devices_while_they_change(
    index: &dyn Index,
) {
    let of = |id: usize, model: usize| {
        device(&format!("c{id}"), &[("model", &format!("m{model}")), ("country", "CN")])
    };
    let devices: Vec<_> = (0..600).map(|n| of(n, n)).collect();
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    let models = |models: &[usize]| {
        let names: Vec<_> = models.iter().map(|n| format!("m{n}")).collect();
        let mut targeting =
            wanted(Attribute::Model, &names.iter().map(String::as_str).collect::<Vec<_>>());
        targeting.set(Attribute::Country, vec!["CN".into()]);
        targeting
    };
    for model in [0, 1, 254, 255, 256, 511, 512, 599] {
        let targeting = models(&[model]);
        let own = [format!("c{model}")];
        assert_eq!(scan_all(index, &key(), &targeting, NOW, 9).await, own);
        assert_eq!(count_all(index, &targeting, NOW).await, 1);
    }

    // All devices change between two values whose codes have no byte in common.
    let (low, high) = (4, 300);
    let both = models(&[low, high]);
    let all_with = |model| (0..600).map(|n| of(n, model)).collect::<Vec<_>>();
    index.put_devices(&key(), &all_with(low), NOW).await.unwrap();
    assert_eq!(count_all(index, &models(&[high]), NOW).await, 0);
    let changes = async {
        for round in 0_usize.. {
            let model = if round % 2 == 0 { high } else { low };
            index.put_devices(&key(), &all_with(model), NOW).await.unwrap();
        }
    };
    let looks = async {
        for _ in 0..20 {
            assert_eq!(count_all(index, &both, NOW).await, 600);
            assert_eq!(scan_all(index, &key(), &both, NOW, 50).await.len(), 600);
        }
    };
    tokio::select! {
        () = changes => {}
        () = looks => {}
    }

    // A device that takes the slot of a removed one has none of its values.
    index.put_devices(&key(), &all_with(high), NOW).await.unwrap();
    for device in &devices {
        assert!(index.remove_device(&key(), &device.client_id).await.unwrap());
    }
    let new: Vec<_> = (600..900).map(|n| of(n, low)).collect();
    index.put_devices(&key(), &new, NOW).await.unwrap();
    let counts = [(low, 300), (high, 0), (high - low, 0)];
    for (model, count) in counts {
        assert_eq!(count_all(index, &models(&[model]), NOW).await, count, "m{model}");
    }
}

/// Codes have one byte or two, and one attribute can change from either to either without the
/// others.
pub(crate) async fn a_device_that_changes_alone_moves_among_hundreds_of_values(index: &dyn Index) {
    let of = |id: &str, model: usize| {
        device(id, &[("model", &format!("m{model}")), ("country", "CN"), ("brand", "b")])
    };
    let values: Vec<_> = (0..600).map(|n| of(&format!("c{n}"), n)).collect();
    index.put_devices(&key(), &values, NOW).await.unwrap();
    for (from, to) in [(0, 300), (300, 301), (301, 45), (45, 599), (599, 255), (255, 256), (256, 0)]
    {
        for id in ["c0", "new"] {
            let put = index.put_devices(&key(), &[of(id, to)], NOW).await.unwrap();
            let expected = if id == "new" && from == 0 { Put::Created } else { Put::Updated };
            assert_eq!(put, [Ok(expected)]);
        }
        // Counting also the device that has the value from the start.
        let (left, come) = (u64::from(from != 0), 2 + u64::from(to != 0));
        for (model, count) in [(from, left), (to, come)] {
            let targeting = wanted(Attribute::Model, &[&format!("m{model}")]);
            assert_eq!(count_all(index, &targeting, NOW).await, count, "{from} to {to}: {model}");
            let found = scan_all(index, &key(), &targeting, NOW, 9).await;
            assert_eq!(found.len() as u64, count, "{from} to {to}: {model}: {found:?}");
        }
        let others = wanted(Attribute::Brand, &["b"]);
        assert_eq!(count_all(index, &others, NOW).await, 601, "{from} to {to}");
    }
}

pub(crate) async fn a_range_of_languages_reaches_values_that_came_later(index: &dyn Index) {
    let zh = wanted(Attribute::Language, &["zh"]);
    for (i, tag) in ["zh", "zh-CN", "zha", "zh-Hans-CN", "en"].into_iter().enumerate() {
        let device = device(&format!("c{i}"), &[("language", tag)]);
        index.put_devices(&key(), &[device], NOW).await.unwrap();
        let expected: &[&str] = match i {
            0 => &["c0"],
            1 | 2 => &["c0", "c1"],
            _ => &["c0", "c1", "c3"],
        };
        assert_eq!(scan_all(index, &key(), &zh, NOW, 10).await, expected);
    }
    assert_eq!(count_all(index, &wanted(Attribute::Language, &["*"]), NOW).await, 5);
    assert_eq!(count_all(index, &wanted(Attribute::Language, &["fr"]), NOW).await, 0);
}

pub(crate) async fn a_slot_range_that_reaches_past_the_devices_ends(index: &dyn Index) {
    index.put_devices(&key(), &[device("c", &[("country", "CN")])], NOW).await.unwrap();
    let range = SlotRange { to: u32::MAX, ..index.extent(&key()).await.unwrap()[0] };
    for targeting in [Targeting::all_devices(), wanted(Attribute::Country, &["CN"])] {
        let scanned = index
            .scan(
                &key(),
                range,
                Selection {
                    carrier: TransportKind::Mqtt.into(),
                    targeting: &targeting,
                    registered_by: NOW,
                },
                TargetFields::Address,
                100,
            )
            .await
            .unwrap();
        assert_eq!((scanned.items.len(), scanned.next), (1, None));
        assert_eq!(
            index
                .count_matching(
                    &key(),
                    range,
                    Selection {
                        carrier: TransportKind::Mqtt.into(),
                        targeting: &targeting,
                        registered_by: NOW
                    }
                )
                .await
                .unwrap(),
            1
        );
        let past = SlotRange { from: range.from + 1_000_000, ..range };
        let scanned = index
            .scan(
                &key(),
                past,
                Selection {
                    carrier: TransportKind::Mqtt.into(),
                    targeting: &targeting,
                    registered_by: NOW,
                },
                TargetFields::Address,
                100,
            )
            .await
            .unwrap();
        assert_eq!((scanned.items.len(), scanned.next), (0, None));
    }
}

pub(crate) async fn an_audience_of_many_slices_is_counted_whole(index: &dyn Index) {
    let some = |n: u64| {
        let fields = match n % 4 {
            0 => &[("country", "SG"), ("brand", "A")][..],
            1 => &[("country", "SG"), ("transport", "discard")],
            2 => &[("brand", "A")],
            _ => &[],
        };
        device(&format!("d-{n}"), fields)
    };
    // More than twice what SQLite reads at a time.
    let devices: Vec<_> = (0..20_000).map(some).collect();
    index.put_devices(&key(), &devices, NOW).await.unwrap();

    let count = async |audience: Audience| count_audience(index, &key(), &audience).await.unwrap();
    let all = count(Audience::All).await;
    let by_transport = [(TransportKind::Mqtt, 15_000), (TransportKind::Discard, 5_000)];
    assert_eq!((all.devices, all.by_transport), (20_000, by_transport.into()));
    assert_eq!(all.after_each_criterion, []);

    let mut targeting = wanted(Attribute::Country, &["SG"]);
    targeting.set(Attribute::Brand, vec!["A".into()]);
    let some = count(Audience::Targeting(targeting)).await;
    let left: Vec<_> = some.after_each_criterion.iter().map(|after| after.devices).collect();
    assert_eq!((some.devices, left), (5_000, vec![10_000, 5_000]));
    assert_eq!(some.by_transport, [(TransportKind::Mqtt, 5_000)].into());
    let none = count(Audience::Targeting(wanted(Attribute::Model, &["M"]))).await;
    assert_eq!((none.devices, none.after_each_criterion[0].devices), (0, 0));
    let removed = AppKey { generation: 9, ..key() };
    let of_removed = count_audience(index, &removed, &Audience::All).await.unwrap();
    assert_eq!(of_removed.devices, 0, "another generation has no devices");
}

pub(crate) async fn an_app_without_devices_has_nothing_to_scan(index: &dyn Index) {
    assert_eq!(index.extent(&key()).await.unwrap(), []);
    assert_eq!(index.count_devices(&key()).await.unwrap(), 0);
    let range = SlotRange { shard: 0, from: 0, to: 100 };
    let scanned = index
        .scan(
            &key(),
            range,
            Selection {
                carrier: TransportKind::Mqtt.into(),
                targeting: &Targeting::all_devices(),
                registered_by: NOW,
            },
            TargetFields::Address,
            10,
        )
        .await
        .unwrap();
    assert_eq!((scanned.items.len(), scanned.next), (0, None));
    let devices = index.list_devices(&key(), range, 10).await.unwrap();
    assert_eq!((devices.items.len(), devices.next), (0, None));
}

/// Half of the devices stay and match. As long as the scans go on, others are registered, changed
/// to another value, and removed.
pub(crate) async fn devices_that_stay_are_seen_once_while_others_come_and_go(index: &dyn Index) {
    let cn = wanted(Attribute::Country, &["CN"]);
    let stay = |i: usize| device(&format!("stay{i}"), &[("country", "CN")]);
    let come = |i: usize, country| device(&format!("come{i}"), &[("country", country)]);
    let devices: Vec<_> = (0..1000).flat_map(|i| [stay(i), come(i, "CN")]).collect();
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    let accepted = UnixMillis(NOW.0 + 1);
    let mut expected: Vec<_> = (0..1000).map(|i| format!("stay{i}")).collect();
    expected.sort();

    let unrest = async {
        for round in 0_usize.. {
            let i = round * 7 % 1000;
            index.put_devices(&key(), &[come(i, "SG")], NOW).await.unwrap();
            index.remove_device(&key(), &client(&format!("come{i}"))).await.unwrap();
            let late = UnixMillis(accepted.0 + 1);
            let new = device(&format!("late{round}"), &[("country", "CN")]);
            index.put_devices(&key(), &[new], late).await.unwrap();
            let moved = device(
                &format!("stay{i}"),
                &[("country", "CN"), ("app_version", &round.to_string())],
            );
            index.put_devices(&key(), &[moved], late).await.unwrap();
        }
    };
    let scans = async {
        for targeting in [Targeting::all_devices(), cn.clone(), cn] {
            let mut seen = scan_all(index, &key(), &targeting, accepted, 60).await;
            assert!(!seen.iter().any(|id| id.starts_with("late")), "{seen:?}");
            seen.retain(|id| id.starts_with("stay"));
            assert_eq!(seen, expected);
        }
    };
    tokio::select! {
        () = unrest => {}
        () = scans => {}
    }
}

/// Nothing may take as long as the values of a targeting times those of a dictionary, nor block the
/// thread on which other apps are served: this test has only one.
pub(crate) async fn thousands_of_wanted_values_among_thousands_keep_no_other_app_waiting(
    index: &dyn Index,
) {
    let tag = |n: usize| {
        let letters = [n / 676, n / 26, n].map(|n| char::from(b'a' + (n % 26) as u8));
        format!("{}-x{}", String::from_iter(letters), n % 1000)
    };
    let tags: Vec<_> = (0..65_500).map(tag).collect();
    for tags in tags.chunks(8192) {
        let devices: Vec<_> = tags.iter().map(|tag| device("c", &[("language", tag)])).collect();
        index.put_devices(&key(), &devices, NOW).await.unwrap();
    }
    let scan = async |values: usize, first: usize, turns: &mut Turns| {
        let values: Vec<_> =
            tags.iter().skip(first).step_by(6).take(values).map(String::as_str).collect();
        let targeting = wanted(Attribute::Language, &values);
        let found = turns.measure(scan_all(index, &key(), &targeting, NOW, 10)).await;
        assert!(found.is_empty() || found == ["c"], "{found:?}");
    };
    let [mut few, mut many, mut again] = [Turns::default(); 3];
    for first in 0..6 {
        scan(8, first, &mut few).await;
        scan(MAX_TARGETING_VALUES, first, &mut many).await;
        // Its table is there now.
        scan(MAX_TARGETING_VALUES, first, &mut again).await;
    }
    // A thousand times as many values.
    assert!(many.took < few.took * 100, "{many:?} instead of {few:?}");
    // An engine with threads of its own takes next to none of this one.
    if many.whole > many.took / 100 {
        assert!(many.longest < many.whole / 24, "{many:?}");
        assert!(again.whole < many.whole * 3 / 4, "{again:?} after {many:?}");
    }
}

/// The turns that scans took of this thread.
#[derive(Debug, Clone, Copy, Default)]
struct Turns {
    /// How long the scans took.
    took: Duration,
    /// The thread's processor time of all turns, and of the longest: what other programs take is not in it.
    whole: Duration,
    longest: Duration,
}

impl Turns {
    async fn measure<T>(&mut self, scan: impl Future<Output = T>) -> T {
        let (mut scan, begun) = (pin!(scan), Instant::now());
        let done = poll_fn(|context| {
            let before = thread_time();
            let polled = scan.as_mut().poll(context);
            let turn = thread_time().saturating_sub(before);
            self.longest = self.longest.max(turn);
            self.whole += turn;
            polled
        });
        let done = done.await;
        self.took += begun.elapsed();
        done
    }
}

fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

pub(crate) async fn spellings_that_people_take_for_one_reach_the_same_devices(index: &dyn Index) {
    use Attribute::{Brand, Country, Language, Model};

    let alike: [(Attribute, &[&str]); 8] = [
        (Language, &["he", "iw", "IW_IL.UTF-8"]),
        (Language, &["id", "in_ID"]),
        (Language, &["yue", "zh-yue-HK"]),
        (Language, &["zh-Hant", "zh_TW_#Hant"]),
        (Country, &["GB", "uk", "\u{feff}ＵＫ"]),
        (Brand, &["Xiaomi", "XİAOMİ", "Ｘｉａｏｍｉ\u{200b}"]),
        (Model, &["Acmé", "ACME\u{301}", "acm\u{ad}é"]),
        (Model, &["삼성", "\u{1109}\u{1161}\u{11b7}\u{1109}\u{1165}\u{11bc}"]),
    ];
    let mut devices = Vec::new();
    for (group, (attribute, spellings)) in alike.iter().enumerate() {
        for (number, spelling) in spellings.iter().enumerate() {
            let id = format!("{group}.{number}");
            devices.push(device(&id, &[(attribute.name(), spelling)]));
        }
    }
    devices.push(device("plain", &[("model", "Acme"), ("language", "zh"), ("country", "XK")]));
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    for (group, (attribute, spellings)) in alike.iter().enumerate() {
        let all: Vec<_> = (0..spellings.len()).map(|number| format!("{group}.{number}")).collect();
        // The first is the most general: the others may say more, which a push for them asks for.
        let targeting = wanted(*attribute, &spellings[..1]);
        assert_eq!(scan_all(index, &key(), &targeting, NOW, 100).await, all, "{spellings:?}");
        for (own, spelling) in all.iter().zip(*spellings) {
            let targeting = wanted(*attribute, &[spelling]);
            let reached = scan_all(index, &key(), &targeting, NOW, 100).await;
            assert!(reached.contains(own), "{spelling} reaches {reached:?}");
        }
    }
    let kosovo = wanted(Country, &["xk"]);
    assert_eq!(scan_all(index, &key(), &kosovo, NOW, 100).await, ["plain"]);
}
