//! `PUT`, `GET` and `DELETE /v1/device/{AppID}/{ClientID}`.
//!
//! A disabled app cannot push; its devices may still come and go.

use bytes::Bytes;
use hyper::body::Body;
use push_index::PutRefused;
use push_model::{app::AppKey, device::DeviceDraft, ids::ClientId, time::UnixMillis};
use serde::Serialize;

use super::{Calls, not_json};
use crate::{
    body::{NoBody, RequestBody},
    head::Head,
    message::read_fields,
    rejection::Rejection,
    reply::{self, Reply},
    route::Member,
};

const DEVICE: &str = "device";

#[derive(Serialize)]
struct Removed<'a> {
    client_id: &'a ClientId,
}

impl Calls {
    pub(super) async fn put_device(
        &self,
        member: &Member<'_>,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
    ) -> Result<Reply, Rejection> {
        let now = UnixMillis::now();
        let (app, client) = self.device_of(member, head, now).await?;
        if let Some(problem) = not_json(head) {
            return Err(Rejection::MediaType(problem));
        }
        let body = self.body(body).await?.map_err(|no_body| match no_body {
            NoBody::TooLarge => Rejection::TooLarge(self.settings.http.max_body),
            NoBody::Late => Rejection::BodyTimeout,
            NoBody::Broken => Rejection::Illegal("the body ends early".into()),
        })?;
        let draft: DeviceDraft<'_> = read_fields(&body.bytes).map_err(Rejection::Illegal)?;
        if draft.client_id.as_ref().is_some_and(|id| **id != *client.as_str()) {
            let problem = "client_id must be the one in the path, or absent";
            return Err(Rejection::Illegal(problem.into()));
        }
        let device = draft.check(client).map_err(|bad| Rejection::Illegal(bad.to_string()))?;
        let put = self.ask(self.index.put_devices(&app, std::slice::from_ref(&device), now));
        match put.await?.first() {
            Some(Ok(_)) => success(&device),
            Some(Err(refused @ (PutRefused::DictionaryFull(_) | PutRefused::IndexFull))) => {
                Err(Rejection::NoRoom(refused.to_string()))
            }
            // What is remembered here of the app is of one that is no more.
            Some(Err(PutRefused::AppRemoved)) => {
                self.apps.forget(&app.id);
                Err(Rejection::SecretIllegal)
            }
            None => Err(Rejection::Unavailable("the device index gave no answer")),
        }
    }

    pub(super) async fn get_device(
        &self,
        member: &Member<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let (app, client) = self.device_of(member, head, UnixMillis::now()).await?;
        let device = self.ask(self.index.device(&app, &client)).await?;
        success(&device.ok_or(Rejection::Unknown(DEVICE))?)
    }

    pub(super) async fn delete_device(
        &self,
        member: &Member<'_>,
        head: &Head<'_>,
    ) -> Result<Reply, Rejection> {
        let (app, client) = self.device_of(member, head, UnixMillis::now()).await?;
        if !self.ask(self.index.remove_device(&app, &client)).await? {
            return Err(Rejection::Unknown(DEVICE));
        }
        success(&Removed { client_id: &client })
    }

    async fn device_of(
        &self,
        member: &Member<'_>,
        head: &Head<'_>,
        now: UnixMillis,
    ) -> Result<(AppKey, ClientId), Rejection> {
        let (_, known) = self.app(&member.app, head, now).await?;
        let client = member.id.parse();
        let app = AppKey::from(&known.app);
        Ok((app, client.map_err(|bad| Rejection::Illegal(format!("the Client ID {bad}")))?))
    }
}

fn success<T: Serialize>(result: &T) -> Result<Reply, Rejection> {
    reply::success(result).map_err(|_| Rejection::Unavailable("the answer cannot be written"))
}
