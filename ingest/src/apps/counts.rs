//! An app's counts of audiences: one is made at a time, and the last one is used again for a few seconds, so that
//! a caller who asks again and again for the same audience costs the index little.

use std::{sync::Arc, time::Duration};

use push_model::{audience::AudienceCounts, message::Audience};
use ring::digest::{SHA256, digest};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::Instant,
};

/// The time for which a count is used again.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// The last count of an app's audience. Locked while one is made.
#[derive(Debug, Default)]
pub(crate) struct LastCount(Arc<Mutex<Option<Kept>>>);

#[derive(Debug)]
struct Kept {
    /// The digest of the audience, which may be large.
    audience: [u8; 32],
    counted_at: Instant,
    counts: AudienceCounts,
}

/// The app's turn to count.
pub(crate) struct CountTurn {
    last: OwnedMutexGuard<Option<Kept>>,
    audience: [u8; 32],
}

impl LastCount {
    /// Waits until no other count of the app is made.
    pub(crate) async fn turn(&self, audience: &Audience) -> CountTurn {
        let audience = digest_of(audience);
        CountTurn { last: Arc::clone(&self.0).lock_owned().await, audience }
    }
}

impl CountTurn {
    /// Returns the counts of this audience if they were made a short time ago.
    pub(crate) fn kept(&self, now: Instant) -> Option<AudienceCounts> {
        let last = self.last.as_ref().filter(|last| last.audience == self.audience)?;
        let is_fresh = now.saturating_duration_since(last.counted_at) < KEPT_FOR;
        is_fresh.then(|| last.counts.clone())
    }

    /// Keeps the counts of this audience.
    pub(crate) fn keep(mut self, counts: AudienceCounts, now: Instant) {
        *self.last = Some(Kept { audience: self.audience, counted_at: now, counts });
    }
}

/// The JSON of an audience is one text: its lists are sorted, and no value repeats.
fn digest_of(audience: &Audience) -> [u8; 32] {
    let json = serde_json::to_vec(audience).unwrap_or_default();
    digest(&SHA256, &json).as_ref().try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use push_model::{attributes::Attribute, targeting::Targeting};

    use super::*;

    fn audience(country: &str) -> Audience {
        let mut targeting = Targeting::all_devices();
        targeting.set(Attribute::Country, vec![country.into()]);
        Audience::Targeting(targeting)
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_is_used_again_for_its_audience_only_and_not_for_long() {
        let (last, sg, now) = (LastCount::default(), audience("SG"), Instant::now());
        let counts = AudienceCounts { devices: 7, ..AudienceCounts::default() };
        let turn = last.turn(&sg).await;
        assert_eq!(turn.kept(now), None);
        assert!(last.turn(&sg).now_or_never().is_none(), "one count at a time");
        turn.keep(counts.clone(), now);

        let turn = last.turn(&sg).await;
        assert_eq!(turn.kept(now + KEPT_FOR / 2), Some(counts));
        assert_eq!(turn.kept(now + KEPT_FOR), None);
        drop(turn);
        assert_eq!(last.turn(&audience("DE")).await.kept(now), None);
        assert_eq!(last.turn(&Audience::All).await.kept(now), None);
    }
}
