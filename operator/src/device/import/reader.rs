//! The reader thread of an import: fills sort buffers from the input.

use std::io::{self, Read};

use push_model::ids::ClientId;
use tokio::sync::mpsc;

use super::sort_buffer::SortBuffer;
use crate::input::LineReader;

/// The most devices of the first buffer. Each one after it may hold twice as many, so that the
/// index soon has work.
const FIRST_DEVICES: usize = 4096;

/// Fills empty buffers with lines until the input ends or the receiver is closed.
pub(super) fn read(
    mut lines: LineReader<impl Read>,
    order: impl Fn(&ClientId) -> u64,
    mut empty: mpsc::Receiver<SortBuffer>,
    full: &mpsc::Sender<SortBuffer>,
) -> io::Result<()> {
    let (mut lines_before, mut max_devices, mut more) = (0, FIRST_DEVICES, true);
    while more && let Some(mut buffer) = empty.blocking_recv() {
        more = buffer.fill(&mut lines, lines_before, max_devices, &order)?;
        lines_before = buffer.lines_to_end();
        max_devices = max_devices.saturating_mul(2);
        if full.blocking_send(buffer).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use push_model::{attributes::Attribute, device::Device};

    use super::{
        super::{MAX_MEMORY, sort_buffer::MAX_LINE},
        *,
    };

    /// The buffers that an input fills; the first letter of a client id is its storage order.
    fn read_all(input: String) -> Vec<SortBuffer> {
        let (give_back, empty) = mpsc::channel(64);
        let (full, mut filled) = mpsc::channel(64);
        for _ in 0..64 {
            give_back.try_send(SortBuffer::new(MAX_MEMORY, &std::sync::Arc::default())).unwrap();
        }
        let order = |client: &ClientId| client.as_str().as_bytes()[0].into();
        read(LineReader::new(input.as_bytes(), MAX_LINE), order, empty, &full).unwrap();
        drop(full);
        std::iter::from_fn(|| filled.blocking_recv()).collect()
    }

    #[test]
    fn the_lines_of_a_device_stay_together_and_in_order() {
        let line = |n: usize| format!("{{\"client_id\":\"{}\",\"token\":\"{n}\"}}\n", n % 10);
        let buffers = read_all((0..100).map(line).collect());
        let [buffer] = &buffers[..] else { panic!("{} buffers", buffers.len()) };
        let segments: Vec<_> =
            buffer.segments(4).map(|segment| buffer.unpack(segment).unwrap()).collect();
        assert_eq!(segments.iter().map(Vec::len).collect::<Vec<_>>(), [30, 30, 30, 10]);
        for client in (0..10).map(|id| id.to_string()) {
            let is_clients = |device: &&Device| device.client_id.as_str() == client;
            let tokens = |segment: &Vec<Device>| -> Vec<usize> {
                let devices = segment.iter().filter(is_clients);
                devices.map(|device| device.token.as_ref().unwrap().parse().unwrap()).collect()
            };
            let mut tokens: Vec<_> = segments.iter().map(tokens).collect();
            tokens.retain(|tokens| !tokens.is_empty());
            assert_eq!(tokens.len(), 1, "{client} is in one segment");
            assert!(tokens[0].len() == 10 && tokens[0].is_sorted(), "{tokens:?}");
        }
    }

    #[test]
    fn devices_with_one_storage_order_are_sorted_by_their_ids() {
        let line = |n: usize| format!("{{\"client_id\":\"user-{}\"}}\n", 7 * n % 100);
        let buffers = read_all((0..100).map(line).collect());
        let segments: Vec<_> = buffers[0].segments(4).collect();
        assert_eq!(segments.iter().map(|segment| segment.len()).collect::<Vec<_>>(), [25; 4]);
        let devices = segments.into_iter().flat_map(|segment| buffers[0].unpack(segment).unwrap());
        assert!(devices.is_sorted_by(|a, b| a.client_id < b.client_id));
    }

    #[test]
    fn a_device_is_unpacked_as_it_was_read() {
        let lines = [
            r#"{"client_id":"a","country":"cn","brand":"Xiao Mi","transport":"webhook","token":"t"}"#,
            r#"{"client_id":"b","country":"CN","language":"zh_CN","model":"m","os_version":"034"}"#,
            r#"{"client_id":"c"}"#,
        ];
        let expected: Vec<Device> = lines
            .iter()
            .map(|line| {
                let mut draft: push_model::device::DeviceDraft<'_> =
                    serde_json::from_str(line).unwrap();
                let client = draft.client_id.take().unwrap().parse().unwrap();
                draft.check(client).unwrap().device
            })
            .collect();
        let buffers = read_all(lines.join("\n"));
        let segment = buffers[0].segments(1).next().unwrap();
        assert_eq!(buffers[0].unpack(segment).unwrap(), expected);
    }

    #[test]
    fn rejected_lines_are_reported_with_their_numbers_and_do_not_stop_the_rest() {
        let long = format!("{{\"client_id\":\"{}\"}}", "x".repeat(20_000));
        let buffers = read_all(format!(
            "{{\"client_id\":\"a\"}}\n\nnonsense\n{long}\n{{\"country\":\"CN\"}}\n\
             {{\"client_id\":\"b\",\"transport\":\"pigeon\"}}\n{{\"client_id\":\"c\"}}\n\
             {{\"client_id\":\"d\",\"country\":\"China\",\"language\":\"C\",\"model\":\"m\"}}\n\
             {{\"client_id\":\"e\",\"transport\":\"fcm\",\"token\":\"t\"}}\n\
             {{\"client_id\":\"f\",\"transport\":\"apns\"}}"
        ));
        let buffer = &buffers[0];
        let segment = buffer.segments(1).next().unwrap();
        let devices = buffer.unpack(segment).unwrap();
        let ids: Vec<_> = devices.iter().map(|device| device.client_id.as_str()).collect();
        assert_eq!(ids, ["a", "c", "d"]);
        let lines: Vec<_> = segment.iter().map(|device| buffer.line_of(device)).collect();
        assert_eq!(lines, [1, 7, 8]);
        let rejected: Vec<_> =
            buffer.rejected.reported.iter().map(|rejected| rejected.line).collect();
        assert_eq!(rejected, [3, 4, 5, 6, 9, 10]);
        assert_eq!(buffer.rejected.reported[2].reason, "client_id is missing");
        assert!(buffer.rejected.reported[3].reason.starts_with("transport must be one of"));
        let reason = &buffer.rejected.reported[4].reason;
        assert!(reason.starts_with("token must be an FCM registration token"), "{reason}");
        let reason = &buffer.rejected.reported[5].reason;
        assert!(reason.starts_with("token must be an APNs device token"), "{reason}");
        let warned: Vec<_> = buffer.warnings.reported.iter().map(|warned| warned.line).collect();
        assert_eq!((warned, buffer.warnings.count), (vec![8, 8], 2));
        assert!(buffer.warnings.reported[1].reason.starts_with("language must be"));
        let has = |attribute| devices[2].attributes.get(attribute);
        assert_eq!((has(Attribute::Country), has(Attribute::Model)), (None, Some("M")));
    }

    #[test]
    fn lines_are_counted_across_buffers_and_every_byte_for_the_progress_bar() {
        let good: String =
            (0..FIRST_DEVICES).map(|n| format!("{{\"client_id\":\"{n}\"}}\n")).collect();
        let input = format!("{good}{}\nx\n", "y".repeat(100_000));
        let buffers = read_all(input.clone());
        assert_eq!(buffers.iter().map(SortBuffer::count).collect::<Vec<_>>(), [FIRST_DEVICES, 0]);
        assert_eq!(
            buffers.iter().map(|buffer| buffer.input_bytes).sum::<u64>(),
            input.len() as u64
        );
        let rejected: Vec<_> =
            buffers[1].rejected.reported.iter().map(|rejected| rejected.line).collect();
        assert_eq!(rejected, [FIRST_DEVICES as u64 + 1, FIRST_DEVICES as u64 + 2]);
    }
}
