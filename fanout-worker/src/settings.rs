//! The worker's settings: the flags as text, and the checked values.

use std::{net::SocketAddr, time::Duration};

use push_boot::{
    settings,
    settings::{ConfigErrors, address, count, duration, size},
    tune::{FOUR_WEEKS, HOUR, MOMENT, Tuning},
};
use push_model::{
    gone::GoneLimit,
    ledger::{MOST_PARTITIONS, Retention},
    registration::MOST_CLOCK_ALLOWANCE,
};
use push_queue::MAX_DELAY;

use crate::{
    control::{priority::BulkLimits, retry_policy::RetryPolicy},
    limits::{ClosingLimits, LedgerLimits, PlanLimits, RetryLimits, RunLimits},
};

/// The longest time for which a queue message is held. RabbitMQ closes a channel with a delivery that
/// is unacknowledged for 30 minutes (its `consumer_timeout`).
const LONGEST_HOLD: Duration = Duration::from_mins(29);

const SECOND: Duration = Duration::from_secs(1);

settings! {
    /// Flags of a worker in any program.
    pub struct WorkerArgs, "Worker" => WorkerValues {
        /// Limit the partitions that are worked on at a time, for each transport
        task_prefetch: u16 = ["N", "4"] count(1, 1000);
        /// Save a checkpoint after so many devices: the most that a crash repeats, for each partition in
        /// work
        batch: usize = ["N", "1000"] count(1, 100_000);
        /// Limit the partitions of one broadcast, for each carrier (a transport, or one of the eight lanes of
        /// Web Push). One worker at a time sends to the devices of a partition, so this is how many task slots
        /// of all workers can share a broadcast
        partitions: usize = ["N", "32"] count(1, MOST_PARTITIONS as usize);
        /// Limit what the ledger takes in its store: its oldest closed entries are evicted beyond that
        ledger_limit: usize = ["SIZE", "1GiB"] size;
        /// Stop removing devices of an app that providers report as gone when more than this percentage of its
        /// devices, and at least 100, would go within 10 minutes; 100 allows every removal, also where they
        /// are stopped
        gone_limit_percent: u8 = ["PERCENT", "1"] count(1, 100);
        /// Allow the clocks of machines to differ by so much, at most 30s: a broadcast reaches devices
        /// that registered up to this time after it was accepted
        clock_allowance: Duration = ["TIME", "1s"] clock_allowance;
    }
}

settings! {
    /// Flags that only the worker's own program has.
    pub struct ProcessArgs, "Listeners and stop" => ProcessValues {
        /// Serve /livez, /readyz and /metrics on this address
        ops_listen: SocketAddr = ["ADDRESS", "127.0.0.1:9081"] address;
        /// Allow a stop so much time to finish what has begun
        drain_deadline: Duration = ["TIME", "25s"] duration;
    }
}

/// Checked settings of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerSettings {
    /// The most envelopes in work.
    pub job_prefetch: u16,
    /// The most tasks in work, for each transport.
    pub task_prefetch: u16,
    /// The task lane's use of the index.
    pub bulk: BulkLimits,
    /// Bounds of a run.
    pub run: RunLimits,
    /// Bounds of the partitions that broadcasts are cut into.
    pub plan: PlanLimits,
    /// The delays before another try.
    pub retry: RetryPolicy,
    /// Bounds of trying devices again.
    pub retry_limits: RetryLimits,
    /// Bounds of removing devices that providers reported as gone.
    pub gone_limit: GoneLimit,
    /// The times at which the ledger entry of a broadcast is checked.
    pub closing: ClosingLimits,
    /// The pauses while a server is unavailable.
    pub index_pause: RetryPolicy,
    /// The time for which a queue message is held while the index is unavailable.
    pub hold: Duration,
    /// The time for which a ledger entry is kept.
    pub ledger_retention: Retention,
    /// The size limit of the ledger, and the interval at which its size is measured.
    pub ledger: LedgerLimits,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            job_prefetch: 16,
            task_prefetch: 4,
            // One request of a broadcast at a time: a push to few devices waits behind no more.
            bulk: BulkLimits { requests: 1, yields: ms(5) },
            run: RunLimits {
                batch: 1000,
                time: ms(500),
                now_window: Duration::from_secs(5),
                clock_allowance: Duration::from_secs(1),
            },
            plan: PlanLimits { partitions: 32, min_slots: 16_384 },
            retry: RetryPolicy { first: Duration::from_secs(1), longest: Duration::from_mins(1) },
            retry_limits: RetryLimits { attempts: 10, backlog: 1000 },
            gone_limit: GoneLimit::default(),
            closing: ClosingLimits {
                every: Duration::from_mins(10),
                write_off_after: Duration::from_mins(15),
            },
            index_pause: RetryPolicy { first: ms(100), longest: Duration::from_secs(2) },
            hold: Duration::from_mins(10),
            ledger_retention: Retention::default(),
            ledger: LedgerLimits { bytes: 1 << 30, every: Duration::from_secs(10) },
        }
    }
}

impl WorkerSettings {
    /// Returns the constants, or what replaces them.
    pub fn read(tuning: &mut Tuning) -> Self {
        let mut all = Self::default();
        tuning.count("job-prefetch", &mut all.job_prefetch, 1..=1000);
        tuning.count("bulk-requests", &mut all.bulk.requests, 1..=1000);
        tuning.time("bulk-yields", &mut all.bulk.yields, Duration::ZERO..=HOUR);
        tuning.time("run-time", &mut all.run.time, Duration::ZERO..=HOUR);
        tuning.time("now-window", &mut all.run.now_window, Duration::ZERO..=HOUR);
        tuning.count("partition-min-slots", &mut all.plan.min_slots, 1..=u64::from(u32::MAX));
        tuning.time("retry-first", &mut all.retry.first, MOMENT..=HOUR);
        tuning.time("retry-longest", &mut all.retry.longest, MOMENT..=HOUR);
        tuning.count("retry-attempts", &mut all.retry_limits.attempts, 1..=1000);
        tuning.count("retry-backlog", &mut all.retry_limits.backlog, 1..=1_000_000);
        tuning.count("gone-least", &mut all.gone_limit.least, 1..=1_000_000_000);
        tuning.time("gone-window", &mut all.gone_limit.window, SECOND..=HOUR);
        tuning.time("gone-rest", &mut all.gone_limit.rest, SECOND..=FOUR_WEEKS);
        tuning.time("closing-check", &mut all.closing.every, MOMENT..=MAX_DELAY);
        tuning.time("closing-rest", &mut all.closing.write_off_after, Duration::ZERO..=FOUR_WEEKS);
        tuning.time("index-pause", &mut all.index_pause.first, Duration::ZERO..=HOUR);
        tuning.time("index-pause-longest", &mut all.index_pause.longest, Duration::ZERO..=HOUR);
        tuning.time("longest-hold", &mut all.hold, Duration::ZERO..=LONGEST_HOLD);
        tuning.time("ledger-check", &mut all.ledger.every, MOMENT..=FOUR_WEEKS);
        all
    }
}

/// Checked settings of the worker's own program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSettings {
    /// The address of the operations endpoints.
    pub ops_listen: SocketAddr,
    /// The time that a stop waits for work to end.
    pub drain_deadline: Duration,
}

impl WorkerArgs {
    /// Checks the flags; what is wrong goes into `errors`. `ledger_retention` is set with the
    /// engines, for all programs.
    pub fn check(
        &self,
        ledger_retention: Option<Retention>,
        errors: &mut ConfigErrors,
    ) -> Option<WorkerSettings> {
        let mut settings = WorkerSettings::read(errors.tuning());
        let values = self.values(errors);
        if settings.retry.first > settings.retry.longest {
            errors.note("--tune retry-first must be at most retry-longest");
        }
        let values = values?;
        settings.task_prefetch = values.task_prefetch;
        settings.run.batch = values.batch;
        settings.run.clock_allowance = values.clock_allowance;
        settings.plan.partitions = values.partitions;
        settings.gone_limit.percent = values.gone_limit_percent;
        settings.ledger.bytes = values.ledger_limit as u64;
        settings.ledger_retention = ledger_retention?;
        Some(settings)
    }
}

impl ProcessArgs {
    /// Checks the flags; what is wrong goes into `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<ProcessSettings> {
        let ProcessValues { ops_listen, drain_deadline } = self.values(errors)?;
        Some(ProcessSettings { ops_listen, drain_deadline })
    }
}

/// Parses the difference of clocks, up to its bound. With a larger one, a device that changes its
/// transport after a broadcast was accepted could be taken for one that changed before. It would
/// get the message twice, or not at all.
fn clock_allowance(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        allowance if allowance <= MOST_CLOCK_ALLOWANCE => Ok(allowance),
        _ => Err(format!("must be at most {MOST_CLOCK_ALLOWANCE:?}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use push_boot::tune::TuneArgs;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        worker: WorkerArgs,
        #[command(flatten)]
        tune: TuneArgs,
    }

    fn check(flags: &[&str]) -> Result<WorkerSettings, ConfigErrors> {
        let cli = Cli::try_parse_from(["worker"].iter().chain(flags)).unwrap();
        let mut errors = ConfigErrors::tuned(&cli.tune);
        let settings = cli.worker.check(Some(Retention::default()), &mut errors);
        errors.finish(settings)
    }

    #[test]
    fn the_flags_have_the_defaults_that_the_settings_have() {
        assert_eq!(check(&[]), Ok(WorkerSettings::default()));
    }

    #[test]
    fn the_first_delay_is_at_most_the_longest() {
        let text = check(&["--batch", "0", "--tune=retry-first=2m"]).unwrap_err().to_string();
        assert!(text.contains("--batch") && text.contains("at most retry-longest"), "{text}");
    }

    #[test]
    fn clocks_may_differ_by_no_more_than_changes_of_transports_allow() {
        assert!(check(&["--clock-allowance", "30s"]).is_ok());
        let text = check(&["--clock-allowance", "30001ms"]).unwrap_err().to_string();
        assert!(text.contains("--clock-allowance") && text.contains("at most 30s"), "{text}");
    }
}
