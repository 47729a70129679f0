//! `PUT`, `GET`, `PATCH` and `DELETE /v1/device/{AppID}/{ClientID}`, and `PATCH /v1/device/{AppID}`.
//!
//! An attribute whose text cannot be read is stored as absent and named in the answer's warnings. A token is
//! checked by the provider of its transport. A transport for which the app has no account is accepted, with a
//! warning: the account may come later.
//!
//! A disabled app cannot push, but its devices can still be registered and removed. The app's rate
//! limit counts these calls, apart from pushes. If it has a quota of devices, a new device beyond it
//! is refused; what is registered can be changed and removed. An attribute whose value has no room in the
//! app's dictionaries is stored as absent, and the answer warns. Of an app that went to another store
//! nothing is changed here, because the change would be lost.
//!
//! A registration keeps the parts of the profile that it does not name: attributes of the app's own, topics, and
//! the user. `Prefer: handling=strict` refuses what would be left out otherwise; that there is no room shows only
//! once the rest is stored, and stays a warning.
//!
//! - `answers`: the answers, and their warnings
//! - `caller`: a secret or the device's own token
//! - `patch`: changes of one profile, and of many in one request

mod answers;
mod caller;
mod patch;

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::body::Body;
use push_boot::network::counters::Counters;
use push_credentials::{DeviceCredentials, IssueError};
use push_index::{Absent, Put, PutRefused};
use push_model::{
    app::AppKey,
    custom::Declarations,
    device::{BadDevice, CheckedDevice, Device, DeviceDraft, ShownDevice, TransportKind},
    ids::{AppId, ClientId},
    profile::{DeviceWrite, Profile, ProfileChange},
    registration::RegistrationEpoch,
    time::UnixMillis,
};
use push_providers::by_kind::{shown_device, stored_device};
use ring::rand::SystemRandom;

pub(super) use self::caller::{CALL_COUNTERS, DEVICE_CALLS};
use self::{
    answers::{Registered, Removed, profile_warnings, shortened, without_room},
    caller::DeviceCaller,
};
use super::{full_dictionaries::FullDictionaries, media_type::JSON, other_call::success};
use crate::{
    apps::{COUNT_PAUSE, CachedApp, DevicePlace, Logins},
    body::{BodyError, RequestBody},
    head::Head,
    index_client::{IndexClient, Subject},
    message::read_json_body,
    metrics::Metrics,
    rejection::Rejection,
    reply::Reply,
    route::AppResource,
    settings::HttpSettings,
};

pub(super) const DEVICE: &str = "device";

/// A device may not say whose it is: it would get what is meant for that user.
const NO_USER: Rejection = Rejection::Forbidden(
    "a device may not set its user_id: the app's backend sets it, with a secret of the app",
);

/// Answers the calls for devices.
#[derive(Debug)]
pub(super) struct DeviceHandler {
    pub(super) logins: Arc<Logins>,
    pub(super) index: Arc<IndexClient>,
    pub(super) http: Arc<HttpSettings>,
    /// Signs the MQTT logins of devices and the tokens for their records.
    pub(super) credentials: Option<DeviceCredentials>,
    /// True if workers reach devices over MQTT.
    pub(super) over_mqtt: bool,
    /// The most devices of an app whose record does not say it.
    pub(super) max_devices: Option<NonZeroU32>,
    /// The time for which a count of devices is used.
    pub(super) fresh: Duration,
    pub(super) dictionaries_full: FullDictionaries,
    pub(super) metrics: Arc<Metrics>,
    /// For the checks of tokens.
    pub(super) random: SystemRandom,
    /// How often each device calls.
    pub(super) calls: Counters,
}

impl DeviceHandler {
    /// Registers a device.
    pub(super) async fn put(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<Reply, Rejection> {
        let now = UnixMillis::now();
        let caller = self.authenticate(resource, head, now).await?;
        let cached = &*caller.cached;
        cached.check_in_service()?;
        JSON.check(head).map_err(Rejection::MediaType)?;
        let body = self.read_body(&caller, body).await?;
        let draft: DeviceDraft<'_> = read_json_body(&body.bytes).map_err(Rejection::Illegal)?;
        check_client_id(draft.client_id.as_deref(), &caller.client)?;
        if caller.is_device() && draft.user_id.is_some() {
            return Err(NO_USER);
        }
        let declared = &cached.app.attributes;
        let illegal = |bad: BadDevice| Rejection::Illegal(bad.to_string());
        let profile = draft.check_profile(declared).map_err(illegal)?;
        let CheckedDevice { device, warnings } =
            draft.check(caller.client.clone()).map_err(illegal)?;
        let device = stored_device(device, &self.random).map_err(illegal)?;
        let mut warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        warnings.extend(profile_warnings(&profile.warnings, declared));
        if head.is_strict() {
            refuse_left_out(&warnings, &profile.change)?;
        }
        let account = cached.app.check_account(device.transport);
        warnings.extend(account.err().map(|warning| warning.to_string()));
        if device.transport == TransportKind::Mqtt && !self.over_mqtt {
            warnings.push("this service delivers nothing over mqtt: set transport".to_owned());
        }
        let app = caller.app();
        // Boxed: most apps have no quota, and it would be part of every connection.
        let place = match self.quota(cached).filter(|_| !caller.is_device()) {
            Some(most) => Box::pin(self.place(cached, &app, &device, most)).await?,
            None => None,
        };
        let write = DeviceWrite { device, change: profile.change };
        // A device does not come back by itself if it was removed since its token was checked.
        let put = self.index.index.register(&app, &write, caller.registration, now);
        let put = self.index.ask(Subject::device(&app.id, &caller.client), put).await?;
        if let Some(place) = place
            && !put.as_ref().is_ok_and(|(put, _)| put.is_new())
        {
            place.give_back();
        }
        match put {
            Ok(put) => self.registered(&caller, write, put, warnings, now),
            Err(refused @ PutRefused::IndexFull) => Err(Rejection::NoRoom(refused.to_string())),
            // The cached record belongs to an app that was removed.
            Err(PutRefused::AppRemoved) => {
                self.logins.invalidate(&app.id);
                Err(Rejection::SecretIllegal)
            }
            Err(PutRefused::NotRegistered) => Err(Rejection::Unknown(DEVICE)),
        }
    }

    /// Answers a registration with what was stored of it, and with what the device proves itself with.
    fn registered(
        &self,
        caller: &DeviceCaller,
        DeviceWrite { mut device, change }: DeviceWrite,
        (put, epoch): (Put, RegistrationEpoch),
        mut warnings: Vec<String>,
        now: UnixMillis,
    ) -> Result<Reply, Rejection> {
        let app = caller.app();
        let absent = put.absent();
        let declared = &caller.cached.app.attributes;
        if !absent.is_empty() {
            self.note_absent(&app.id, &absent, declared);
        }
        warnings.extend(absent.warnings(declared));
        device.profile = stored_profile(&change, &absent);
        for attribute in absent.attributes.iter() {
            device.attributes.unset(attribute);
        }
        let is_over_mqtt = device.transport == TransportKind::Mqtt;
        let logins = self.credentials.as_ref().map(|credentials| {
            let mqtt = is_over_mqtt.then(|| credentials.issue(&app, &device.client_id, epoch, now));
            let access = credentials.issue_for_record(&app, &device.client_id, epoch, now)?;
            Ok((mqtt.transpose()?, access))
        });
        let logins = logins.transpose().map_err(|error: IssueError| {
            tracing::error!(
                runbook = "keys-or-certificates-cannot-be-read",
                app = %app.id,
                client_id = %device.client_id,
                error = &error as &dyn std::error::Error,
                "no login can be issued to a device"
            );
            Rejection::Unavailable("the device is registered, but no login can be issued")
        })?;
        let (mqtt, access) = match logins {
            Some((mqtt, access)) => (mqtt, Some(access)),
            None => (None, None),
        };
        let (device, warnings) = (shown_device(device), shortened(warnings));
        let device = ShownDevice::new(&device, declared);
        success(&Registered { device, mqtt, access, warnings }, caller.rate)
    }

    /// Counts and logs what there was no room for.
    fn note_absent(&self, app: &AppId, absent: &Absent, declared: &Declarations) {
        self.metrics.absent(absent);
        let names = without_room(absent, declared);
        if !names.is_empty() {
            self.dictionaries_full.log(app, &names);
        }
    }

    /// Shows a device.
    pub(super) async fn get(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let caller = self.authenticate(resource, head, UnixMillis::now()).await?;
        let app = caller.app();
        let device = self.index.index.device(&app, &caller.client);
        let device = self.index.ask(Subject::device(&app.id, &caller.client), device).await?;
        let device = shown_device(device.ok_or(Rejection::Unknown(DEVICE))?);
        success(&ShownDevice::new(&device, &caller.cached.app.attributes), caller.rate)
    }

    /// Removes a device.
    pub(super) async fn delete(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let caller = self.authenticate(resource, head, UnixMillis::now()).await?;
        let DeviceCaller { cached, client, rate, .. } = &caller;
        cached.check_in_service()?;
        let app = caller.app();
        let removal = self.index.index.remove_device(&app, client);
        if !self.index.ask(Subject::device(&app.id, client), removal).await? {
            return Err(Rejection::Unknown(DEVICE));
        }
        cached.devices.removed();
        success(&Removed { client_id: client }, *rate)
    }

    fn quota(&self, cached: &CachedApp) -> Option<NonZeroU32> {
        cached.app.max_devices.or_default(self.max_devices)
    }

    /// Returns a place for a device if it is new, or none if it is registered already, because a change
    /// is always possible.
    async fn place<'a>(
        &self,
        cached: &'a CachedApp,
        app: &AppKey,
        device: &Device,
        most: NonZeroU32,
    ) -> Result<Option<DevicePlace<'a>>, Rejection> {
        let (usage, fresh) = (&cached.devices, self.fresh);
        let subject = Subject::device(&app.id, &device.client_id);
        let ask = || self.index.ask(subject, self.index.index.count_devices(app));
        let count = |max_age| usage.count(max_age, ask());
        count(fresh).await?;
        if let Some(place) = usage.place(most) {
            return Ok(Some(place));
        }
        if self.index.ask(subject, self.index.index.device(app, &device.client_id)).await?.is_some()
        {
            return Ok(None);
        }
        count(fresh.min(COUNT_PAUSE)).await?;
        let place = usage.place(most).map(Some);
        place.ok_or_else(|| Rejection::DevicesUsedUp { app: app.id.clone(), most })
    }
}

/// Checks that the client id in a body is that of the path.
fn check_client_id(given: Option<&str>, client: &ClientId) -> Result<(), Rejection> {
    match given {
        Some(id) if id != client.as_str() => {
            Err(Rejection::Illegal("client_id must be the one in the path, or absent".into()))
        }
        _ => Ok(()),
    }
}

/// Refuses a request of which a part would be left out, as far as the request shows it.
fn refuse_left_out(warnings: &[String], change: &ProfileChange) -> Result<(), Rejection> {
    let (_, topics_beyond) = change.apply(&Profile::default());
    let beyond = Absent { topics_beyond, ..Absent::default() };
    let warnings = warnings.iter().cloned().chain(beyond.warnings(&Declarations::default()));
    let warnings = shortened(warnings.collect());
    if warnings.is_empty() { Ok(()) } else { Err(Rejection::Illegal(warnings.join(", and "))) }
}

/// Returns what a registration stored of the profile that it names. Which topics had no room is not known, so
/// none are shown then.
fn stored_profile(change: &ProfileChange, absent: &Absent) -> Profile {
    let (mut profile, _) = change.apply(&Profile::default());
    profile.custom.retain(|(id, _)| !absent.custom.contains(id));
    if absent.topics + absent.topics_beyond > 0 {
        profile.topics.clear();
    }
    profile.user_id = profile.user_id.filter(|_| !absent.user_id);
    profile
}
