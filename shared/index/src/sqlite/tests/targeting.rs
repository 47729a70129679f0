//! Targeting by codes equals the shared definition.

use crate::Selection;
use proptest::prelude::*;
use push_model::filter::Sample;

use super::*;

const LANGUAGES: [&str; 9] =
    ["zh", "zh-CN", "zh-Hans", "zh-Hans-CN", "zha", "en", "en-US", "x", "zh-C"];
const MODELS: [&str; 5] = ["A", "A1", "Ä", "A-1", "A.1"];

fn device_values() -> impl Strategy<Value = (Option<usize>, Option<usize>)> {
    (prop::option::of(0..LANGUAGES.len()), prop::option::of(0..MODELS.len()))
}

fn wanted() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
    // One past the last language stands for `*`.
    (prop::collection::vec(0..=LANGUAGES.len(), 0..3), prop::collection::vec(0..MODELS.len(), 0..3))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn targeting_on_the_dictionary_is_the_shared_definition(
        devices in prop::collection::vec(device_values(), 0..20),
        wanted in prop::collection::vec(wanted(), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = TempDir::new().unwrap();
            let index = open(&dir).await;
            let devices: Vec<_> = (0..).zip(devices).map(|(i, (language, model))| {
                let mut values = Vec::new();
                values.extend(language.map(|i| (Attribute::Language, LANGUAGES[i])));
                values.extend(model.map(|i| (Attribute::Model, MODELS[i])));
                device(&format!("d{i}"), &values)
            }).collect();
            index.put_devices(&key(), &devices, T0).await.unwrap();
            for (languages, models) in wanted {
                let value = |attribute: Attribute, text: &str| {
                    attribute.normalise_wanted(text).unwrap()
                };
                let language = |i: &usize| LANGUAGES.get(*i).copied().unwrap_or("*");
                let mut targeting = Targeting::all_devices();
                targeting.set(
                    Attribute::Language,
                    languages.iter().map(|i| value(Attribute::Language, language(i))).collect(),
                );
                targeting.set(
                    Attribute::Model,
                    models.iter().map(|i| value(Attribute::Model, MODELS[*i])).collect(),
                );
                let range = SlotRange { shard: 0, from: 0, to: u32::MAX };
                let scanned = index.scan(&key(), range, Selection { carrier: TransportKind::Mqtt.into(), targeting: &targeting, registered_by: T0 }, TargetFields::Address, 100).await.unwrap();
                let found: Vec<_> = scanned.items.into_iter().map(|t| t.client_id).collect();
                let meant: Vec<_> = devices.iter()
                    .filter(|device| targeting.matches(device))
                    .map(|device| device.client_id.clone())
                    .collect();
                assert_eq!(found, meant);
                let count = index.count_matching(&key(), range, Selection { carrier: TransportKind::Mqtt.into(), targeting: &targeting, registered_by: T0 }).await.unwrap();
                assert_eq!(count, meant.len() as u64);
            }
        });
    }
}

#[tokio::test]
async fn samples_that_differ_only_in_their_seed_share_their_criteria() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let devices: Vec<_> =
        (0..200).map(|n| device(&format!("d{n}"), &[(Attribute::Model, "A")])).collect();
    index.put_devices(&key(), &devices, T0).await.unwrap();
    for seed in ["spring", "summer", "autumn"] {
        let mut targeting = Targeting::all_devices();
        targeting.set(Attribute::Model, vec!["A".into()]);
        targeting.sample = Some(Sample { from: 0, to: 5000, seed: seed.into() });
        let range = SlotRange { shard: 0, from: 0, to: u32::MAX };
        let carrier = TransportKind::Mqtt.into();
        let selection = Selection { carrier, targeting: &targeting, registered_by: T0 };
        let meant = devices.iter().filter(|device| targeting.matches(device)).count();
        let count = index.count_matching(&key(), range, selection).await.unwrap();
        assert_eq!(count, meant as u64, "{seed}");
    }
    assert_eq!(index.criteria_cache.len(), 1);
}
