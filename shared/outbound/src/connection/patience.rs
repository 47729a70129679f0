//! Waiting for an answer until a deadline.

use std::{pin::pin, time::Duration};

use tokio::time::{Instant, timeout, timeout_at};

/// The time behind a deadline in which an answer that has arrived is still read. A process that was
/// frozen, or had no processor, finds that deadlines have passed before it has read what came
/// meanwhile. Without this it would send again what was answered long ago.
const READ_LATE: Duration = Duration::from_millis(100);

/// Waits for the work until the deadline; `None` if it is not done then.
pub(crate) async fn by<F: Future>(deadline: Instant, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    if let Ok(done) = timeout_at(deadline, work.as_mut()).await {
        return Some(done);
    }
    timeout(READ_LATE, work).await.ok()
}

/// The deadline of a body whose headers were just read: the rest of a late answer is read too.
pub(crate) fn at_least_late(deadline: Instant) -> Instant {
    deadline.max(Instant::now() + READ_LATE)
}
