//! A bound on log lines for events that a client causes: one line a minute.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

const PAUSE: Duration = Duration::from_mins(1);

/// Decides which events of one kind are logged.
#[derive(Debug, Default)]
pub struct LogPause(Mutex<LastLogged>);

#[derive(Debug, Default)]
struct LastLogged {
    logged_at: Option<Instant>,
    unlogged: u64,
}

impl LogPause {
    /// Notes an event. If it is to be logged, returns how many before it were not.
    pub fn due(&self) -> Option<u64> {
        let (mut state, now) =
            (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        if state.logged_at.is_some_and(|at| now.saturating_duration_since(at) < PAUSE) {
            state.unlogged += 1;
            return None;
        }
        state.logged_at = Some(now);
        Some(std::mem::take(&mut state.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_event_a_minute_is_logged_with_the_number_of_those_that_were_not() {
        let pause = LogPause::default();
        assert_eq!([pause.due(), pause.due(), pause.due()], [Some(0), None, None]);
        tokio::time::advance(PAUSE).await;
        assert_eq!([pause.due(), pause.due()], [Some(2), None]);
    }
}
