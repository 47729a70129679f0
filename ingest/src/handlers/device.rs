//! `PUT`, `GET` and `DELETE /v1/device/{AppID}/{ClientID}`.
//!
//! A disabled app cannot push, but its devices can still be registered and removed.

use bytes::Bytes;
use hyper::body::Body;
use push_credentials::MqttLogin;
use push_index::PutRefused;
use push_model::{
    app::AppKey,
    device::{Device, DeviceDraft, TransportKind},
    ids::ClientId,
    time::UnixMillis,
};
use serde::Serialize;

use super::{body_memory::unread_body, context::Handlers, media_type::JSON};
use crate::{
    body::RequestBody,
    head::Head,
    message::read_json_body,
    rejection::Rejection,
    reply::{self, Reply},
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
}

impl Handlers {
    pub(super) async fn put_device(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
    ) -> Result<Reply, Rejection> {
        let now = UnixMillis::now();
        let (app, client) = self.authenticate_device(resource, head, now).await?;
        JSON.check(head).map_err(Rejection::MediaType)?;
        let body = self.read_body(body, unread_body).await?;
        let draft: DeviceDraft<'_> = read_json_body(&body.bytes).map_err(Rejection::Illegal)?;
        if draft.client_id.as_ref().is_some_and(|id| **id != *client.as_str()) {
            let problem = "client_id must be the one in the path, or absent";
            return Err(Rejection::Illegal(problem.into()));
        }
        let device = draft.check(client).map_err(|bad| Rejection::Illegal(bad.to_string()))?;
        let put = self.ask_index(self.index.put_devices(&app, std::slice::from_ref(&device), now));
        match put.await?.first() {
            Some(Ok(_)) => self.registered(&app, &device, now),
            Some(Err(refused @ (PutRefused::DictionaryFull(_) | PutRefused::IndexFull))) => {
                Err(Rejection::NoRoom(refused.to_string()))
            }
            // The cached record is of an app that was removed.
            Some(Err(PutRefused::AppRemoved)) => {
                self.apps.invalidate(&app.id);
                Err(Rejection::SecretIllegal)
            }
            None => Err(Rejection::Unavailable("the device index gave no answer")),
        }
    }

    /// The record as it was stored, and for an MQTT device what it logs in with.
    fn registered(
        &self,
        app: &AppKey,
        device: &Device,
        now: UnixMillis,
    ) -> Result<Reply, Rejection> {
        let credentials = self.settings.device_credentials.as_ref();
        let credentials = credentials.filter(|_| device.transport == TransportKind::Mqtt);
        let login = credentials.map(|credentials| credentials.issue(app, &device.client_id, now));
        let mqtt = login.transpose().map_err(|error| {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "no MQTT login can be issued"
            );
            Rejection::Unavailable("the device is registered, but no MQTT login can be issued")
        })?;
        success(&Registered { device, mqtt })
    }

    pub(super) async fn get_device(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let (app, client) = self.authenticate_device(resource, head, UnixMillis::now()).await?;
        let device = self.ask_index(self.index.device(&app, &client)).await?;
        success(&device.ok_or(Rejection::Unknown(DEVICE))?)
    }

    pub(super) async fn delete_device(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let (app, client) = self.authenticate_device(resource, head, UnixMillis::now()).await?;
        if !self.ask_index(self.index.remove_device(&app, &client)).await? {
            return Err(Rejection::Unknown(DEVICE));
        }
        success(&Removed { client_id: &client })
    }

    /// The app and the client id of the path, if the request has the app's secret.
    async fn authenticate_device(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
        now: UnixMillis,
    ) -> Result<(AppKey, ClientId), Rejection> {
        let (_, cached) = self.authenticate(&resource.app, head, now).await?;
        let client = resource.id.parse();
        let app = AppKey::from(&cached.app);
        Ok((app, client.map_err(|bad| Rejection::Illegal(format!("the Client ID {bad}")))?))
    }
}

fn success<T: Serialize>(result: &T) -> Result<Reply, Rejection> {
    reply::success(result).map_err(|_| Rejection::Unavailable("the answer cannot be written"))
}
