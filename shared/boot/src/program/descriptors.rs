//! File descriptors: how many the process may have open, and how many of them are for clients.
//!
//! Every connection takes one. Many systems start a program with a soft limit of 1,024 and a hard
//! limit far above it, and any program may raise the soft one by itself. A program at its limit can
//! accept nothing, not even the question whether it is alive, so the services raise the limit when
//! they start, and take from clients only as many connections as leave enough for the rest.

/// Descriptors that are kept for everything but the connections that are served to clients:
/// connections to the stores, database files, listeners, the operations listener's connections,
/// connections that are being refused, logs.
const KEPT: u64 = 256;
/// The limit that is assumed if the system does not tell it: what most systems set.
const UNKNOWN: u64 = 1024;

/// The advice for a limit that is too low.
pub const HOW_TO_RAISE: &str = "raise the hard limit of open files (`ulimit -Hn`, systemd's \
                                LimitNOFILE, Docker's --ulimit nofile)";

/// The descriptors of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// The most that may be open at the same time.
    pub limit: u64,
    /// The most that connections of clients may take.
    pub for_clients: usize,
}

impl Descriptors {
    /// Splits a limit: clients get the descriptors that are not kept for the rest of the process.
    pub fn of_limit(limit: u64) -> Self {
        // Under a very low limit half is kept, so that some clients are served.
        let for_clients = limit - KEPT.min(limit / 2);
        Self { limit, for_clients: usize::try_from(for_clients).unwrap_or(usize::MAX) }
    }

    /// Halves the connections, for a process with two listeners for clients.
    #[must_use]
    pub fn half(self) -> Self {
        Self { for_clients: self.for_clients / 2, ..self }
    }
}

/// Raises the process's limit of open files to the hard limit. If that cannot be done, the limit
/// stays as it is.
pub fn raise() -> Descriptors {
    let limit = rlimit::increase_nofile_limit(u64::MAX).unwrap_or_else(|error| {
        tracing::debug!(%error, "the limit of open files stays as it is");
        UNKNOWN
    });
    tracing::debug!(limit, "open files");
    Descriptors::of_limit(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_kept_and_some_are_left_for_clients_under_any_limit() {
        for (limit, for_clients) in [(0, 0), (1, 1), (100, 50), (1024, 768), (20_000, 19_744)] {
            assert_eq!(Descriptors::of_limit(limit).for_clients, for_clients, "{limit}");
        }
        assert_eq!(Descriptors::of_limit(1024).half().for_clients, 384);
    }

    #[test]
    fn the_limit_of_open_files_is_raised_to_the_hard_limit() {
        let (_, hard) = rlimit::getrlimit(rlimit::Resource::NOFILE).unwrap();
        rlimit::setrlimit(rlimit::Resource::NOFILE, hard.min(512), hard).unwrap();
        let raised = raise().limit;
        assert_eq!(rlimit::getrlimit(rlimit::Resource::NOFILE).unwrap(), (raised, hard));
        // Some systems allow less than the hard limit.
        assert!(raised == hard || raised > 512, "{raised} of {hard}");
    }
}
