//! The runtime of a program that serves many connections with little work for each.
//!
//! By default it has one thread for every two cores. The other half is left to what runs beside it:
//! the kernel's network stack, the queue client's own thread, and on a small machine the broker.
//! With more threads than there is work for, an event from outside wakes two threads, because the
//! one that finds work wakes another to look for more. (Measured on two cores with RabbitMQ and wrk
//! beside it, alternating one thread and two, medians of five: 62 k/s instead of 57 k/s over 256
//! connections, 0.31 ms instead of 0.40 ms for a push that comes alone. A worker with the broker of
//! `standalone` beside it, two alternating runs each: 0.92 and 0.93 of a raw client's rate instead
//! of 0.84 and 0.88; broadcasts that are discarded are as fast with either.)

use std::{io, num::NonZeroUsize, thread::available_parallelism, time::Duration};

use tokio::runtime::{Builder, Runtime};

use crate::tune::Tuning;

/// Returns the number of threads, which the tunable `threads` replaces; 0 is half of the cores.
pub fn threads(tuning: &mut Tuning) -> NonZeroUsize {
    let mut threads = 0;
    tuning.count("threads", &mut threads, 0..=1024);
    NonZeroUsize::new(threads).unwrap_or_else(default_threads)
}

/// Half of the cores, at least one.
pub fn default_threads() -> NonZeroUsize {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new(cores / 2).unwrap_or(NonZeroUsize::MIN)
}

/// The time that a stopped program waits for a blocked thread, which may be reading from a disk that
/// hangs. All work that must be done has ended before.
const BLOCKED_TIME: Duration = Duration::from_secs(1);

/// Runs a program to its end, and leaves threads behind that are blocked.
pub fn run<T>(runtime: Runtime, program: impl Future<Output = T>) -> T {
    let ended = runtime.block_on(program);
    runtime.shutdown_timeout(BLOCKED_TIME);
    ended
}

/// Builds a runtime with this many worker threads. With one, the tasks run on the thread that
/// enters the runtime, so that none is handed from one thread to another.
///
/// # Errors
/// If the system has no thread or no file descriptor left.
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
    use std::{sync::mpsc, thread};

    use super::*;

    #[test]
    fn as_many_threads_run_as_were_asked_for_and_half_the_cores_otherwise() {
        assert_eq!(super::threads(&mut Tuning::default()), default_threads());
        for threads in [1, 3] {
            let runtime = start(NonZeroUsize::new(threads).unwrap()).unwrap();
            assert_eq!(runtime.metrics().num_workers(), threads);
        }
    }

    #[test]
    fn a_program_ends_although_one_of_its_threads_is_blocked() {
        for threads in [1, 2] {
            let runtime = start(NonZeroUsize::new(threads).unwrap()).unwrap();
            let (_kept, blocks) = mpsc::sync_channel::<()>(1);
            let (ended, seen) = mpsc::sync_channel(1);
            thread::spawn(move || {
                let program = async {
                    tokio::task::spawn_blocking(move || blocks.recv());
                    7
                };
                ended.send(run(runtime, program))
            });
            assert_eq!(seen.recv_timeout(BLOCKED_TIME * 20), Ok(7), "{threads} threads");
        }
    }
}
