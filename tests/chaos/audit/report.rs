//! The figures of a run.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use crate::{
    audit::book::Record,
    audit::oracle::Found,
    schedule::fault::Part,
    schedule::history::{History, Struck},
    world::{BATCH, BATCHES_IN_FLIGHT},
};

/// The figures of a run.
#[derive(Debug)]
pub(crate) struct Figures {
    began: Instant,
    posted: Duration,
    drained: Duration,
    faults: Vec<Struck>,
    tried: u64,
    accepted: u64,
    sent: u64,
    failed: u64,
    unrecorded: u64,
    left_open: u64,
    uncounted: u64,
    expired: u64,
    slowest_flow: Duration,
    repeats: u64,
    most_repeats: u64,
    lost_with_mosquitto: u64,
}

impl Figures {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            posted: Duration::ZERO,
            drained: Duration::ZERO,
            faults: Vec::new(),
            tried: 0,
            accepted: 0,
            sent: 0,
            failed: 0,
            unrecorded: 0,
            left_open: 0,
            uncounted: 0,
            expired: 0,
            slowest_flow: Duration::ZERO,
            repeats: 0,
            most_repeats: 0,
            lost_with_mosquitto: 0,
        }
    }

    /// Notes that the last push is posted.
    pub(crate) fn posted(&mut self) {
        self.posted = self.began.elapsed();
    }

    /// Notes that the last push is closed.
    pub(crate) fn drained(&mut self) {
        self.drained = self.began.elapsed();
    }

    pub(crate) fn struck(&mut self, history: &History) {
        self.faults = history.all().to_vec();
    }

    pub(crate) fn flowed(&mut self, after: Duration) {
        self.slowest_flow = self.slowest_flow.max(after);
    }

    pub(crate) fn tried(&mut self, record: &Record) {
        self.tried += 1;
        self.accepted += u64::from(record.accepted);
    }

    pub(crate) fn found(&mut self, found: &Found) {
        let Found { counts, left_open, uncounted, lost_with_mosquitto, repeats, most_repeats } =
            found;
        let unrecorded = counts.failed("unrecorded");
        self.sent += counts.sent;
        self.unrecorded += unrecorded;
        self.failed += counts.failed.values().sum::<u64>() - unrecorded;
        self.expired += counts.expired;
        self.left_open += u64::from(*left_open);
        self.uncounted += u64::from(*uncounted);
        self.lost_with_mosquitto += lost_with_mosquitto;
        self.repeats += repeats;
        self.most_repeats = self.most_repeats.max(*most_repeats);
    }

    /// The published bound: one batch for each task in flight at each fault.
    fn bound(&self) -> u64 {
        let workers = |struck: &Struck| match struck.fault.part {
            _ if !struck.fault.justifies_a_repeat() => 0,
            Part::Ingest(_) | Part::Worker(_) => 1,
            Part::RabbitMq | Part::Redis | Part::Mosquitto | Part::Provider(_) => 2,
        };
        self.faults.iter().map(workers).sum::<u64>() * BATCHES_IN_FLIGHT * BATCH
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
        for struck in &self.faults {
            *kinds.entry(struck.fault.kind()).or_default() += 1;
        }
        let kinds: Vec<String> = kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let mut line = |what: &str, value: String| writeln!(f, "{what:<28}{value}");
        line("faults", format!("{}: {}", self.faults.len(), kinds.join(", ")))?;
        let maybe = self.tried - self.accepted;
        line("pushes", format!("{} tried, {} accepted, {maybe} maybe", self.tried, self.accepted))?;
        line("devices served", self.sent.to_string())?;
        line("devices not reached", format!("{} failed, {} expired", self.failed, self.expired))?;
        line("devices unrecorded", self.unrecorded.to_string())?;
        let left_open = format!("{}, {} without counts", self.left_open, self.uncounted);
        line("pushes left open", left_open)?;
        line("lost inside Mosquitto", self.lost_with_mosquitto.to_string())?;
        line("repeats at listeners", self.repeats.to_string())?;
        line("  of one push, one device", self.most_repeats.to_string())?;
        line("  bound over all devices", self.bound().to_string())?;
        line("slowest to flow again", format!("{:.1?}", self.slowest_flow))?;
        line("posting, then draining", {
            format!("{:.1?}, {:.1?}", self.posted, self.drained - self.posted)
        })
    }
}
