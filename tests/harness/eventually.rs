//! Waiting for a condition with a deadline, and showing the last state seen if it never held.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

/// Time between the first two checks; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest time between two checks.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Longest time of a check. One that asks a program of a server, such as rabbitmqctl, takes half a
/// minute on a busy machine, and says nothing until it is done.
const LONGEST_CHECK: Duration = Duration::from_secs(60);

/// Checks `condition` until it holds, and returns its value.
///
/// As long as it does not hold, the condition returns the state seen (`Err`). No check begins after the
/// deadline; one that began before may end after it, and is cancelled after [`LONGEST_CHECK`].
pub async fn eventually<T>(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut last = "nothing yet: the first check did not finish".to_owned();
    loop {
        match timeout(LONGEST_CHECK.max(deadline), condition()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(seen)) => last = seen,
            Err(_) => {}
        }
        if started.elapsed() + pause > deadline {
            panic!("not within {deadline:?}: {what}; last seen: {last}");
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
