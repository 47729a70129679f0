//! Bulk import: NDJSON in, devices into the index.
//!
//! A reader thread cuts the input into chunks of lines and parses them while the chunk before is
//! being stored. Chunks are stored one after another, so that of two lines for one device the
//! later wins, also across chunks.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use push_shared::{
    device::{Device, DeviceDraft},
    ids::{AppId, ClientId},
    index::{Index, Put},
    time::UnixMillis,
};
use serde_json::json;
use tokio::sync::mpsc;

use crate::output::Output;

/// Lines that are stored together.
const CHUNK_LINES: usize = 32_768;
/// Parsed chunks that may wait to be stored.
const CHUNKS_AHEAD: usize = 2;
/// The longest line, in bytes: a device with the longest token fits twice.
const MAX_LINE: u64 = 16 * 1024;
/// Bad lines that are reported one by one; the others are counted.
const MAX_REPORTED: usize = 1000;
/// How often the progress bar moves.
const TICK: Duration = Duration::from_millis(100);

/// A line that was not imported.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
struct BadLine {
    line: u64,
    reason: String,
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
pub async fn run(app: &AppId, file: &Path, index: &dyn Index, out: Output) -> anyhow::Result<()> {
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

    let (sender, mut chunks) = mpsc::channel(CHUNKS_AHEAD);
    let reader = tokio::task::spawn_blocking(move || read_chunks(input, &sender));
    let mut totals = Totals::default();
    while let Some(chunk) = chunks.recv().await {
        store(app, index, &chunk, &mut totals).await?;
        for bad in chunk.bad {
            totals.bad(bad);
        }
        bar.inc(chunk.bytes);
        bar.set_message(format!("{} devices", totals.created + totals.updated));
    }
    reader.await?.context("cannot read the input to its end")?;
    bar.finish_and_clear();
    report(&totals, started.elapsed(), out)
}

impl Totals {
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
    let imported = totals.created + totals.updated;
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

fn read_chunks(input: impl Read, chunks: &mpsc::Sender<Chunk>) -> io::Result<()> {
    let mut input = BufReader::with_capacity(1 << 20, input);
    let mut line = Vec::new();
    let mut chunk = Chunk::default();
    let mut number = 0;
    loop {
        line.clear();
        let read = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? as u64;
        if read == 0 {
            break;
        }
        number += 1;
        chunk.bytes += read;
        if read == MAX_LINE && line.last() != Some(&b'\n') {
            chunk.bytes += skip_line(&mut input)?;
            let reason = format!("longer than {MAX_LINE} bytes");
            chunk.bad.push(BadLine { line: number, reason });
        } else if !line.trim_ascii().is_empty() {
            match parse(&line) {
                Ok(device) => {
                    chunk.devices.push(device);
                    chunk.lines.push(number);
                }
                Err(reason) => chunk.bad.push(BadLine { line: number, reason }),
            }
        }
        if chunk.devices.len() + chunk.bad.len() >= CHUNK_LINES
            && chunks.blocking_send(std::mem::take(&mut chunk)).is_err()
        {
            return Ok(()); // the import was given up
        }
    }
    // The receiver is gone only if the import was given up.
    let _ = chunks.blocking_send(chunk);
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

fn parse(line: &[u8]) -> Result<Device, String> {
    let mut draft: DeviceDraft =
        serde_json::from_slice(line).map_err(|error| format!("not a device: {error}"))?;
    let client_id = draft.client_id.take().ok_or("client_id is missing")?;
    let client_id: ClientId =
        client_id.parse().map_err(|problem| format!("client_id {problem}"))?;
    draft.check(client_id).map_err(|bad| bad.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &str) -> Chunk {
        let (sender, mut receiver) = mpsc::channel(4);
        read_chunks(input.as_bytes(), &sender).unwrap();
        receiver.try_recv().unwrap()
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
