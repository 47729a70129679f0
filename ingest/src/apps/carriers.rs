//! The transports that may carry an app's messages: those of which it has devices, and those for which it has
//! an account. They are looked at only for a message that is too large for some transport of an app with
//! accounts, so a count of the index is used for a while.

use std::time::Duration;

use push_model::{app::App, device::TransportKind};
use tokio::{sync::Mutex, time::Instant};

/// The transports of which an app has devices, as the index said last.
#[derive(Debug, Default)]
pub(crate) struct Carriers(Mutex<LastRead>);

#[derive(Debug, Default)]
struct LastRead {
    /// None if the index has not answered yet.
    kinds: Option<Vec<TransportKind>>,
    at: Option<Instant>,
}

impl Carriers {
    /// Returns the transports that may carry messages of this app. The index is asked if the last answer, or
    /// failure, is older than `fresh`; others wait for it meanwhile. Until it answers, the app may have devices of
    /// every transport.
    pub(crate) async fn of<E>(
        &self,
        app: &App,
        fresh: Duration,
        read: impl Future<Output = Result<Vec<TransportKind>, E>>,
    ) -> Vec<TransportKind> {
        let mut last = self.0.lock().await;
        if last.at.is_none_or(|at| at.elapsed() >= fresh) {
            let answer = read.await.ok();
            last.at = Some(Instant::now());
            last.kinds = answer.or(last.kinds.take());
        }
        let has_devices = |kind| last.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind));
        let may_carry =
            |kind: &TransportKind| app.transports.contains_key(kind) || has_devices(*kind);
        TransportKind::ALL.into_iter().filter(may_carry).collect()
    }
}

#[cfg(test)]
mod tests {
    use push_model::{app::ProviderAccount, secret::Secret, time::UnixMillis};

    use super::*;

    const FRESH: Duration = Duration::from_secs(3);

    fn app() -> App {
        let mut app = App::new("a".parse().unwrap(), &Secret::generate(), UnixMillis(0));
        let account =
            ProviderAccount { set_at: UnixMillis(0), summary: "p".into(), sealed: String::new() };
        app.transports.insert(TransportKind::Fcm, account);
        app
    }

    async fn kinds(
        carriers: &Carriers,
        answer: Result<Vec<TransportKind>, ()>,
    ) -> Vec<TransportKind> {
        carriers.of(&app(), FRESH, async { answer }).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_transport_may_carry_messages_if_the_app_has_an_account_or_devices() {
        let carriers = Carriers::default();
        assert_eq!(kinds(&carriers, Ok(vec![])).await, [TransportKind::Fcm]);
        assert_eq!(
            kinds(&carriers, Ok(vec![TransportKind::Mqtt])).await,
            [TransportKind::Fcm],
            "the last answer is still used"
        );
        tokio::time::advance(FRESH).await;
        let both = [TransportKind::Mqtt, TransportKind::Fcm];
        assert_eq!(kinds(&carriers, Ok(vec![TransportKind::Mqtt])).await, both);
        tokio::time::advance(FRESH).await;
        assert_eq!(kinds(&carriers, Err(())).await, both, "nothing newer is known");
    }

    #[tokio::test(start_paused = true)]
    async fn until_the_index_answers_an_app_may_have_any_device_and_the_index_is_asked_seldom() {
        let carriers = Carriers::default();
        assert_eq!(kinds(&carriers, Err(())).await, TransportKind::ALL);
        assert_eq!(kinds(&carriers, Ok(vec![])).await, TransportKind::ALL);
        tokio::time::advance(FRESH).await;
        assert_eq!(kinds(&carriers, Ok(vec![])).await, [TransportKind::Fcm]);
    }
}
