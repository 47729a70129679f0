//! `PUT`, `GET` and `DELETE /v1/device/{AppID}/{ClientID}`.
//!
//! An attribute whose text cannot be read is stored as absent and named in the answer's warnings.
//!
//! A disabled app cannot push, but its devices can still be registered and removed. The app's rate
//! limit counts these calls, apart from pushes. If it has a quota of devices, a new device beyond it
//! is refused; what is registered can be changed and removed. An attribute whose value has no room in the
//! app's dictionaries is stored as absent, and the answer warns. Of an app that went to another store
//! nothing is changed here, because the change would be lost.

use std::{num::NonZeroU32, sync::Arc};

use bytes::Bytes;
use hyper::body::Body;
use push_credentials::{DeviceCredentials, MqttLogin};
use push_index::{Put, PutRefused};
use push_model::{
    app::{AppKey, Scope},
    device::{CheckedDevice, Device, DeviceDraft, TransportKind},
    ids::ClientId,
    registration::RegistrationEpoch,
    time::UnixMillis,
};
use serde::Serialize;

use super::{
    authentication::Caller,
    body::unread_body,
    context::Handlers,
    index_request::Subject,
    media_type::JSON,
    other_call::{acquire_call, success},
};
use crate::{
    apps::{COUNT_PAUSE, CachedApp, DevicePlace, Quota},
    body::{Purpose, RequestBody},
    head::Head,
    message::read_json_body,
    rejection::Rejection,
    reply::Reply,
    route::AppResource,
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

impl Handlers {
    pub(super) async fn put_device(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
    ) -> Result<Reply, Rejection> {
        let now = UnixMillis::now();
        let (cached, client, quota) = self.authenticate_device(resource, head, now).await?;
        cached.check_in_service()?;
        JSON.check(head).map_err(Rejection::MediaType)?;
        let body = self.read_body(&cached, Purpose::Single, body, unread_body).await?;
        let draft: DeviceDraft<'_> = read_json_body(&body.bytes).map_err(Rejection::Illegal)?;
        if draft.client_id.as_ref().is_some_and(|id| **id != *client.as_str()) {
            let problem = "client_id must be the one in the path, or absent";
            return Err(Rejection::Illegal(problem.into()));
        }
        let CheckedDevice { device, warnings } =
            draft.check(client).map_err(|bad| Rejection::Illegal(bad.to_string()))?;
        let warnings = warnings.iter().map(ToString::to_string).collect();
        let app = AppKey::from(&cached.app);
        // Boxed: most apps have no quota, and it would be part of every connection.
        let place = match self.device_quota(&cached) {
            Some(most) => Box::pin(self.device_place(&cached, &app, &device, most)).await?,
            None => None,
        };
        let put = self.index.register(&app, &device, now);
        let put = self.ask_index(Subject::device(&app.id, &device.client_id), put).await?;
        let is_new = put.is_ok_and(|(put, _)| put.is_new());
        if let Some(place) = place
            && !is_new
        {
            place.give_back();
        }
        match put {
            Ok(put) => self.registered(&app, device, put, warnings, quota, now),
            Err(refused @ PutRefused::IndexFull) => Err(Rejection::NoRoom(refused.to_string())),
            // The cached record is of an app that was removed.
            Err(PutRefused::AppRemoved) => {
                self.logins.invalidate(&app.id);
                Err(Rejection::SecretIllegal)
            }
        }
    }

    /// The record as it was stored, for an MQTT device what it logs in with, and what to say about it.
    fn registered(
        &self,
        app: &AppKey,
        mut device: Device,
        (put, epoch): (Put, RegistrationEpoch),
        mut warnings: Vec<String>,
        quota: Option<Quota>,
        now: UnixMillis,
    ) -> Result<Reply, Rejection> {
        let absent = put.absent();
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
        let credentials = self.settings.device_credentials.as_ref();
        let credentials = credentials.filter(|_| device.transport == TransportKind::Mqtt);
        let issue =
            |credentials: &DeviceCredentials| credentials.issue(app, &device.client_id, epoch, now);
        let login = credentials.map(issue);
        let mqtt = login.transpose().map_err(|error| {
            tracing::error!(
                app = %app.id,
                client_id = %device.client_id,
                error = &error as &dyn std::error::Error,
                "no MQTT login can be issued"
            );
            Rejection::Unavailable("the device is registered, but no MQTT login can be issued")
        })?;
        success(&Registered { device: &device, mqtt, warnings }, quota)
    }

    pub(super) async fn get_device(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let (cached, client, quota) =
            self.authenticate_device(resource, head, UnixMillis::now()).await?;
        let app = AppKey::from(&cached.app);
        let device = self.index.device(&app, &client);
        let device = self.ask_index(Subject::device(&app.id, &client), device).await?;
        success(&device.ok_or(Rejection::Unknown(DEVICE))?, quota)
    }

    pub(super) async fn delete_device(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let (cached, client, quota) =
            self.authenticate_device(resource, head, UnixMillis::now()).await?;
        cached.check_in_service()?;
        let app = AppKey::from(&cached.app);
        let removal = self.index.remove_device(&app, &client);
        if !self.ask_index(Subject::device(&app.id, &client), removal).await? {
            return Err(Rejection::Unknown(DEVICE));
        }
        cached.devices.removed();
        success(&Removed { client_id: &client }, quota)
    }

    /// How many devices the app may have.
    fn device_quota(&self, cached: &CachedApp) -> Option<NonZeroU32> {
        cached.app.max_devices.or_default(self.settings.apps.max_devices)
    }

    /// A place for a device, if it is new; none if it is registered already, because a change is
    /// always possible.
    async fn device_place<'a>(
        &self,
        cached: &'a CachedApp,
        app: &AppKey,
        device: &Device,
        most: NonZeroU32,
    ) -> Result<Option<DevicePlace<'a>>, Rejection> {
        let (usage, fresh) = (&cached.devices, self.settings.apps.fresh);
        let subject = Subject::device(&app.id, &device.client_id);
        let ask = || self.ask_index(subject, self.index.count_devices(app));
        let count = |max_age| usage.count(max_age, ask());
        count(fresh).await?;
        if let Some(place) = usage.place(most) {
            return Ok(Some(place));
        }
        if self.ask_index(subject, self.index.device(app, &device.client_id)).await?.is_some() {
            return Ok(None);
        }
        count(fresh.min(COUNT_PAUSE)).await?;
        let place = usage.place(most).map(Some);
        place.ok_or_else(|| Rejection::DevicesUsedUp { app: app.id.clone(), most })
    }

    /// The app and the client id of the path, and what is left of the app's rate limit, if the
    /// request has a secret for devices. Reading a device needs it as well, because the record holds
    /// the device's token.
    async fn authenticate_device(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
        now: UnixMillis,
    ) -> Result<(Arc<CachedApp>, ClientId, Option<Quota>), Rejection> {
        let Caller { cached, .. } =
            self.authenticate(&resource.app, head, Scope::Devices, now).await?;
        let quota = acquire_call(&cached).await?;
        let client = resource.id.parse();
        let client = client.map_err(|bad| Rejection::Illegal(format!("the Client ID {bad}")))?;
        Ok((cached, client, quota))
    }
}
