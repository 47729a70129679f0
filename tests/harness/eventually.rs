//! Waiting for a condition with a deadline, and saying what was seen last when it never held.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

/// Time between two looks at first; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest time between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Looks at `condition` until it holds, and gives its value.
///
/// The condition answers with what it saw instead (`Err`) as long as it does not hold. A look
/// that takes longer than the time left is cut off.
///
/// # Panics
/// After `deadline`, with the last state seen.
pub async fn eventually<T>(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut last = "nothing yet: the first look did not finish".to_owned();
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
