//! The links to servers: unencrypted ones, and until when certificates are valid.
//!
//! An unencrypted link that stays on this machine is no finding. The certificate of a server is read by
//! connecting to it, those of this program and of `listeners` in their files.

use std::{
    io,
    net::IpAddr,
    path::Path,
    time::{Duration, SystemTime},
};

use push_boot::engines::{EngineSettings, IndexUrl};
use push_model::causes::with_causes;
use push_mqtt::MqttUrl;
use push_store::Finding;
use push_tls::{client::ClientTls, expiry, failure::TlsFailure};
use tokio::time::timeout;

/// A certificate that expires sooner than this is an error: it is time to find out why it was not
/// renewed.
const RENEWED_BEFORE: Duration = Duration::from_hours(14 * 24);

/// The time limit for a server to show its certificate.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to servers of one kind.
struct Link<'a> {
    name: &'static str,
    servers: Vec<(String, u16)>,
    tls: Option<&'a ClientTls>,
    /// The scheme that would encrypt it.
    scheme: &'static str,
    /// The settings of its authorities, certificate and key.
    tls_flags: &'static str,
}

/// Looks at every link, one server after the other.
pub(in crate::doctor) async fn links(
    engines: &EngineSettings,
    mqtt: Option<&MqttUrl>,
) -> Vec<Finding> {
    let index = |name, url: &IndexUrl| Link {
        name,
        servers: url.servers(),
        tls: engines.index_tls.as_ref().filter(|_| url.uses_tls()),
        scheme: "rediss:// or rediss-cluster://",
        tls_flags: "--index-ca, --index-cert and --index-key",
    };
    let mut links = vec![
        Link {
            name: "queue",
            servers: engines.queue.servers(),
            tls: engines.queue_tls.as_ref(),
            scheme: "amqps://",
            tls_flags: "--queue-ca, --queue-cert and --queue-key",
        },
        index("index", &engines.index),
    ];
    links.extend(engines.ledger.as_ref().map(|url| index("ledger", url)));
    links.extend(mqtt.map(|url| Link {
        name: "MQTT",
        servers: vec![(url.host().to_owned(), url.port())],
        tls: url.tls(),
        scheme: "mqtts://",
        tls_flags: "--mqtt-ca, --mqtt-cert and --mqtt-key",
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

impl Link<'_> {
    async fn look_at(&self, (host, port): &(String, u16)) -> Option<Finding> {
        let Some(tls) = self.tls else {
            return (!is_this_machine(host)).then(|| self.unencrypted(host));
        };
        let probe = timeout(PROBE_TIMEOUT, tls.probe((host, *port))).await;
        let found = probe.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let subject = format!("{} certificate", self.name);
        Some(match found {
            Ok(chain) => judge(subject, host, expiry::earliest(&chain), SystemTime::now()),
            Err(error) => self.no_certificate(subject, host, &error),
        })
    }

    fn no_certificate(&self, subject: String, host: &str, error: &io::Error) -> Finding {
        match TlsFailure::of(error) {
            Some(failure) => Finding::error(
                subject,
                format!("{host}: {failure}"),
                format!("fix the server's certificate, or check {}", self.tls_flags),
            ),
            None => Finding::error(
                subject,
                format!("{host}: {error}"),
                "start the server, or check that it takes TLS connections on this port",
            ),
        }
    }

    fn unencrypted(&self, host: &str) -> Finding {
        Finding::warning(
            format!("{} encryption", self.name),
            format!("{host} is reached unencrypted: passwords and messages can be read on the way"),
            format!("use {}", self.scheme),
        )
    }
}

/// Reports until when the certificate in a file is valid.
pub(in crate::doctor) fn in_file(name: &str, certificate: &Path) -> Finding {
    let (subject, file) = (format!("{name} certificate"), certificate.display().to_string());
    match expiry::of_file(certificate) {
        Ok(expires) => judge(subject, &file, expires, SystemTime::now()),
        Err(error) => Finding::error(
            subject,
            format!("{file}: {}", with_causes(&error)),
            "fix the file, or run doctor as the user of the program that reads it",
        ),
    }
}

/// Judges the time at which the certificate of a host or in a file expires.
fn judge(subject: String, of: &str, expires: Option<SystemTime>, now: SystemTime) -> Finding {
    const RENEW: &str = "renew it, and find out why that was not done in time";
    let Some(expires) = expires else {
        let remedy =
            "look at it with `openssl x509 -noout -dates`, and replace it if it is damaged";
        return Finding::warning(subject, format!("{of}: its expiry cannot be read"), remedy);
    };
    let days = |time: Duration| time.as_secs() / (24 * 60 * 60);
    match expires.duration_since(now) {
        Err(ago) => {
            let ago = days(ago.duration());
            Finding::error(subject, format!("{of}: expired {ago} days ago"), RENEW)
        }
        Ok(valid_for) if valid_for < RENEWED_BEFORE => {
            let days = days(valid_for);
            let detail = format!("{of}: expires in {days} days and was not renewed yet");
            Finding::error(subject, detail, RENEW)
        }
        Ok(valid_for) => Finding::ok(subject, format!("{of}: valid for {} days", days(valid_for))),
    }
}

pub(in crate::doctor) fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(is_loopback)
}

/// Judges as programs do where they listen: an IPv4 address may be written as one of IPv6.
pub(in crate::doctor) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use push_store::Level;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn a_certificate_that_expires_within_14_days_is_an_error() {
        let now = SystemTime::now();
        let of = |expires| {
            let found = judge("certificate".to_owned(), "host", expires, now);
            (found.level, found.detail)
        };
        let soon = "host: expires in 13 days and was not renewed yet".to_owned();
        assert_eq!(of(Some(now + 13 * DAY + DAY / 2)), (Level::Error, soon));
        assert_eq!(of(Some(now + 15 * DAY)).0, Level::Ok);
        assert_eq!(of(Some(now - 2 * DAY)), (Level::Error, "host: expired 2 days ago".to_owned()));
        assert_eq!(of(None).0, Level::Warning);
    }

    #[test]
    fn a_link_that_stays_on_this_machine_may_be_unencrypted() {
        let link = Link {
            name: "queue",
            servers: Vec::new(),
            tls: None,
            scheme: "amqps://",
            tls_flags: "--queue-ca",
        };
        for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["rabbitmq", "10.0.0.1", "fd00::1"] {
            assert!(!is_this_machine(host), "{host}");
        }
        let finding = link.unencrypted("rabbitmq");
        assert!(finding.remedy().unwrap().contains("amqps://"), "{finding:?}");
    }
}
