//! Bulk import: NDJSON in, devices into the index.
//!
//! ```text
//! file ──▶ reader thread: lines, packed ──▶ a window, sorted ──▶ parts, side by side ──▶ index
//!                    ▲                                                  │
//!                    └──────────────── an empty window ◀────────────────┘
//! ```
//!
//! There are two windows: one is filled while the other is stored. A window is in the order in which
//! the index stores devices at the least cost. Its parts go side by side, so that the index has
//! work while devices are made ready for it; no two parts have the same device, and one window
//! follows the other, so that of two lines for one device the later wins.

mod window;

use std::{
    cell::Cell,
    io::{self, Read},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use futures::future;
use indicatif::ProgressBar;
use push_index::{Index, Put, PutRefused};
use push_model::{app::AppKey, ids::ClientId, time::UnixMillis};
use push_service::settings::size;
use serde_json::json;
use tokio::sync::mpsc;

use self::window::{MAX_LINE, Packed, Window};
use crate::{bad_lines::BadLines, input, lines::Lines, output::Output};

/// One is filled while the other is stored.
const WINDOWS: usize = 2;
/// With less, the index would do for nearly every device what it can do for many at once.
const LEAST_MEMORY: usize = 1 << 20;
/// What the numbers of a window can count, with room to spare.
const MOST_MEMORY: usize = 2 << 30;
/// The most devices of the first window; they grow, so that the index soon has work.
const FIRST_DEVICES: usize = 4096;
/// Parts of a window that are stored side by side.
const PARTS: usize = 8;
/// Devices of a part that are handed to the index together: a few megabytes, unpacked.
const TOGETHER: usize = 8192;
/// How often the progress bar moves.
const TICK: Duration = Duration::from_millis(100);

/// Reads how much memory an import may use for its windows, in bytes.
///
/// # Errors
/// What the value must be.
pub fn memory(text: &str) -> Result<usize, String> {
    let memory = size(text)?;
    if (LEAST_MEMORY..=MOST_MEMORY).contains(&memory) {
        Ok(memory)
    } else {
        Err("must be from 1MiB to 2GiB".to_owned())
    }
}

/// What became of the lines.
#[derive(Debug, Default)]
struct Totals {
    created: u64,
    updated: u64,
    bad: BadLines,
}

impl Totals {
    fn devices(&self) -> u64 {
        self.created + self.updated
    }

    fn add(&mut self, other: Self) {
        self.created += other.created;
        self.updated += other.updated;
        self.bad.append(other.bad);
    }
}

/// Imports a file, or standard input for `-`, with about so much memory, in bytes.
///
/// # Errors
/// If the file cannot be read, the index does not answer, or any line was bad. Good lines are
/// imported in the last case.
pub async fn run(
    app: &AppKey,
    file: &Path,
    memory: usize,
    index: &Arc<dyn Index>,
    out: Output,
) -> anyhow::Result<()> {
    let (input, size) = input::open(file)?;
    let bar = out.progress(
        size,
        "{spinner} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta} left  {msg}",
    );
    bar.enable_steady_tick(TICK);
    let started = Instant::now();

    let (give_back, empty) = mpsc::channel(WINDOWS);
    let (full, mut filled) = mpsc::channel(WINDOWS);
    for _ in 0..WINDOWS {
        give_back.send(Window::of(memory / WINDOWS)).await?;
    }
    let in_order_of = index.clone();
    let order = move |client: &ClientId| in_order_of.storage_order(client);
    // The import does not join this thread when it is given up: its read may block until a person
    // or another program writes.
    let reader = thread::Builder::new()
        .name("import-reader".to_owned())
        .spawn(move || read(Lines::new(input, MAX_LINE), order, empty, &full))
        .context("cannot start a thread")?;
    let mut import = Import { app, index: &**index, bar, totals: Totals::default(), bytes: 0 };
    while let Some(window) = filled.recv().await {
        import.store(&window).await?;
        // Without a reader, all was read.
        let _ = give_back.send(window).await;
    }
    let all_read = reader.join().map_err(|_| anyhow!("the reader of the input failed"))?;
    all_read.context("cannot read the input to its end")?;
    import.bar.finish_and_clear();
    report(&import.totals, started.elapsed(), out)
}

/// Fills windows with lines until the input ends or the receiver is closed.
fn read(
    mut lines: Lines<impl Read>,
    order: impl Fn(&ClientId) -> u64,
    mut empty: mpsc::Receiver<Window>,
    full: &mpsc::Sender<Window>,
) -> io::Result<()> {
    let (mut lines_before, mut most_devices, mut more) = (0, FIRST_DEVICES, true);
    while more && let Some(mut window) = empty.blocking_recv() {
        more = window.fill(&mut lines, lines_before, most_devices, &order)?;
        lines_before = window.lines_until_end();
        most_devices = most_devices.saturating_mul(2);
        if full.blocking_send(window).is_err() {
            break;
        }
    }
    Ok(())
}

/// What is stored, and where.
struct Import<'a> {
    app: &'a AppKey,
    index: &'a dyn Index,
    bar: ProgressBar,
    totals: Totals,
    /// How much of the input that is.
    bytes: u64,
}

impl Import<'_> {
    async fn store(&mut self, window: &Window) -> anyhow::Result<()> {
        let stored = Cell::new(0);
        let parts = window.parts(PARTS).map(|part| self.store_part(window, part, &stored));
        for totals in future::try_join_all(parts).await? {
            self.totals.add(totals);
        }
        self.totals.bad.append(window.bad.clone());
        self.bytes += window.bytes;
        self.bar.set_position(self.bytes);
        Ok(())
    }

    async fn store_part(
        &self,
        window: &Window,
        part: &[Packed],
        stored: &Cell<u64>,
    ) -> anyhow::Result<Totals> {
        let mut totals = Totals::default();
        for together in part.chunks(TOGETHER) {
            let devices = window.unpack(together)?;
            let results = self.index.put_devices(self.app, &devices, UnixMillis::now()).await?;
            for (result, device) in results.into_iter().zip(together) {
                match result {
                    Ok(Put::Created) => totals.created += 1,
                    Ok(Put::Updated) => totals.updated += 1,
                    Err(gone @ PutRefused::AppRemoved) => return Err(gone.into()),
                    Err(refused) => totals.bad.add(window.line_of(device), refused.to_string()),
                }
            }
            stored.update(|devices| devices + together.len() as u64);
            self.show(window, stored.get());
        }
        Ok(totals)
    }

    /// Shows that so many devices of a window are stored.
    fn show(&self, window: &Window, stored: u64) {
        let share = stored as f64 / window.count().max(1) as f64;
        self.bar.set_position(self.bytes + (window.bytes as f64 * share) as u64);
        self.bar.set_message(format!("{} devices", self.totals.devices() + stored));
    }
}

fn report(totals: &Totals, took: Duration, out: Output) -> anyhow::Result<()> {
    totals.bad.tell(out);
    let imported = totals.devices();
    let rate = imported as f64 / took.as_secs_f64().max(0.001);
    let text = format!(
        "{imported} devices imported ({} new, {} replaced), {} bad lines, {:.1} s, {rate:.0} devices/s",
        totals.created,
        totals.updated,
        totals.bad.count,
        took.as_secs_f64()
    );
    out.result(
        text,
        &json!({
            "created": totals.created,
            "updated": totals.updated,
            "bad": totals.bad.count,
            "bad_lines": totals.bad.reported,
            "seconds": took.as_secs_f64(),
        }),
    )?;
    if totals.bad.count > 0 {
        bail!("{} lines were not imported", totals.bad.count);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use push_model::device::Device;

    use super::*;

    #[test]
    fn memory_is_a_size_between_what_helps_and_what_can_be_counted() {
        assert_eq!(memory("1MiB"), Ok(LEAST_MEMORY));
        assert_eq!(memory("2GiB"), Ok(MOST_MEMORY));
        for wrong in ["1023KiB", "3GiB", "100000000"] {
            assert!(memory(wrong).is_err(), "{wrong}");
        }
    }

    /// What the reader makes of an input, with the first letter of the client id as the order.
    fn read_all(input: String) -> Vec<Window> {
        let (give_back, empty) = mpsc::channel(64);
        let (full, mut filled) = mpsc::channel(64);
        for _ in 0..64 {
            give_back.try_send(Window::of(MOST_MEMORY)).unwrap();
        }
        let order = |client: &ClientId| client.as_str().as_bytes()[0].into();
        read(Lines::new(input.as_bytes(), MAX_LINE), order, empty, &full).unwrap();
        drop(full);
        std::iter::from_fn(|| filled.blocking_recv()).collect()
    }

    #[test]
    fn the_lines_of_a_device_stay_together_and_in_order() {
        let line = |n: usize| format!("{{\"client_id\":\"{}\",\"token\":\"{n}\"}}\n", n % 10);
        let windows = read_all((0..100).map(line).collect());
        let [window] = &windows[..] else { panic!("{} windows", windows.len()) };
        let parts: Vec<_> = window.parts(4).map(|part| window.unpack(part).unwrap()).collect();
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [30, 30, 30, 10]);
        for client in (0..10).map(|id| id.to_string()) {
            let is_clients = |device: &&Device| device.client_id.as_str() == client;
            let tokens = |part: &Vec<Device>| -> Vec<usize> {
                let devices = part.iter().filter(is_clients);
                devices.map(|device| device.token.as_ref().unwrap().parse().unwrap()).collect()
            };
            let mut tokens: Vec<_> = parts.iter().map(tokens).collect();
            tokens.retain(|tokens| !tokens.is_empty());
            assert_eq!(tokens.len(), 1, "{client} is in one part");
            assert!(tokens[0].len() == 10 && tokens[0].is_sorted(), "{tokens:?}");
        }
    }

    #[test]
    fn devices_at_one_place_of_the_index_are_in_the_order_of_their_ids() {
        let line = |n: usize| format!("{{\"client_id\":\"user-{}\"}}\n", 7 * n % 100);
        let windows = read_all((0..100).map(line).collect());
        let parts: Vec<_> = windows[0].parts(4).collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [25; 4]);
        let devices = parts.into_iter().flat_map(|part| windows[0].unpack(part).unwrap());
        assert!(devices.is_sorted_by(|a, b| a.client_id < b.client_id));
    }

    #[test]
    fn a_device_comes_out_of_a_window_as_it_went_in() {
        let lines = [
            r#"{"client_id":"a","country":"cn","brand":"Xiao Mi","transport":"fcm","token":"t"}"#,
            r#"{"client_id":"b","country":"CN","language":"zh_CN","model":"m","os_version":"034"}"#,
            r#"{"client_id":"c"}"#,
        ];
        let expected: Vec<Device> = lines
            .iter()
            .map(|line| {
                let mut draft: push_model::device::DeviceDraft<'_> =
                    serde_json::from_str(line).unwrap();
                let client = draft.client_id.take().unwrap().parse().unwrap();
                draft.check(client).unwrap()
            })
            .collect();
        let windows = read_all(lines.join("\n"));
        let part = windows[0].parts(1).next().unwrap();
        assert_eq!(windows[0].unpack(part).unwrap(), expected);
    }

    #[test]
    fn bad_lines_are_reported_with_their_numbers_and_do_not_stop_the_rest() {
        let long = format!("{{\"client_id\":\"{}\"}}", "x".repeat(20_000));
        let windows = read_all(format!(
            "{{\"client_id\":\"a\"}}\n\nnonsense\n{long}\n{{\"country\":\"CN\"}}\n\
             {{\"client_id\":\"b\",\"country\":\"China\"}}\n{{\"client_id\":\"c\"}}"
        ));
        let window = &windows[0];
        let part = window.parts(1).next().unwrap();
        let devices = window.unpack(part).unwrap();
        let ids: Vec<_> = devices.iter().map(|device| device.client_id.as_str()).collect();
        assert_eq!(ids, ["a", "c"]);
        let lines: Vec<_> = part.iter().map(|device| window.line_of(device)).collect();
        assert_eq!(lines, [1, 7]);
        let bad: Vec<_> = window.bad.reported.iter().map(|bad| bad.line).collect();
        assert_eq!(bad, [3, 4, 5, 6]);
        assert_eq!(window.bad.reported[2].reason, "client_id is missing");
        assert!(window.bad.reported[3].reason.starts_with("country must be two letters"));
    }

    #[test]
    fn lines_are_counted_across_windows_and_every_byte_for_the_progress_bar() {
        let good: String =
            (0..FIRST_DEVICES).map(|n| format!("{{\"client_id\":\"{n}\"}}\n")).collect();
        let input = format!("{good}{}\nx\n", "y".repeat(100_000));
        let windows = read_all(input.clone());
        assert_eq!(windows.iter().map(Window::count).collect::<Vec<_>>(), [FIRST_DEVICES, 0]);
        assert_eq!(windows.iter().map(|window| window.bytes).sum::<u64>(), input.len() as u64);
        let bad: Vec<_> = windows[1].bad.reported.iter().map(|bad| bad.line).collect();
        assert_eq!(bad, [FIRST_DEVICES as u64 + 1, FIRST_DEVICES as u64 + 2]);
    }
}
