//! The runtime of a program that serves many connections with little work for each.
//!
//! It has one thread for every two cores. The other half is for what works beside it: the kernel's
//! network, the queue client's own thread, on a small machine the broker. And with more threads
//! than there is work for, each wake from outside costs two: the thread that finds something to do
//! wakes another to look for more. (Measured on two cores with RabbitMQ and wrk beside it, one
//! thread and two in turn, medians of five: 62 k/s in place of 57 k/s over 256 connections, 0.31 ms
//! in place of 0.40 ms for a push that comes alone. A worker with the broker of `standalone` beside
//! it, twice each in turn: 0.92 and 0.93 of a raw client's rate in place of 0.84 and 0.88; broadcasts
//! that are discarded go as fast with either.)

use std::{io, num::NonZeroUsize, thread::available_parallelism};

use tokio::runtime::{Builder, Runtime};

use crate::settings::{Mistakes, count};

/// The most threads that can be asked for.
const MAX_THREADS: usize = 1024;

/// The flag about threads, as it was written.
#[derive(Debug, Clone, clap::Args)]
pub struct RuntimeArgs {
    /// Threads that serve connections; half of the cores if it is not given
    #[arg(long, env = "PUSH_THREADS", value_name = "N")]
    threads: Option<String>,
}

impl RuntimeArgs {
    /// Checks the flag; what is wrong goes into `mistakes`.
    pub fn check(&self, mistakes: &mut Mistakes) -> Option<NonZeroUsize> {
        match &self.threads {
            Some(threads) => mistakes
                .take("--threads", threads, count(1, MAX_THREADS))
                .and_then(NonZeroUsize::new),
            None => Some(usual_threads()),
        }
    }
}

/// Half of the cores, one at least.
pub fn usual_threads() -> NonZeroUsize {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new(cores / 2).unwrap_or(NonZeroUsize::MIN)
}

/// A runtime with so many threads that run its tasks. With one it is the thread that enters the
/// runtime, so that nothing is handed from one thread to another.
///
/// # Errors
/// If the system has no thread or no file handle left.
pub fn start(threads: NonZeroUsize) -> io::Result<Runtime> {
    let mut builder = if threads == NonZeroUsize::MIN {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    builder.worker_threads(threads.get()).enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(threads: Option<&str>) -> (Option<usize>, Mistakes) {
        let mut mistakes = Mistakes::default();
        let args = RuntimeArgs { threads: threads.map(str::to_owned) };
        (args.check(&mut mistakes).map(NonZeroUsize::get), mistakes)
    }

    #[test]
    fn as_many_threads_run_as_were_asked_for_and_half_the_cores_otherwise() {
        assert_eq!(check(Some("3")), (Some(3), Mistakes::default()));
        assert_eq!(check(None).0, Some(usual_threads().get()));
        for threads in [1, 3] {
            let runtime = start(NonZeroUsize::new(threads).unwrap()).unwrap();
            assert_eq!(runtime.metrics().num_workers(), threads);
        }
    }

    #[test]
    fn no_threads_at_all_are_a_mistake() {
        let (threads, mistakes) = check(Some("0"));
        assert_eq!(threads, None);
        assert!(format!("{mistakes:?}").contains("--threads"), "{mistakes:?}");
    }
}
