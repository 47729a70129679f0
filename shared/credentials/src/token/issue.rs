//! Making a token.

use std::time::Duration;

use push_model::{
    app::AppKey, ids::ClientId, mqtt::MqttDevice, registration::RegistrationEpoch, time::UnixMillis,
};
use serde::Serialize;

use super::{
    CLOCK_ALLOWANCE, MAX_TTL, Purpose, Token,
    claims::{ALGORITHM, Header, LoginClaims, RecordClaims},
};
use crate::{acl, encoding::push_base64url, issue_error::IssueError, key_set::KeySet};

impl KeySet {
    /// A token with which this registration of a device logs in at a broker, signed with the key that signs at
    /// this time. It ends after `ttl`, or when its key does, if that is earlier, so that `expires_at` is true.
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
        let device = MqttDevice { app: app.id.clone(), client: client.clone() };
        let name = device.to_string();
        self.issue_for(Purpose::MqttLogin, now, ttl, |exp| LoginClaims {
            iat: (now.0 / 1000).saturating_sub(CLOCK_ALLOWANCE.as_secs()),
            exp,
            sub: &name,
            clientid: &name,
            username: &name,
            generation: app.generation,
            registration: registration.to_string(),
            acl: acl::of_device(&device),
        })
    }

    /// A token with which this registration of a device reads and changes its own record, as
    /// [`KeySet::issue`].
    ///
    /// # Errors
    /// As [`KeySet::issue`].
    pub fn issue_for_record(
        &self,
        app: &AppKey,
        client: &ClientId,
        registration: RegistrationEpoch,
        now: UnixMillis,
        ttl: Duration,
    ) -> Result<Token, IssueError> {
        let name = MqttDevice { app: app.id.clone(), client: client.clone() }.to_string();
        self.issue_for(Purpose::DeviceRecord, now, ttl, |exp| RecordClaims {
            exp,
            sub: &name,
            generation: app.generation,
            registration: registration.to_string(),
        })
    }

    /// Issues a token with the claims for its end, in seconds since 1970.
    fn issue_for<C: Serialize>(
        &self,
        purpose: Purpose,
        now: UnixMillis,
        ttl: Duration,
        claims: impl FnOnce(u64) -> C,
    ) -> Result<Token, IssueError> {
        let key = self.signing(now)?;
        let end = now.plus(ttl.min(MAX_TTL));
        let exp = key.verifies_until.map_or(end, |until| until.min(end)).0 / 1000;
        let header = Header { alg: ALGORITHM, typ: purpose.type_name(), kid: key.kid() };
        let mut text = String::with_capacity(1024);
        push_base64url(&mut text, &json(&header));
        text.push('.');
        push_base64url(&mut text, &json(&claims(exp)));
        let signature = key.sign(&purpose.signed(text.as_bytes()))?;
        text.push('.');
        push_base64url(&mut text, signature.as_ref());
        Ok(Token { text, expires_at: UnixMillis(exp * 1000) })
    }
}

/// Structs of strings and numbers, which always have a JSON form.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
