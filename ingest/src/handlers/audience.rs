//! `POST /v1/audience/{AppID}`: how many devices a push with this condition would target.
//!
//! The body is that of a push, of which only `condition` is looked at, and its faults are those of a push.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::body::Body;
use push_index::count_audience;
use push_model::{
    app::{AppKey, Scope},
    audience::AudienceReport,
    ids::AppId,
    message::Audience,
    time::UnixMillis,
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout},
};

use super::{
    media_type::JSON,
    other_call::{acquire_call, success},
    user_devices::UserDevices,
};
use crate::{
    apps::{CachedApp, CountTurn, Logins},
    body::{BodyError, Purpose, RequestBody, Reservation},
    head::Head,
    index_client::{IndexClient, Subject},
    message::{AppRules, read_audience},
    rejection::Rejection,
    reply::Reply,
    settings::{HttpSettings, Rules},
};

/// The most audiences that are counted concurrently, of all apps. Each asks the index for one slice at a time.
pub(super) const COUNTS_AT_ONCE: usize = 2;

/// The time limit of a count, without the wait for its turn.
const COUNT_TIME: Duration = Duration::from_secs(10);

/// Answers how many devices a push would target.
#[derive(Debug)]
pub(super) struct AudienceHandler {
    pub(super) logins: Arc<Logins>,
    pub(super) index: Arc<IndexClient>,
    pub(super) http: Arc<HttpSettings>,
    pub(super) rules: Rules,
    /// Has [`COUNTS_AT_ONCE`] permits.
    pub(super) places: Semaphore,
}

impl AudienceHandler {
    pub(super) async fn count(
        &self,
        app: &str,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<Reply, Rejection> {
        let now = UnixMillis::now();
        let caller = self.logins.authenticate(app, head, Scope::Read, now).await?;
        let cached = &caller.cached;
        let rate = acquire_call(cached).await?;
        JSON.check(head).map_err(Rejection::MessageMediaType)?;
        success(&self.report(cached, &caller.app, body).await?, rate)
    }

    /// Counts for a program that vouches for its user in place of a secret.
    pub(super) async fn count_locally(
        &self,
        app: &AppKey,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<Reply, Rejection> {
        let caller = self.logins.vouch(app, "").await?;
        success(&self.report(&caller.cached, &app.id, body).await?, None)
    }

    /// Makes another count of an app's devices for a part of this program, under the same bounds: in turn with the app's
    /// audiences, in a place of theirs, and within their time limit.
    pub(super) async fn count_other<T>(
        &self,
        app: &AppKey,
        count: impl Future<Output = T>,
    ) -> Result<T, Rejection> {
        let caller = self.logins.vouch(app, "").await?;
        let _turn = self.turn(&caller.cached, &Audience::All).await?;
        let _place = self.place().await?;
        let late = |_| Rejection::Unavailable("the devices were not counted in time");
        timeout(COUNT_TIME, count).await.map_err(late)
    }

    /// Waits until no other count of the app is made.
    async fn turn(&self, app: &CachedApp, audience: &Audience) -> Result<CountTurn, Rejection> {
        let turn = timeout(self.index.timeout, app.counts.turn(audience)).await;
        turn.map_err(|_| Rejection::Unavailable("the app counts another audience"))
    }

    /// Waits for a place among the counts of all apps.
    async fn place(&self) -> Result<SemaphorePermit<'_>, Rejection> {
        let place = timeout(self.index.timeout, self.places.acquire()).await;
        let busy = Rejection::Unavailable("too many audiences are counted");
        place.ok().and_then(Result::ok).ok_or(busy)
    }

    async fn report(
        &self,
        cached: &CachedApp,
        app: &AppId,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<AudienceReport, Rejection> {
        let read =
            body.read_for(&cached.memory, Purpose::Single, &self.http, BodyError::of_message);
        let mut body = read.await?;
        let rules = AppRules { limits: self.rules, attributes: &cached.app.attributes };
        let mut wanted = read_audience(&body.bytes, rules)?;
        let key = AppKey::from(&cached.app);
        if !wanted.users.is_empty() {
            let mut found = Reservation::empty(&cached.memory, Purpose::Single);
            let (asked, most) = (std::iter::once(&wanted), self.rules.max_client_ids);
            let devices = UserDevices::of(&self.index, &key, asked, most, &mut found).await;
            devices.add_to(&mut wanted, most, &mut body.memory)?;
        }
        let audience = wanted.audience;

        let turn = self.turn(cached, &audience).await?;
        let kept = turn.kept(Instant::now());
        let counts = match kept {
            Some(counts) => counts,
            None => {
                let _place = self.place().await?;
                let count = count_audience(&*self.index.index, &key, &audience);
                let late = "the audience was not counted in time";
                let subject = Subject::app(app);
                let counts = self.index.ask_for_much(subject, count, COUNT_TIME, late).await?;
                turn.keep(counts.clone(), Instant::now());
                counts
            }
        };
        Ok(AudienceReport::of(counts, cached.app.pace))
    }
}
