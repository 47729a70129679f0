//! The worker's settings: the flags as text, and the checked values.

use std::{net::SocketAddr, time::Duration};

use push_boot::settings::{ConfigErrors, address, count, duration, size};
use push_model::{
    ledger::{MOST_PARTITIONS, Retention},
    registration::MOST_CLOCK_ALLOWANCE,
};
use push_queue::MAX_DELAY;

use crate::{
    control::{priority::BulkLimits, retry_policy::RetryPolicy},
    limits::{ClosingLimits, LedgerLimits, PlanLimits, RetryLimits, RunLimits},
};

/// After this time RabbitMQ closes a channel with a delivery that is not settled (its
/// `consumer_timeout`).
const CONSUMER_TIMEOUT: Duration = Duration::from_mins(30);

/// Flags of a worker in any program.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Worker")]
pub struct WorkerArgs {
    /// Envelopes of accepted pushes that are in work at once
    #[arg(long, env = "PUSH_JOB_PREFETCH", value_name = "N", default_value = "16")]
    job_prefetch: String,
    /// Partitions of broadcasts that are in work at once, for each transport
    #[arg(long, env = "PUSH_TASK_PREFETCH", value_name = "N", default_value = "4")]
    task_prefetch: String,
    /// Devices between two checkpoints: the most that a crash repeats, for each partition in work
    #[arg(long, env = "PUSH_BATCH", value_name = "N", default_value = "1000")]
    batch: String,
    /// Requests to the index that partitions of broadcasts make at once; a push to few devices
    /// waits behind no more than these
    #[arg(long, env = "PUSH_BULK_REQUESTS", value_name = "N", default_value = "1")]
    bulk_requests: String,
    /// How long each of these requests waits, at most, to let pushes to few devices go first
    #[arg(long, env = "PUSH_BULK_YIELDS", value_name = "TIME", default_value = "5ms")]
    bulk_yields: String,
    /// How long a run on a partition lasts before other partitions get one
    #[arg(long = "turn", env = "PUSH_TURN", value_name = "TIME", default_value = "500ms")]
    run_time: String,
    /// How long after acceptance a push with time to live 0 is still sent
    #[arg(long, env = "PUSH_NOW_WINDOW", value_name = "TIME", default_value = "5s")]
    now_window: String,
    /// The most partitions of one broadcast for each transport. A partition is the part of its devices
    /// that one worker sends to at a time, so this is how many task slots of all workers can share a
    /// broadcast
    #[arg(long = "strands", env = "PUSH_STRANDS", value_name = "N", default_value = "32")]
    partitions: String,
    /// A broadcast over no more index slots than this is sent at once instead of shared
    #[arg(
        long = "strand-min-slots",
        env = "PUSH_STRAND_MIN_SLOTS",
        value_name = "N",
        default_value = "16384"
    )]
    partition_min_slots: String,
    /// The first delay of what is tried again; doubled each time
    #[arg(long, env = "PUSH_RETRY_FIRST", value_name = "TIME", default_value = "1s")]
    retry_first: String,
    /// The longest delay of what is tried again, unless the transport names a longer one
    #[arg(long, env = "PUSH_RETRY_LONGEST", value_name = "TIME", default_value = "1m")]
    retry_longest: String,
    /// Tries of a device that stays without an outcome, the first included; those that found its
    /// transport busy do not count
    #[arg(long, env = "PUSH_RETRY_ATTEMPTS", value_name = "N", default_value = "10")]
    retry_attempts: String,
    /// Devices of a partition that wait for another try before no more of it are read
    #[arg(long, env = "PUSH_RETRY_BACKLOG", value_name = "N", default_value = "1000")]
    retry_backlog: String,
    /// What the ledger may take in its store: its oldest closed entries are evicted beyond that
    #[arg(long, env = "PUSH_LEDGER_LIMIT", value_name = "SIZE", default_value = "1GiB")]
    ledger_limit: String,
    /// How often the size of the ledger is measured
    #[arg(long, env = "PUSH_LEDGER_CHECK", value_name = "TIME", default_value = "10s")]
    ledger_check: String,
    /// How long a queue message is held while the index is unavailable before it is put off;
    /// RabbitMQ takes one back after 30 minutes
    #[arg(long, env = "PUSH_HOLD", value_name = "TIME", default_value = "10m")]
    hold: String,
    /// How far the clocks of machines may differ: a broadcast reaches devices that registered up
    /// to so much after it was accepted; at most 30s
    #[arg(long, env = "PUSH_CLOCK_ALLOWANCE", value_name = "TIME", default_value = "1s")]
    clock_allowance: String,
    /// How often the ledger entry of a broadcast is checked until it is closed
    #[arg(long, env = "PUSH_CLOSING_CHECK", value_name = "TIME", default_value = "10m")]
    closing_check: String,
    /// How long after its end a message may still be worked on; from then on, what is left of it is
    /// counted as unrecorded
    #[arg(long, env = "PUSH_CLOSING_REST", value_name = "TIME", default_value = "15m")]
    closing_rest: String,
    /// The first pause while the index is unavailable; doubled each time
    #[arg(long, env = "PUSH_INDEX_PAUSE", value_name = "TIME", default_value = "100ms")]
    index_pause: String,
    /// The longest pause while the index is unavailable
    #[arg(long, env = "PUSH_INDEX_PAUSE_LONGEST", value_name = "TIME", default_value = "2s")]
    index_pause_longest: String,
}

/// Flags that only the worker's own program has.
#[derive(Debug, Clone, clap::Args)]
pub struct ProcessArgs {
    /// Where /livez, /readyz and /metrics are served
    #[arg(long, env = "PUSH_OPS_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:9081")]
    ops_listen: String,
    /// How long a stop waits for work to end
    #[arg(long, env = "PUSH_DRAIN_DEADLINE", value_name = "TIME", default_value = "25s")]
    drain_deadline: String,
}

/// Checked settings of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerSettings {
    /// Envelopes in work at once.
    pub job_prefetch: u16,
    /// Tasks in work at once.
    pub task_prefetch: u16,
    /// The task lane's use of the index.
    pub bulk: BulkLimits,
    /// Bounds of a run.
    pub run: RunLimits,
    /// How broadcasts are cut.
    pub plan: PlanLimits,
    /// The delays before another try.
    pub retry: RetryPolicy,
    /// Bounds of trying devices again.
    pub retry_limits: RetryLimits,
    /// When the ledger entry of a broadcast is checked.
    pub closing: ClosingLimits,
    /// The pauses while a server is unavailable.
    pub index_pause: RetryPolicy,
    /// How long a queue message is held while the index is unavailable.
    pub hold: Duration,
    /// How long a ledger entry is kept.
    pub ledger_retention: Retention,
    /// How large the ledger may be.
    pub ledger: LedgerLimits,
}

/// Checked settings of the worker's own program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSettings {
    /// The address of the operations endpoints.
    pub ops_listen: SocketAddr,
    /// How long a stop waits for work to end.
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
        let job_prefetch = errors.read("--job-prefetch", &self.job_prefetch, count(1, 1000));
        let task_prefetch = errors.read("--task-prefetch", &self.task_prefetch, count(1, 1000));
        let bulk_requests = errors.read("--bulk-requests", &self.bulk_requests, count(1, 1000));
        let batch = errors.read("--batch", &self.batch, count(1, 100_000));
        let partitions =
            errors.read("--strands", &self.partitions, count(1, MOST_PARTITIONS as usize));
        let min_slots = errors.read(
            "--strand-min-slots",
            &self.partition_min_slots,
            count(1, u64::from(u32::MAX)),
        );
        let retry_attempts = errors.read("--retry-attempts", &self.retry_attempts, count(1, 1000));
        let backlog = errors.read("--retry-backlog", &self.retry_backlog, count(1, 1_000_000));
        let ledger_limit = errors.read("--ledger-limit", &self.ledger_limit, size);
        let clock_allowance =
            errors.read("--clock-allowance", &self.clock_allowance, clock_allowance);
        let mut time = |flag, text| errors.read(flag, text, duration);
        let ledger_check = time("--ledger-check", &self.ledger_check);
        let hold = time("--hold", &self.hold);
        let closing_check = time("--closing-check", &self.closing_check);
        let closing_rest = time("--closing-rest", &self.closing_rest);
        let bulk_yields = time("--bulk-yields", &self.bulk_yields);
        let run_time = time("--turn", &self.run_time);
        let now_window = time("--now-window", &self.now_window);
        let retry_first = time("--retry-first", &self.retry_first);
        let retry_longest = time("--retry-longest", &self.retry_longest);
        let index_pause = time("--index-pause", &self.index_pause);
        let index_longest = time("--index-pause-longest", &self.index_pause_longest);
        let (retry_first, retry_longest) = (retry_first?, retry_longest?);
        if retry_first > retry_longest || retry_first.is_zero() {
            errors.note("--retry-first must be more than zero and at most --retry-longest");
        }
        let clock_allowance = clock_allowance?;
        let closing = ClosingLimits { every: closing_check?, write_off_after: closing_rest? };
        if closing.every.is_zero() || closing.every > MAX_DELAY {
            errors
                .note(format!("--closing-check must be more than zero and at most {MAX_DELAY:?}"));
        }
        let ledger = LedgerLimits { bytes: ledger_limit? as u64, every: ledger_check? };
        if ledger.every.is_zero() {
            errors.note("--ledger-check must be more than zero");
        }
        let hold = hold?;
        if hold >= CONSUMER_TIMEOUT {
            errors.note(format!("--hold must be less than {CONSUMER_TIMEOUT:?}"));
        }
        Some(WorkerSettings {
            job_prefetch: job_prefetch?,
            task_prefetch: task_prefetch?,
            bulk: BulkLimits { requests: bulk_requests?, yields: bulk_yields? },
            run: RunLimits {
                batch: batch?,
                time: run_time?,
                now_window: now_window?,
                clock_allowance,
            },
            plan: PlanLimits { partitions: partitions?, min_slots: min_slots? },
            retry: RetryPolicy { first: retry_first, longest: retry_longest },
            retry_limits: RetryLimits { attempts: retry_attempts?, backlog: backlog? },
            closing,
            index_pause: RetryPolicy { first: index_pause?, longest: index_longest? },
            hold,
            ledger_retention: ledger_retention?,
            ledger,
        })
    }
}

impl ProcessArgs {
    /// Checks the flags; what is wrong goes into `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<ProcessSettings> {
        let ops_listen = errors.read("--ops-listen", &self.ops_listen, address);
        let drain_deadline = errors.read("--drain-deadline", &self.drain_deadline, duration);
        Some(ProcessSettings { ops_listen: ops_listen?, drain_deadline: drain_deadline? })
    }
}

/// Reads how far clocks may differ. With more, a device that changes its transport after a broadcast was accepted
/// could be taken for one that changed before, and get the message twice or not at all.
fn clock_allowance(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        allowance if allowance <= MOST_CLOCK_ALLOWANCE => Ok(allowance),
        _ => Err(format!("must be at most {MOST_CLOCK_ALLOWANCE:?}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        worker: WorkerArgs,
    }

    fn check(flags: &[&str]) -> Result<WorkerSettings, ConfigErrors> {
        let cli = Cli::try_parse_from(["worker"].iter().chain(flags)).unwrap();
        let mut errors = ConfigErrors::default();
        let settings = cli.worker.check(Some(Retention::all(Duration::from_secs(60))), &mut errors);
        errors.finish(settings)
    }

    #[test]
    fn the_defaults_are_valid() {
        let settings = check(&[]).unwrap();
        assert_eq!(settings.run.batch, 1000);
    }

    #[test]
    fn all_errors_are_reported_together() {
        let text = check(&["--batch", "0", "--turn", "5"]).unwrap_err().to_string();
        assert!(text.contains("--batch") && text.contains("--turn"), "{text}");
        let text = check(&["--retry-first", "2m"]).unwrap_err().to_string();
        assert!(text.contains("at most --retry-longest"), "{text}");
    }

    #[test]
    fn clocks_may_differ_by_no_more_than_changes_of_transports_allow() {
        assert!(check(&["--clock-allowance", "30s"]).is_ok());
        let text = check(&["--clock-allowance", "30001ms"]).unwrap_err().to_string();
        assert!(text.contains("--clock-allowance") && text.contains("at most 30s"), "{text}");
    }
}
