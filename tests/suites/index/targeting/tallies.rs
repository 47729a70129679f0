//! Tallies: an app's devices by transport and by the values of an attribute.

use std::{collections::HashMap, sync::Arc};

use push_index::{Index, tally_devices};
use push_model::{app::AppKey, attributes::Attribute, device::TransportKind};

use crate::index::support::{NOW, device, key};

pub(crate) async fn an_apps_devices_are_tallied_by_transport_and_by_value(index: &dyn Index) {
    let some = |n: u64| {
        let model = format!("M{}", n % 400);
        let transport = if n % 4 == 1 { "discard" } else { "mqtt" };
        let fields = [("transport", transport), ("model", &model), ("country", "SG")];
        device(&format!("d-{n}"), if n.is_multiple_of(5) { &fields[..1] } else { &fields })
    };
    // More than twice what SQLite reads at a time, and more models than one byte can number.
    let devices: Vec<_> = (0..20_000).map(some).collect();
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    let tally = async |attribute| tally_devices(index, &key(), attribute).await.unwrap();

    let models = tally(Attribute::Model).await;
    let by_transport = [(TransportKind::Mqtt, 15_000), (TransportKind::Discard, 5_000)];
    assert_eq!(models.by_transport, by_transport.into());
    let of_each =
        (0..400).filter(|model| model % 5 > 0).map(|n| (Some(format!("M{n}").into()), 50));
    let mut expected: HashMap<Option<Arc<str>>, u64> = of_each.chain([(None, 4_000)]).collect();
    assert_eq!(models.by_value, expected);
    let countries = tally(Attribute::Country).await;
    assert_eq!(countries.by_transport, by_transport.into());
    assert_eq!(countries.by_value, [(Some("SG".into()), 16_000), (None, 4_000)].into());
    assert_eq!(tally(Attribute::Brand).await.by_value, [(None, 20_000)].into());

    // What was removed is not counted any more, whatever its slot still holds.
    for device in devices.iter().skip(399).step_by(400) {
        assert!(index.remove_device(&key(), &device.client_id).await.unwrap());
    }
    expected.retain(|model, _| model.as_deref() != Some("M399"));
    assert_eq!(tally(Attribute::Model).await.by_value, expected);
    let removed = AppKey { generation: 9, ..key() };
    let of_removed = tally_devices(index, &removed, Attribute::Model).await.unwrap();
    assert_eq!(of_removed, Default::default(), "another generation has no devices");
}
