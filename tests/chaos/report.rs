//! The figures of a run.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use crate::{
    auditor::Counts,
    book::Record,
    plan::Part,
    run::Struck,
    world::{BATCH, BATCHES_IN_FLIGHT},
};

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Figures {
    began: Instant,
    posted: Duration,
    settled: Duration,
    faults: Vec<Struck>,
    tried: u64,
    accepted: u64,
    sent: u64,
    unheard: u64,
    expired: u64,
    slowest_flow: Duration,
    pub(crate) repeats: u64,
    pub(crate) most_repeats: u64,
    pub(crate) lost_with_mosquitto: u64,
}

impl Figures {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            posted: Duration::ZERO,
            settled: Duration::ZERO,
            faults: Vec::new(),
            tried: 0,
            accepted: 0,
            sent: 0,
            unheard: 0,
            expired: 0,
            slowest_flow: Duration::ZERO,
            repeats: 0,
            most_repeats: 0,
            lost_with_mosquitto: 0,
        }
    }

    /// The last push is posted.
    pub(crate) fn posted(&mut self) {
        self.posted = self.began.elapsed();
    }

    /// The last push is settled.
    pub(crate) fn settled(&mut self) {
        self.settled = self.began.elapsed();
    }

    pub(crate) fn struck(&mut self, faults: [Option<Struck>; 2]) {
        self.faults.extend(faults.into_iter().flatten());
    }

    pub(crate) fn flowed(&mut self, after: Duration) {
        self.slowest_flow = self.slowest_flow.max(after);
    }

    pub(crate) fn tried(&mut self, record: &Record) {
        self.tried += 1;
        self.accepted += u64::from(record.accepted);
    }

    pub(crate) fn devices(&mut self, counts: &Counts) {
        self.sent += counts.sent;
        self.unheard += counts.failed;
        self.expired += counts.expired;
    }

    /// The faults between the post of a push and its settlement, with what they left behind.
    pub(crate) fn faults_in_the_life_of(
        &self,
        record: &Record,
        aftermath: Duration,
    ) -> Vec<Struck> {
        let during = |struck: &&Struck| {
            record.posted.is_some_and(|posted| posted < struck.ended + aftermath)
                && record.closed.is_none_or(|closed| struck.began < closed)
        };
        self.faults.iter().filter(during).copied().collect()
    }

    /// The published bound: one batch for each task in flight at each fault.
    fn bound(&self) -> u64 {
        let workers = |struck: &Struck| match struck.fault.part {
            Part::Ingest(_) => 0,
            Part::Worker(_) => 1,
            Part::RabbitMq | Part::Redis | Part::Mosquitto => 2,
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
        line("devices not reached", format!("{} failed, {} expired", self.unheard, self.expired))?;
        line("lost inside Mosquitto", self.lost_with_mosquitto.to_string())?;
        line("repeats at listeners", self.repeats.to_string())?;
        line("  of one push, at most", self.most_repeats.to_string())?;
        line("  bound over all devices", self.bound().to_string())?;
        line("slowest to flow again", format!("{:.1?}", self.slowest_flow))?;
        line("posting, then settling", {
            format!("{:.1?}, {:.1?}", self.posted, self.settled - self.posted)
        })
    }
}
