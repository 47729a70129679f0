//! Making a token.

use std::time::Duration;

use push_model::{
    app::AppKey, ids::ClientId, mqtt::MqttDevice, registration::RegistrationEpoch, time::UnixMillis,
};
use serde::Serialize;

use super::{
    CLOCK_ALLOWANCE, MAX_TTL, Token,
    claims::{ALGORITHM, Claims, Header, TYPE},
};
use crate::{acl, encoding::push_base64url, issue_error::IssueError, key_set::KeySet};

impl KeySet {
    /// A token for this registration of a device, signed with the key that signs at this time. It ends after `ttl`, or
    /// when its key does, if that is earlier, so that `expires_at` is true.
    ///
    /// # Errors
    /// If no key signs at this time, or the operating system gives no random numbers.
    pub fn issue(
        &self,
        app: &AppKey,
        client: &ClientId,
        registration: RegistrationEpoch,
        now: UnixMillis,
        ttl: Duration,
    ) -> Result<Token, IssueError> {
        let key = self.signing(now)?;
        let end = now.plus(ttl.min(MAX_TTL));
        let exp = key.verifies_until.map_or(end, |until| until.min(end)).0 / 1000;
        let device = MqttDevice { app: app.id.clone(), client: client.clone() };
        let name = device.to_string();
        let header = Header { alg: ALGORITHM, typ: TYPE, kid: key.kid() };
        let claims = Claims {
            iat: (now.0 / 1000).saturating_sub(CLOCK_ALLOWANCE.as_secs()),
            exp,
            sub: &name,
            clientid: &name,
            username: &name,
            generation: app.generation,
            registration: registration.to_string(),
            acl: acl::of_device(&device),
        };
        let mut text = String::with_capacity(1024);
        push_base64url(&mut text, &json(&header));
        text.push('.');
        push_base64url(&mut text, &json(&claims));
        let signature = key.sign(text.as_bytes())?;
        text.push('.');
        push_base64url(&mut text, signature.as_ref());
        Ok(Token { text, expires_at: UnixMillis(exp * 1000) })
    }
}

/// Structs of strings and numbers, which always have a JSON form.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
