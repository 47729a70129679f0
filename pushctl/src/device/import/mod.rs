//! Bulk import: NDJSON in, devices into the index.
//!
//! A reader thread parses the lines and deals them out to [`PARTS`], by the neighbourhood of the
//! device in the index. The chunks of a part are stored one after another, so that of two lines for
//! one device the later wins; the parts are stored side by side, so that the index has work while
//! a chunk is made ready for it. Chunks are large because neighbours share work in the index: among
//! a million devices in Redis, a chunk has six for each bucket of the map that it changes. (Redis
//! took 3.5–3.8 s for a million in chunks of this size, 4.1–4.2 in chunks of half the size, and
//! `pushctl` 195 MB in place of 117.)

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use indicatif::ProgressBar;
use push_shared::{
    attributes::{Attribute, BadValue},
    device::{Device, DeviceDraft},
    ids::{AppId, ClientId},
    index::{Index, Put},
    time::UnixMillis,
};
use serde_json::json;
use tokio::{sync::mpsc, task::JoinSet};

use crate::output::Output;

/// Parts that are stored side by side: one is made ready while the index works on the other.
const PARTS: usize = 2;
/// Lines that are stored together: about 30 MB of devices, of which six chunks may be in memory.
const CHUNK_LINES: usize = 131_072;
/// The same for the first chunk; they grow, so that the index soon has work.
const FIRST_CHUNK_LINES: usize = 4096;
/// Parsed chunks of a part that may wait to be stored.
const CHUNKS_AHEAD: usize = 1;
/// The longest line, in bytes: a device with the longest token fits twice.
const MAX_LINE: u64 = 16 * 1024;
/// Bad lines that are reported one by one; the others are counted.
const MAX_REPORTED: usize = 1000;
/// Values of one attribute that are remembered; an app with more has the rest normalised again.
const MAX_REMEMBERED: usize = 8192;
/// How often the progress bar moves.
const TICK: Duration = Duration::from_millis(100);

/// A line that was not imported.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
struct BadLine {
    line: u64,
    reason: String,
}

/// Values that came up: as they were written, and as many devices share them.
#[derive(Debug, Default)]
struct Values([HashMap<Box<str>, Arc<str>>; Attribute::COUNT]);

impl Values {
    fn normalise(&mut self, attribute: Attribute, text: &str) -> Result<Arc<str>, BadValue> {
        let known = &mut self.0[attribute.index()];
        if let Some(value) = known.get(text) {
            return Ok(Arc::clone(value));
        }
        let value: Arc<str> = attribute.normalise(text)?.into();
        if known.len() < MAX_REMEMBERED {
            known.insert(text.into(), Arc::clone(&value));
        }
        Ok(value)
    }
}

#[derive(Debug, Default)]
struct Chunk {
    devices: Vec<Device>,
    /// The line number of each device.
    lines: Vec<u64>,
    bad: Vec<BadLine>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Totals {
    created: u64,
    updated: u64,
    bad: u64,
    reported: Vec<BadLine>,
}

/// Imports a file, or standard input for `-`.
///
/// # Errors
/// If the file cannot be read, the index does not answer, or any line was bad. Good lines are
/// imported in the last case.
pub async fn run(
    app: &AppId,
    file: &Path,
    index: &Arc<dyn Index>,
    out: Output,
) -> anyhow::Result<()> {
    let (input, size): (Box<dyn Read + Send>, _) = if file == Path::new("-") {
        (Box::new(io::stdin()), None)
    } else {
        let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        let size = opened.metadata().ok().filter(std::fs::Metadata::is_file).map(|m| m.len());
        (Box::new(opened), size)
    };
    let bar = out.progress(
        size,
        "{spinner} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta} left  {msg}",
    );
    bar.enable_steady_tick(TICK);
    let started = Instant::now();

    let progress = Arc::new(Progress { bar, devices: AtomicU64::new(0) });
    let mut parts = JoinSet::new();
    let mut senders = Vec::with_capacity(PARTS);
    for _ in 0..PARTS {
        let (sender, chunks) = mpsc::channel(CHUNKS_AHEAD);
        senders.push(sender);
        parts.spawn(store_part(app.clone(), index.clone(), chunks, progress.clone()));
    }
    let neighbourhoods = index.clone();
    let part_of = move |client: &ClientId| neighbourhoods.neighbourhood(client) as usize % PARTS;
    let reader = tokio::task::spawn_blocking(move || read_chunks(input, &senders, part_of));
    let mut totals = Totals::default();
    while let Some(stored) = parts.join_next().await {
        totals = totals.and(stored??);
    }
    reader.await?.context("cannot read the input to its end")?;
    progress.bar.finish_and_clear();
    report(&totals, started.elapsed(), out)
}

/// What a person sees meanwhile, of all parts together.
struct Progress {
    bar: ProgressBar,
    devices: AtomicU64,
}

async fn store_part(
    app: AppId,
    index: Arc<dyn Index>,
    mut chunks: mpsc::Receiver<Chunk>,
    progress: Arc<Progress>,
) -> anyhow::Result<Totals> {
    let mut totals = Totals::default();
    while let Some(chunk) = chunks.recv().await {
        let before = totals.devices();
        store(&app, &*index, &chunk, &mut totals).await?;
        for bad in chunk.bad {
            totals.bad(bad);
        }
        let new = totals.devices() - before;
        let devices = progress.devices.fetch_add(new, Ordering::Relaxed) + new;
        progress.bar.inc(chunk.bytes);
        progress.bar.set_message(format!("{devices} devices"));
    }
    Ok(totals)
}

impl Totals {
    fn devices(&self) -> u64 {
        self.created + self.updated
    }

    /// Both together, with the first of the bad lines.
    fn and(mut self, other: Self) -> Self {
        self.created += other.created;
        self.updated += other.updated;
        self.bad += other.bad;
        self.reported.extend(other.reported);
        self.reported.sort_unstable_by_key(|bad| bad.line);
        self.reported.truncate(MAX_REPORTED);
        self
    }

    fn bad(&mut self, bad: BadLine) {
        self.bad += 1;
        if self.reported.len() < MAX_REPORTED {
            self.reported.push(bad);
        }
    }
}

async fn store(
    app: &AppId,
    index: &dyn Index,
    chunk: &Chunk,
    totals: &mut Totals,
) -> anyhow::Result<()> {
    let results = index.put_devices(app, &chunk.devices, UnixMillis::now()).await?;
    for (result, &line) in results.into_iter().zip(&chunk.lines) {
        match result {
            Ok(Put::Created) => totals.created += 1,
            Ok(Put::Updated) => totals.updated += 1,
            Err(refused) => totals.bad(BadLine { line, reason: refused.to_string() }),
        }
    }
    Ok(())
}

fn report(totals: &Totals, took: Duration, out: Output) -> anyhow::Result<()> {
    for bad in &totals.reported {
        out.note(format_args!("line {}: {}", bad.line, bad.reason));
    }
    let unreported = totals.bad - totals.reported.len() as u64;
    if unreported > 0 {
        out.note(format_args!("… and {unreported} more bad lines"));
    }
    let imported = totals.devices();
    let rate = imported as f64 / took.as_secs_f64().max(0.001);
    let text = format!(
        "{imported} devices imported ({} new, {} replaced), {} bad lines, {:.1} s, {rate:.0} devices/s",
        totals.created,
        totals.updated,
        totals.bad,
        took.as_secs_f64()
    );
    out.result(
        text,
        &json!({
            "created": totals.created,
            "updated": totals.updated,
            "bad": totals.bad,
            "bad_lines": totals.reported,
            "seconds": took.as_secs_f64(),
        }),
    )?;
    if totals.bad > 0 {
        bail!("{} lines were not imported", totals.bad);
    }
    Ok(())
}

/// Reads the input into chunks of each part. Lines that are no devices go with the first.
fn read_chunks(
    input: impl Read,
    parts: &[mpsc::Sender<Chunk>],
    part_of: impl Fn(&ClientId) -> usize,
) -> io::Result<()> {
    let mut input = BufReader::with_capacity(1 << 20, input);
    let mut line = Vec::new();
    let mut values = Values::default();
    let mut chunks: Vec<Chunk> = parts.iter().map(|_| Chunk::default()).collect();
    let mut full = FIRST_CHUNK_LINES;
    let mut number = 0;
    loop {
        line.clear();
        let read = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? as u64;
        if read == 0 {
            break;
        }
        number += 1;
        let (device, bytes) = if read == MAX_LINE && line.last() != Some(&b'\n') {
            let reason = format!("longer than {MAX_LINE} bytes");
            (Some(Err(reason)), read + skip_line(&mut input)?)
        } else if line.trim_ascii().is_empty() {
            (None, read)
        } else {
            (Some(parse(&line, &mut values)), read)
        };
        let place = match &device {
            Some(Ok(device)) => part_of(&device.client_id),
            _ => 0,
        };
        let (Some(part), Some(chunk)) = (parts.get(place), chunks.get_mut(place)) else { continue };
        chunk.bytes += bytes;
        match device {
            Some(Ok(device)) => {
                chunk.devices.push(device);
                chunk.lines.push(number);
            }
            Some(Err(reason)) => chunk.bad.push(BadLine { line: number, reason }),
            None => {}
        }
        if chunk.devices.len() + chunk.bad.len() >= full {
            if part.blocking_send(std::mem::take(chunk)).is_err() {
                return Ok(()); // the import was given up
            }
            full = CHUNK_LINES.min(full * 2);
        }
    }
    for (part, chunk) in parts.iter().zip(chunks) {
        // The receiver is gone only if the import was given up.
        let _ = part.blocking_send(chunk);
    }
    Ok(())
}

/// Reads up to the end of a line without keeping it; returns how many bytes that were.
fn skip_line(input: &mut impl BufRead) -> io::Result<u64> {
    let mut skipped = 0;
    loop {
        let buffer = input.fill_buf()?;
        let (used, done) = match buffer.iter().position(|&b| b == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(used);
        skipped += used as u64;
        if done {
            return Ok(skipped);
        }
    }
}

fn parse(line: &[u8], values: &mut Values) -> Result<Device, String> {
    let mut draft: DeviceDraft<'_> =
        serde_json::from_slice(line).map_err(|error| format!("not a device: {error}"))?;
    let client_id = draft.client_id.take().ok_or("client_id is missing")?;
    let client_id: ClientId =
        client_id.parse().map_err(|problem| format!("client_id {problem}"))?;
    let normalise = |attribute, text: &str| values.normalise(attribute, text);
    draft.check_with(client_id, normalise).map_err(|bad| bad.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chunks of so many parts.
    fn read_into(parts: usize, input: &str) -> Vec<Vec<Chunk>> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..parts).map(|_| mpsc::channel(4)).unzip();
        let part_of = |client: &ClientId| usize::from(client.as_str().as_bytes()[0]) % parts;
        read_chunks(input.as_bytes(), &senders, part_of).unwrap();
        let chunks = |mut part: mpsc::Receiver<_>| std::iter::from_fn(move || part.try_recv().ok());
        receivers.into_iter().map(|part| chunks(part).collect()).collect()
    }

    fn read(input: &str) -> Chunk {
        read_into(1, input).pop().unwrap().pop().unwrap()
    }

    #[test]
    fn the_lines_of_a_device_stay_together_and_in_order() {
        let line = |n: usize| format!("{{\"client_id\":\"{}\",\"token\":\"{n}\"}}\n", n % 10);
        let input: String = (0..100).map(line).collect();
        let parts = read_into(PARTS, &input);
        assert!(parts.iter().all(|part| !part[0].devices.is_empty()), "both have something to do");
        for client in (0..10).map(|id| id.to_string()) {
            let lines_in = |part: &Vec<Chunk>| -> Vec<u64> {
                let chunk = &part[0];
                let devices = chunk.devices.iter().zip(&chunk.lines);
                let of_client = devices.filter(|(device, _)| device.client_id.as_str() == client);
                of_client.map(|(_, line)| *line).collect()
            };
            let mut lines: Vec<_> = parts.iter().map(lines_in).collect();
            lines.retain(|lines| !lines.is_empty());
            assert_eq!(lines.len(), 1, "{client} is in one part");
            assert!(lines[0].len() == 10 && lines[0].is_sorted(), "{lines:?}");
        }
    }

    #[test]
    fn bad_lines_are_reported_with_their_numbers_and_do_not_stop_the_rest() {
        let long = format!("{{\"client_id\":\"{}\"}}", "x".repeat(20_000));
        let chunk = read(&format!(
            "{{\"client_id\":\"a\"}}\n\nnonsense\n{long}\n{{\"country\":\"CN\"}}\n\
             {{\"client_id\":\"b\",\"country\":\"China\"}}\n{{\"client_id\":\"c\"}}"
        ));
        let ids: Vec<_> = chunk.devices.iter().map(|d| d.client_id.as_str()).collect();
        assert_eq!(ids, ["a", "c"]);
        assert_eq!(chunk.lines, [1, 7]);
        let bad: Vec<_> = chunk.bad.iter().map(|bad| bad.line).collect();
        assert_eq!(bad, [3, 4, 5, 6]);
        assert_eq!(chunk.bad[2].reason, "client_id is missing");
        assert!(chunk.bad[3].reason.starts_with("country must be two letters"));
    }

    #[test]
    fn every_byte_of_the_input_counts_for_the_progress_bar() {
        let input = format!("{{\"client_id\":\"a\"}}\n{}\nx\n", "y".repeat(100_000));
        assert_eq!(read(&input).bytes, input.len() as u64);
    }
}
