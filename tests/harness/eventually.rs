//! Waiting for a condition with a deadline, and showing the last state seen if it never held.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

/// Time between the first two checks; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest time between two checks.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Checks `condition` until it holds, and returns its value.
///
/// As long as it does not hold, the condition returns the state seen (`Err`). A check that takes
/// longer than the time left is cancelled.
pub async fn eventually<T>(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut last = "nothing yet: the first check did not finish".to_owned();
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        match timeout(left, condition()).await {
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
