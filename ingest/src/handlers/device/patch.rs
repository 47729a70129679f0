//! `PATCH /v1/device/{AppID}/{ClientID}`: a change of the profile of one device. `PATCH /v1/device/{AppID}`: of
//! many in one request, one a line.
//!
//! What a change does not name stays. Nothing keeps a request from taking something away.
//!
//! Each line is checked and answered as if it had come alone, so an invalid line affects no other. The lines are
//! changed in portions, in their order, and other requests have their turn between them. Once the index does not
//! answer, it is not asked for the lines behind. If it changed nothing at all, the request is answered as a whole.

use std::collections::HashSet;

use bytes::Bytes;
use hyper::body::Body;
use push_index::{Absent, PatchRefused};
use push_model::{
    app::{AppKey, Scope},
    custom::Declarations,
    device::ProfileDraft,
    ids::ClientId,
    profile::ProfileChange,
    time::UnixMillis,
};
use tokio::time::Instant;

use super::{
    DEVICE, DeviceHandler, NO_USER,
    answers::{Patched, profile_warnings, shortened},
    check_client_id, refuse_left_out,
};
use crate::{
    body::{BodyError, Buffered, Purpose, RequestBody},
    handlers::{
        lines::{count_lines, lines, next_portion},
        media_type::{JSON, NDJSON},
        other_call::success,
    },
    head::Head,
    index_client::Subject,
    message::read_json_body,
    rejection::Rejection,
    reply::{Lines, Reply},
    route::{AppResource, Route},
    settings::LINE_MEMORY,
};

/// A change of a device that passed its checks, and what to say of it.
struct Change {
    change: (ClientId, ProfileChange),
    warnings: Vec<String>,
}

/// Checks a change of a device, whose id is that of the path or else of the body.
fn checked(
    body: &[u8],
    path: Option<&ClientId>,
    declared: &Declarations,
    (is_device, is_strict): (bool, bool),
) -> Result<Change, Rejection> {
    let draft: ProfileDraft<'_> = read_json_body(body).map_err(Rejection::Illegal)?;
    let given = draft.client_id.as_deref();
    let client = match path {
        Some(client) => {
            check_client_id(given, client)?;
            client.clone()
        }
        None => {
            let id = given.ok_or_else(|| Rejection::Illegal("client_id is required".into()))?;
            id.parse().map_err(|bad| Rejection::Illegal(format!("client_id {bad}")))?
        }
    };
    if is_device && draft.user_id.as_ref().is_some_and(Option::is_some) {
        return Err(NO_USER);
    }
    let profile = draft.check(declared).map_err(|bad| Rejection::Illegal(bad.to_string()))?;
    let warnings = profile_warnings(&profile.warnings, declared);
    if is_strict {
        refuse_left_out(&warnings, &profile.change)?;
    }
    Ok(Change { change: (client, profile.change), warnings })
}

impl DeviceHandler {
    /// Changes the profile of a device.
    pub(in crate::handlers) async fn patch(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<Reply, Rejection> {
        let caller = self.authenticate(resource, head, UnixMillis::now()).await?;
        caller.cached.check_in_service()?;
        JSON.check(head).map_err(Rejection::MediaType)?;
        let body = self.read_body(&caller, body).await?;
        let (app, declared) = (caller.app(), &caller.cached.app.attributes);
        let how = (caller.is_device(), head.is_strict());
        let Change { change, warnings } =
            checked(&body.bytes, Some(&caller.client), declared, how)?;
        let patched = self.index.index.patch_devices(&app, std::slice::from_ref(&change));
        let patched = self.index.ask(Subject::device(&app.id, &change.0), patched).await?;
        let patched = self.patched(&app, declared, &change.0, warnings, patched.first())?;
        success(&patched, caller.rate)
    }

    /// Returns the answer to a change.
    fn patched<'c>(
        &self,
        app: &AppKey,
        declared: &Declarations,
        client_id: &'c ClientId,
        mut warnings: Vec<String>,
        outcome: Option<&Result<Absent, PatchRefused>>,
    ) -> Result<Patched<'c>, Rejection> {
        match outcome {
            Some(Ok(absent)) => {
                if !absent.is_empty() {
                    self.note_absent(&app.id, absent, declared);
                }
                warnings.extend(absent.warnings(declared));
                Ok(Patched { client_id, warnings: shortened(warnings) })
            }
            Some(Err(PatchRefused::Unknown)) => Err(Rejection::Unknown(DEVICE)),
            Some(Err(PatchRefused::Unreadable)) => Err(Rejection::Unavailable(
                "the record of the device cannot be read: register it again",
            )),
            None => Err(Rejection::Unavailable("the device index is unavailable")),
        }
    }

    /// Changes the profiles of many devices, and answers each.
    pub(in crate::handlers) async fn patch_many(
        &self,
        app: &str,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<Reply, Rejection> {
        let now = UnixMillis::now();
        let caller = self.logins.authenticate(app, head, Scope::Devices, now).await?;
        let cached = &*caller.cached;
        cached.check_in_service()?;
        if let Some(limits) = &cached.limits
            && let Err(rate) = limits.other_calls.check(Instant::now())
        {
            return Err(cached.refusal(Rejection::TooManyCalls(rate)).await);
        }
        NDJSON.check(head).map_err(Rejection::MediaType)?;
        let http = &self.http;
        let read = body.read_for(&cached.memory, Purpose::Batch, http, BodyError::of_other);
        let Buffered { bytes, mut memory } = read.await?;
        let count = count_lines(&bytes, http.max_batch_lines).map_err(Rejection::from_changes)?;
        memory.grow(count * LINE_MEMORY)?;
        let (allowed, rate) = match &cached.limits {
            Some(limits) => match limits.other_calls.acquire_up_to(count, Instant::now()) {
                (0, rate) => {
                    drop((bytes, memory));
                    return Err(cached.refusal(Rejection::TooManyCalls(rate)).await);
                }
                (allowed, rate) => (allowed, Some(rate)),
            },
            None => (count, None),
        };
        let (app, declared) = (caller.key(), &cached.app.attributes);
        let (mut answers, failure) = {
            let (answers, failure) = (Vec::with_capacity(count), None);
            let mut work = Work { handler: self, app: &app, declared, answers, failure };
            let mut lines = lines(&bytes).take(allowed).peekable();
            while lines.peek().is_some() {
                work.change(next_portion(&mut lines), head.is_strict()).await;
                tokio::task::yield_now().await;
            }
            (work.answers, work.failure)
        };
        drop(bytes);
        if let Some(failure) = failure
            && !answers.iter().any(Result::is_ok)
        {
            return Err(failure);
        }
        if let Some(rate) = rate {
            answers.resize_with(count, || Err(Rejection::TooManyCalls(rate)));
        }
        let mut reply = self.answer_lines(&answers, Lines::of(count, memory));
        if let Some(rate) = rate {
            reply.put_rate(rate);
        }
        Ok(reply)
    }

    fn answer_lines<M: Send + 'static>(
        &self,
        answers: &[Result<(ClientId, Vec<String>), Rejection>],
        mut lines: Lines<M>,
    ) -> Reply {
        let mut succeeded = 0;
        for answer in answers {
            match answer {
                Ok((client_id, warnings)) => {
                    succeeded += 1;
                    lines.succeeded(&Patched { client_id, warnings: warnings.clone() });
                }
                Err(rejection) => {
                    self.metrics.answered_lines(Route::PATCH_LINE, rejection.number(), 1);
                    lines.rejected(rejection);
                }
            }
        }
        self.metrics.answered_lines(Route::PATCH_LINE, 200, succeeded);
        lines.reply()
    }
}

/// The lines of a request in work.
struct Work<'a> {
    handler: &'a DeviceHandler,
    app: &'a AppKey,
    declared: &'a Declarations,
    /// One for each line that was read, in order.
    answers: Vec<Result<(ClientId, Vec<String>), Rejection>>,
    /// Why the index is not asked any more.
    failure: Option<Rejection>,
}

impl Work<'_> {
    /// Checks and changes the devices of a portion. A device that stands in it twice is changed twice, in order.
    async fn change<'l>(&mut self, lines: impl Iterator<Item = &'l [u8]>, is_strict: bool) {
        let (mut changes, mut named) = (Vec::new(), HashSet::new());
        for line in lines {
            let checked = match line.len() > self.handler.http.max_body {
                true => Err(Rejection::TooLarge(self.handler.http.max_body)),
                false => checked(line, None, self.declared, (false, is_strict)),
            };
            match checked {
                Ok(change) => {
                    if !named.insert(change.change.0.clone()) {
                        self.store(std::mem::take(&mut changes)).await;
                        named.clear();
                        named.insert(change.change.0.clone());
                    }
                    changes.push((self.answers.len(), change.warnings, change.change));
                    // Its answer comes when it is stored.
                    self.answers.push(Err(Rejection::Unavailable("the device was not changed")));
                }
                Err(rejection) => self.answers.push(Err(rejection)),
            }
        }
        self.store(changes).await;
    }

    /// Stores changes of different devices, and answers the lines at these places.
    async fn store(&mut self, changes: Vec<(usize, Vec<String>, (ClientId, ProfileChange))>) {
        if changes.is_empty() {
            return;
        }
        let (mut places, mut named) = (Vec::new(), Vec::new());
        for (place, warnings, change) in changes {
            places.push((place, warnings));
            named.push(change);
        }
        let outcomes = match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => {
                let index = &self.handler.index;
                let patched = index.index.patch_devices(self.app, &named);
                index.ask(Subject::app(&self.app.id), patched).await
            }
        };
        if let Err(failure) = &outcomes {
            self.failure = Some(failure.clone());
        }
        for (at, ((place, warnings), (client, _))) in places.into_iter().zip(named).enumerate() {
            let answer = match &outcomes {
                Ok(outcomes) => self
                    .handler
                    .patched(self.app, self.declared, &client, warnings, outcomes.get(at))
                    .map(|patched| patched.warnings)
                    .map(|warnings| (client.clone(), warnings)),
                Err(failure) => Err(failure.clone()),
            };
            if let Some(line) = self.answers.get_mut(place) {
                *line = answer;
            }
        }
    }
}
