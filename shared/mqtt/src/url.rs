//! The broker's URL: `mqtt://[user:password@]host[:port]` or `mqtts://…`.

use std::{borrow::Cow, fmt, str::FromStr};

use percent_encoding::percent_decode_str;
use push_tls::client::ClientTls;

/// The port registered for MQTT (IANA).
const PLAIN_PORT: u16 = 1883;
/// The port registered for MQTT over TLS (IANA).
const TLS_PORT: u16 = 8883;

/// The broker's address and login. `Display` and `Debug` leave out user and password.
#[derive(Clone, PartialEq, Eq)]
pub struct MqttUrl {
    pub(super) tls: bool,
    /// Authority and certificate for `mqtts://`; without it, the machine's authorities are trusted.
    pub(super) client_tls: Option<ClientTls>,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) login: Option<Login>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: Option<String>,
}

/// The text is no URL of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be mqtt://[user:password@]host[:port] or mqtts://…")]
pub struct BadMqttUrl;

impl MqttUrl {
    /// Returns the URL with this login.
    #[must_use]
    pub fn with_login(self, user: &str, password: &str) -> Self {
        let login = Login { user: user.to_owned(), password: Some(password.to_owned()) };
        Self { login: Some(login), ..self }
    }

    /// Returns true if it has a login.
    pub fn has_login(&self) -> bool {
        self.login.is_some()
    }

    /// Returns true if connections are encrypted: `mqtts://`.
    pub fn uses_tls(&self) -> bool {
        self.tls
    }

    /// Authority and certificate for `mqtts://`, if they were set.
    pub fn tls(&self) -> Option<&ClientTls> {
        self.client_tls.as_ref()
    }

    /// The broker's host: a name or an address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The broker's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL with this authority and this certificate for `mqtts://`.
    #[must_use]
    pub fn with_tls(self, tls: Option<ClientTls>) -> Self {
        Self { client_tls: tls, ..self }
    }
}

impl FromStr for MqttUrl {
    type Err = BadMqttUrl;

    fn from_str(text: &str) -> Result<Self, BadMqttUrl> {
        let url = url::Url::parse(text).map_err(|_| BadMqttUrl)?;
        let tls = match url.scheme() {
            "mqtt" => false,
            "mqtts" => true,
            _ => return Err(BadMqttUrl),
        };
        let rest = (url.path(), url.query(), url.fragment());
        if !matches!(rest, ("" | "/", None, None)) {
            return Err(BadMqttUrl);
        }
        let host = match url.host() {
            Some(url::Host::Domain(name)) if !name.is_empty() => name.to_owned(),
            Some(url::Host::Ipv4(address)) => address.to_string(),
            Some(url::Host::Ipv6(address)) => address.to_string(),
            _ => return Err(BadMqttUrl),
        };
        let decode = |part: &str| {
            percent_decode_str(part).decode_utf8().map(Cow::into_owned).map_err(|_| BadMqttUrl)
        };
        let password = url.password().map(decode).transpose()?;
        let login = match url.username() {
            "" if password.is_none() => None,
            user => Some(Login { user: decode(user)?, password }),
        };
        let port = url.port().unwrap_or(if tls { TLS_PORT } else { PLAIN_PORT });
        Ok(Self { tls, client_tls: None, host, port, login })
    }
}

impl fmt::Display for MqttUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "mqtts" } else { "mqtt" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for MqttUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_broker_and_login_and_prints_without_the_login() {
        let url: MqttUrl = "mqtts://me:p%40ss@broker.example".parse().unwrap();
        let login = url.login.clone().unwrap();
        assert_eq!((login.user.as_str(), login.password.as_deref()), ("me", Some("p@ss")));
        assert_eq!((url.tls, url.port), (true, 8883));
        assert_eq!(format!("{url:?}"), "mqtts://broker.example:8883");
    }

    #[test]
    fn ports_have_their_usual_defaults_and_addresses_may_be_ipv6() {
        assert_eq!("mqtt://[::1]".parse::<MqttUrl>().unwrap().to_string(), "mqtt://[::1]:1883");
        assert_eq!("mqtt://h:99/".parse::<MqttUrl>().unwrap().to_string(), "mqtt://h:99");
        assert!(!"mqtt://h".parse::<MqttUrl>().unwrap().has_login());
        let url = "mqtt://h".parse::<MqttUrl>().unwrap().with_login("me", "secret");
        assert_eq!((url.has_login(), url.to_string()), (true, "mqtt://h:1883".to_owned()));
    }

    #[test]
    fn what_is_no_broker_is_refused() {
        for bad in ["", "h:1883", "http://h", "mqtt://", "mqtt://h/topic", "mqtt://h?x=1"] {
            assert_eq!(bad.parse::<MqttUrl>(), Err(BadMqttUrl), "{bad}");
        }
    }
}
