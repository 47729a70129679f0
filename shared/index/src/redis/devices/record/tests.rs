use proptest::prelude::*;
use push_model::{attributes::Attributes, registration::Serial};

use super::*;

fn device(id: &str, transport: TransportKind, token: Option<String>) -> Device {
    Device {
        client_id: id.parse().unwrap(),
        attributes: Attributes::default(),
        transport,
        token: token.map(Into::into),
        profile: push_model::profile::Profile::default(),
    }
}

fn time() -> impl Strategy<Value = UnixMillis> {
    (0_u64..1 << 42).prop_map(UnixMillis)
}

fn kind() -> impl Strategy<Value = TransportKind> {
    prop::sample::select(&TransportKind::ALL[..])
}

fn carrier() -> impl Strategy<Value = Carrier> {
    prop::sample::select(&Carrier::ALL[..])
}

/// The stamp, and the change of carrier.
fn history() -> impl Strategy<Value = ([UnixMillis; 2], Serial, Option<CarrierChange>)> {
    let change =
        (carrier(), time(), carrier()).prop_map(|(from, at, to)| CarrierChange { from, at, to });
    let serial = any::<u64>().prop_map(Serial::of);
    ([time(), time()], serial, prop::option::of(change))
}

proptest! {
    #[test]
    fn a_chunk_gives_back_its_records_and_free_slots(
        devices in prop::collection::vec(
            prop::option::of((
                "[a-z0-9][a-z0-9:._-]{0,127}",
                kind(),
                prop::option::of("[ -~]{1,300}"),
                any::<Codes>(),
                history(),
            )),
            0..=CHUNK_SLOTS as usize,
        )
    ) {
        let devices: Vec<_> = devices
            .into_iter()
            .map(|device| device.map(|(id, transport, token, codes, history)| {
                (super::tests::device(&id, transport, token), codes, history)
            }))
            .collect();
        let record = |device: &'_ (Device, Codes, _)| {
            let (device, codes, ([registered_at, renewed_at], serial, change)) = device;
            let is_renewed = device.transport.is_renewed();
            let renewed_at = if is_renewed { *renewed_at } else { *registered_at };
            let stamp = Stamp { registered_at: *registered_at, serial: *serial, renewed_at };
            (stamp, *codes, *change)
        };
        let mut chunk = Vec::new();
        for device in &devices {
            let Some(known) = device else {
                chunk.push(0);
                continue;
            };
            let (stamp, codes, change) = record(known);
            let of = Record::of(&known.0, codes, Section::default(), stamp).with_change(change);
            of.encode(&mut chunk).unwrap();
        }
        let read: Vec<_> = records(&chunk).map(Result::unwrap).collect();
        prop_assert_eq!(read.len(), devices.len());
        for (read, known) in read.iter().zip(&devices) {
            let wrote = known.as_ref().map(|known| {
                let (stamp, codes, change) = record(known);
                Record::of(&known.0, codes, Section::default(), stamp).with_change(change)
            });
            prop_assert_eq!(*read, wrote);
            if let (Some(read), Some((device, ..))) = (read, known) {
                prop_assert_eq!(&read.target().unwrap().client_id, &device.client_id);
            }
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_and_no_panic(chunk in prop::collection::vec(any::<u8>(), 0..200)) {
        let count = records(&chunk).count();
        prop_assert!(count <= CHUNK_SLOTS as usize);
    }
}
