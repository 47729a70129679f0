//! `PUT`, `GET` and `DELETE /v1/device/{AppID}/{ClientID}`.
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

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::body::Body;
use push_credentials::{DeviceCredentials, MqttLogin};
use push_index::{Put, PutRefused};
use push_model::{
    app::{AppKey, Scope},
    device::{CheckedDevice, Device, DeviceDraft, TransportKind},
    ids::ClientId,
    profile::{DeviceWrite, ProfileChange},
    registration::RegistrationEpoch,
    time::UnixMillis,
};
use push_providers::by_kind::{shown_device, stored_device};
use ring::rand::SystemRandom;
use serde::Serialize;

use super::{
    full_dictionaries::FullDictionaries,
    media_type::JSON,
    other_call::{acquire_call, success},
};
use crate::{
    allowance::RateStatus,
    apps::{COUNT_PAUSE, CachedApp, Caller, DevicePlace, Logins},
    body::{BodyError, Purpose, RequestBody},
    head::Head,
    index_client::{IndexClient, Subject},
    message::read_json_body,
    metrics::Metrics,
    rejection::Rejection,
    reply::Reply,
    route::AppResource,
    settings::HttpSettings,
};

const DEVICE: &str = "device";

#[derive(Serialize)]
struct Removed<'a> {
    client_id: &'a ClientId,
}

#[derive(Serialize)]
struct Registered<'a> {
    #[serde(flatten)]
    device: &'a Device,
    #[serde(skip_serializing_if = "Option::is_none")]
    mqtt: Option<MqttLogin>,
    /// Warnings for the sender, such as attributes that are stored as absent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Answers the calls for devices.
#[derive(Debug)]
pub(super) struct DeviceHandler {
    pub(super) logins: Arc<Logins>,
    pub(super) index: Arc<IndexClient>,
    pub(super) http: Arc<HttpSettings>,
    /// Signs the MQTT logins of devices.
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
        let (cached, client, rate) = self.authenticate(resource, head, now).await?;
        cached.check_in_service()?;
        JSON.check(head).map_err(Rejection::MediaType)?;
        let http = &self.http;
        let read = body.read_for(&cached.memory, Purpose::Single, http, BodyError::of_other);
        let body = read.await?;
        let draft: DeviceDraft<'_> = read_json_body(&body.bytes).map_err(Rejection::Illegal)?;
        if draft.client_id.as_ref().is_some_and(|id| **id != *client.as_str()) {
            let problem = "client_id must be the one in the path, or absent";
            return Err(Rejection::Illegal(problem.into()));
        }
        let CheckedDevice { device, warnings } =
            draft.check(client).map_err(|bad| Rejection::Illegal(bad.to_string()))?;
        let device = stored_device(device, &self.random)
            .map_err(|bad| Rejection::Illegal(bad.to_string()))?;
        let mut warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        let account = cached.app.check_account(device.transport);
        warnings.extend(account.err().map(|warning| warning.to_string()));
        if device.transport == TransportKind::Mqtt && !self.over_mqtt {
            warnings.push("this service delivers nothing over mqtt: set transport".to_owned());
        }
        let app = AppKey::from(&cached.app);
        // Boxed: most apps have no quota, and it would be part of every connection.
        let place = match self.quota(&cached) {
            Some(most) => Box::pin(self.place(&cached, &app, &device, most)).await?,
            None => None,
        };
        let write = DeviceWrite { device: device.clone(), change: ProfileChange::default() };
        let put = self.index.index.register(&app, &write, now);
        let put = self.index.ask(Subject::device(&app.id, &device.client_id), put).await?;
        let is_new = put.as_ref().is_ok_and(|(put, _)| put.is_new());
        if let Some(place) = place
            && !is_new
        {
            place.give_back();
        }
        match put {
            Ok(put) => self.registered(&app, device, put, warnings, rate, now),
            Err(refused @ PutRefused::IndexFull) => Err(Rejection::NoRoom(refused.to_string())),
            // The cached record belongs to an app that was removed.
            Err(PutRefused::AppRemoved) => {
                self.logins.invalidate(&app.id);
                Err(Rejection::SecretIllegal)
            }
        }
    }

    /// Answers a registration with the record as it was stored and, for an MQTT device, its login.
    fn registered(
        &self,
        app: &AppKey,
        mut device: Device,
        (put, epoch): (Put, RegistrationEpoch),
        mut warnings: Vec<String>,
        rate: Option<RateStatus>,
        now: UnixMillis,
    ) -> Result<Reply, Rejection> {
        let absent = put.absent().attributes;
        if !absent.is_empty() {
            self.metrics.absent(absent);
            self.dictionaries_full.log(&app.id, absent);
        }
        for attribute in absent.iter() {
            device.attributes.unset(attribute);
            warnings.push(format!(
                "{} is stored as absent: the devices of this app have too many different values of it",
                attribute.name()
            ));
        }
        let credentials =
            self.credentials.as_ref().filter(|_| device.transport == TransportKind::Mqtt);
        let issue =
            |credentials: &DeviceCredentials| credentials.issue(app, &device.client_id, epoch, now);
        let login = credentials.map(issue);
        let mqtt = login.transpose().map_err(|error| {
            tracing::error!(
                runbook = "keys-or-certificates-cannot-be-read",
                app = %app.id,
                client_id = %device.client_id,
                error = &error as &dyn std::error::Error,
                "no MQTT login can be issued"
            );
            Rejection::Unavailable("the device is registered, but no MQTT login can be issued")
        })?;
        success(&Registered { device: &shown_device(device), mqtt, warnings }, rate)
    }

    /// Shows a device.
    pub(super) async fn get(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let (cached, client, rate) = self.authenticate(resource, head, UnixMillis::now()).await?;
        let app = AppKey::from(&cached.app);
        let device = self.index.index.device(&app, &client);
        let device = self.index.ask(Subject::device(&app.id, &client), device).await?;
        success(&shown_device(device.ok_or(Rejection::Unknown(DEVICE))?), rate)
    }

    /// Removes a device.
    pub(super) async fn delete(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let (cached, client, rate) = self.authenticate(resource, head, UnixMillis::now()).await?;
        cached.check_in_service()?;
        let app = AppKey::from(&cached.app);
        let removal = self.index.index.remove_device(&app, &client);
        if !self.index.ask(Subject::device(&app.id, &client), removal).await? {
            return Err(Rejection::Unknown(DEVICE));
        }
        cached.devices.removed();
        success(&Removed { client_id: &client }, rate)
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

    /// Returns the app, the client id of the path and the rest of the app's rate limit, if the
    /// request has a secret for devices. Reading a device needs it as well, because the record holds
    /// the device's token.
    async fn authenticate(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
        now: UnixMillis,
    ) -> Result<(Arc<CachedApp>, ClientId, Option<RateStatus>), Rejection> {
        let Caller { cached, .. } =
            self.logins.authenticate(&resource.app, head, Scope::Devices, now).await?;
        let rate = acquire_call(&cached).await?;
        let client = resource.id.parse();
        let client = client.map_err(|bad| Rejection::Illegal(format!("the Client ID {bad}")))?;
        Ok((cached, client, rate))
    }
}
