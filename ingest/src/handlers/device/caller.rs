//! Who may work on the record of a device: the app's backend with a secret, and the device itself with the token
//! of its registration.
//!
//! A token opens the record of one registration: it is refused for another device, for a later app of that name, and
//! for a device that was removed and registered again. Its signature is checked with a public key, so how long the
//! check takes tells nothing. A token that is refused counts as a failed login does.
//!
//! A device that is not registered any more is 404 and cannot register itself again. Its backend decides that.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Body;
use push_credentials::{DeviceIdentity, TokenError};
use push_model::{
    app::{AppKey, Scope},
    device::{NoTarget, TargetFields},
    ids::{AppId, ClientId},
    registration::RegistrationEpoch,
    time::UnixMillis,
};
use tokio::time::Instant;

use super::{DEVICE, DeviceHandler};
use crate::{
    allowance::RateStatus,
    apps::{CachedApp, app_id},
    body::{BodyError, Buffered, Purpose, RequestBody, Reservation},
    handlers::other_call::acquire_call,
    head::Head,
    index_client::Subject,
    rejection::Rejection,
    route::AppResource,
};

/// The most calls of a device in a minute. Devices are told apart by [`CALL_COUNTERS`], so this has room for several.
pub(in crate::handlers) const DEVICE_CALLS: u32 = 120;
/// The number of counters of devices' calls.
pub(in crate::handlers) const CALL_COUNTERS: usize = 1 << 17;

/// The largest body of a device, in bytes: several times what the largest record has.
const MAX_DEVICE_BODY: usize = 64 * 1024;

/// The caller of a request for a device.
pub(super) struct DeviceCaller {
    pub(super) cached: Arc<CachedApp>,
    pub(super) client: ClientId,
    /// What is left of the app's rate limit.
    pub(super) rate: Option<RateStatus>,
    /// The registration of the device, if it is the device itself.
    pub(super) registration: Option<RegistrationEpoch>,
}

impl DeviceCaller {
    pub(super) fn is_device(&self) -> bool {
        self.registration.is_some()
    }

    pub(super) fn app(&self) -> AppKey {
        AppKey::from(&self.cached.app)
    }
}

impl DeviceHandler {
    /// Authenticates a request for the record of a device: by a secret for devices, which reading needs as well,
    /// because the record holds the address of the device; or by the token of the device.
    pub(super) async fn authenticate(
        &self,
        resource: &AppResource<'_>,
        head: &Head<'_>,
        now: UnixMillis,
    ) -> Result<DeviceCaller, Rejection> {
        if let Some(token) = head.bearer_token() {
            // Boxed: it would be part of every connection.
            return Box::pin(self.authenticate_device(resource, token, head, now)).await;
        }
        let caller = self.logins.authenticate(&resource.app, head, Scope::Devices, now).await?;
        let cached = caller.cached;
        let rate = acquire_call(&cached).await?;
        let client = resource.id.parse();
        let client = client.map_err(|bad| Rejection::Illegal(format!("the Client ID {bad}")))?;
        Ok(DeviceCaller { cached, client, rate, registration: None })
    }

    async fn authenticate_device(
        &self,
        resource: &AppResource<'_>,
        token: &[u8],
        head: &Head<'_>,
        now: UnixMillis,
    ) -> Result<DeviceCaller, Rejection> {
        let begun = Instant::now();
        let app = app_id(&resource.app, head)?;
        let identity = match self.verify(resource, &app, token, now) {
            Ok(identity) => identity,
            Err(why) => return Err(self.logins.refuse_token(None, head.peer, begun, why).await),
        };
        let unavailable = |_| Rejection::Unavailable("the device index is unavailable");
        let cached = self.logins.app(&app).await.map_err(unavailable)?;
        let cached = cached.filter(|cached| cached.app.generation == identity.generation);
        let Some(cached) = cached else {
            let why = "its app was removed";
            return Err(self.logins.refuse_token(None, head.peer, begun, why).await);
        };
        let calls = self.calls.count((&identity.app, &identity.client), begun);
        calls.map_err(|retry_after| Rejection::DeviceTooFrequent { retry_after })?;
        let rate = acquire_call(&cached).await?;
        if !self.is_registered(&identity).await? {
            let why = "the device was removed, and registered again";
            return Err(self.logins.refuse_token(Some(&cached), head.peer, begun, why).await);
        }
        let registration = Some(identity.registration);
        Ok(DeviceCaller { cached, client: identity.client, rate, registration })
    }

    /// Returns the device of a token, if it is that of the path.
    fn verify(
        &self,
        resource: &AppResource<'_>,
        app: &AppId,
        token: &[u8],
        now: UnixMillis,
    ) -> Result<DeviceIdentity, &'static str> {
        let credentials = self.credentials.as_ref();
        let credentials = credentials.ok_or("this service has no keys for such tokens")?;
        let identity = credentials.verify_for_record(token, now).map_err(|error| match error {
            TokenError::Expired(_) => "it expired",
            _ => "this service did not issue it for that",
        })?;
        let is_of_path = identity.app == *app && identity.client.as_str() == resource.id;
        if is_of_path { Ok(identity) } else { Err("it belongs to another device") }
    }

    /// Returns true if the device is registered as it was when its token was issued.
    async fn is_registered(&self, device: &DeviceIdentity) -> Result<bool, Rejection> {
        let (app, clients) = (device.app_key(), std::slice::from_ref(&device.client));
        let found = self.index.index.targets(&app, clients, TargetFields::Address);
        let found = self.index.ask(Subject::device(&app.id, &device.client), found).await?;
        match found.into_iter().next() {
            Some(Ok(target)) => Ok(target.epoch == device.registration),
            Some(Err(NoTarget::Unreadable)) => {
                Err(Rejection::Unavailable("the record of the device cannot be read"))
            }
            Some(Err(NoTarget::Unknown)) | None => Err(Rejection::Unknown(DEVICE)),
        }
    }

    /// Reads the body of a request for a device.
    pub(super) async fn read_body(
        &self,
        caller: &DeviceCaller,
        body: &mut RequestBody<'_, impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin>,
    ) -> Result<Buffered, Rejection> {
        let limit = match caller.is_device() {
            true => self.http.max_body.min(MAX_DEVICE_BODY),
            false => self.http.max_body,
        };
        let mut memory = Reservation::empty(&caller.cached.memory, Purpose::Single);
        let bytes = body.read(limit, self.http.body_time(), &mut memory).await;
        let bytes = bytes.map_err(|no_body| no_body.of_other(limit))?;
        Ok(Buffered { bytes, memory })
    }
}
