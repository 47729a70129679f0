//! How servers and clients are reached: in clear, or with which certificates and until when.
//!
//! What is in clear on this machine alone is no finding. A certificate is looked at where it is
//! used: that of a server by connecting to it, that of this program and of a listener in its file.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
    time::{Duration, SystemTime},
};

use push_index::{Finding, Level};
use push_model::causes::with_causes;
use push_mqtt::MqttUrl;
use push_service::engines::{EngineSettings, IndexUrl};
use push_tls::{client::ClientTls, expiry, failure::TlsFailure};
use tokio::time::timeout;

use super::finding::finding;

/// A certificate that expires sooner than this is an error: it is time to find out why it was not
/// renewed.
const RENEWED_BEFORE: Duration = Duration::from_hours(14 * 24);

/// How long one server may take to show its certificate.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// A listener of this service, as its own settings describe it.
pub(super) struct ListenerInfo<'a> {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    pub(super) certificate: Option<&'a Path>,
}

/// A connection to servers of one kind.
struct Link<'a> {
    name: &'static str,
    servers: Vec<(String, u16)>,
    tls: Option<&'a ClientTls>,
    /// The scheme that would encrypt it.
    scheme: &'static str,
}

/// Looks at every link, one server after the other.
pub(super) async fn links(engines: &EngineSettings, mqtt: Option<&MqttUrl>) -> Vec<Finding> {
    let index = |name, url: &IndexUrl| Link {
        name,
        servers: url.servers(),
        tls: engines.index_tls.as_ref().filter(|_| url.uses_tls()),
        scheme: "rediss:// or rediss-cluster://",
    };
    let mut links = vec![
        Link {
            name: "queue",
            servers: engines.queue.servers(),
            tls: engines.queue_tls.as_ref(),
            scheme: "amqps://",
        },
        index("index", &engines.index),
    ];
    links.extend(engines.ledger.as_ref().map(|url| index("ledger", url)));
    links.extend(mqtt.map(|url| Link {
        name: "MQTT",
        servers: vec![(url.host().to_owned(), url.port())],
        tls: url.tls(),
        scheme: "mqtts://",
    }));
    let mut findings = Vec::new();
    for link in &links {
        for server in &link.servers {
            findings.extend(link.look_at(server).await);
        }
        let shown = link.tls.and_then(|tls| tls.files().identity.as_ref());
        findings.extend(shown.map(|identity| in_file(link.name, &identity.certificate)));
    }
    findings
}

/// What is wrong with a listener, or until when its certificate is valid.
pub(super) fn listener(listener: &ListenerInfo<'_>) -> Option<Finding> {
    match listener.certificate {
        Some(certificate) => Some(in_file(listener.name, certificate)),
        None if listener.address.ip().is_loopback() => None,
        None => Some(finding(
            Level::Warning,
            format!("{} encryption", listener.name),
            format!("{} takes connections in clear from other machines", listener.address),
        )),
    }
}

impl Link<'_> {
    async fn look_at(&self, (host, port): &(String, u16)) -> Option<Finding> {
        let Some(tls) = self.tls else {
            return (!is_this_machine(host)).then(|| self.in_clear(host));
        };
        let probe = timeout(PROBE_TIMEOUT, tls.probe((host, *port))).await;
        let found = probe.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let subject = format!("{} certificate", self.name);
        Some(match found {
            Ok(chain) => {
                let (level, detail) = judge(expiry::earliest(&chain), SystemTime::now());
                finding(level, subject, format!("{host}: {detail}"))
            }
            Err(error) => {
                let why = TlsFailure::of(&error).map_or(error.to_string(), |tls| tls.to_string());
                finding(Level::Error, subject, format!("{host}: {why}"))
            }
        })
    }

    fn in_clear(&self, host: &str) -> Finding {
        let detail = format!(
            "{host} is reached in clear: passwords and messages can be read on the way; use {}",
            self.scheme
        );
        finding(Level::Warning, format!("{} encryption", self.name), detail)
    }
}

fn in_file(name: &str, certificate: &Path) -> Finding {
    let (level, detail) = match expiry::of_file(certificate) {
        Ok(expires) => judge(expires, SystemTime::now()),
        Err(error) => (Level::Error, with_causes(&error)),
    };
    finding(level, format!("{name} certificate"), format!("{}: {detail}", certificate.display()))
}

/// What follows from the time at which a certificate expires.
fn judge(expires: Option<SystemTime>, now: SystemTime) -> (Level, String) {
    let Some(expires) = expires else {
        return (Level::Warning, "its expiry cannot be read".to_owned());
    };
    let days = |time: Duration| time.as_secs() / (24 * 60 * 60);
    match expires.duration_since(now) {
        Err(ago) => (Level::Error, format!("expired {} days ago", days(ago.duration()))),
        Ok(left) if left < RENEWED_BEFORE => {
            let left = days(left);
            (Level::Error, format!("expires in {left} days and was not renewed yet"))
        }
        Ok(left) => (Level::Ok, format!("valid for {} days", days(left))),
    }
}

pub(super) fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn a_certificate_that_expires_within_14_days_is_an_error() {
        let now = SystemTime::now();
        let (level, detail) = judge(Some(now + 13 * DAY + DAY / 2), now);
        assert_eq!(
            (level, detail.as_str()),
            (Level::Error, "expires in 13 days and was not renewed yet")
        );
        assert_eq!(judge(Some(now + 15 * DAY), now).0, Level::Ok);
        let (level, detail) = judge(Some(now - 2 * DAY), now);
        assert_eq!((level, detail.as_str()), (Level::Error, "expired 2 days ago"));
    }

    #[test]
    fn what_stays_on_this_machine_may_be_in_clear() {
        let link = Link { name: "queue", servers: Vec::new(), tls: None, scheme: "amqps://" };
        for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["rabbitmq", "10.0.0.1", "fd00::1"] {
            assert!(!is_this_machine(host), "{host}");
        }
        let finding = link.in_clear("rabbitmq");
        assert!(finding.detail.contains("amqps://"), "{finding:?}");
    }

    #[test]
    fn a_listener_in_clear_on_another_address_than_loopback_is_a_warning() {
        let of = |address: &str| {
            let address = address.parse().unwrap();
            listener(&ListenerInfo { name: "HTTP", address, certificate: None })
        };
        assert_eq!(of("127.0.0.1:8080"), None);
        assert_eq!(of("0.0.0.0:8080").unwrap().level, Level::Warning);
    }
}
