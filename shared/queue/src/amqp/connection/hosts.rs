//! The hosts of a RabbitMQ cluster in one URL: `amqp://user:password@a:5672,b:5672,c:5672/vhost`.
//!
//! The standard AMQP URL has one host, so the list is an extension: everything but the host and the
//! port is the same for all of them. Each attempt to connect begins with the host that answered
//! last and tries every host once. A process draws its first host at random, so that the processes
//! of a fleet spread over the cluster.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lapin::uri::AMQPUri;

/// One host, and how the last attempt to connect to it ended.
pub(super) struct Host {
    pub(super) uri: AMQPUri,
    /// True if the host did not answer that attempt in time.
    pub(super) timed_out: AtomicBool,
}

/// The hosts of one URL, at least one.
pub(super) struct Hosts {
    all: Vec<Host>,
    /// Index of the host with which the next attempt begins.
    first: AtomicUsize,
}

impl Hosts {
    /// Parses a URL. `draw`, any random number, chooses the host of the first attempt.
    pub(super) fn parse(url: &str, draw: usize) -> Result<Self, String> {
        // Its own error may repeat a part of the URL.
        let parse = |url: &String| url.parse().map_err(|_: String| FORM.to_owned());
        let uris: Result<Vec<AMQPUri>, String> = split(url)?.iter().map(parse).collect();
        let host = |uri| Host { uri, timed_out: AtomicBool::new(false) };
        let all: Vec<Host> = uris?.into_iter().map(host).collect();
        Ok(Self { first: AtomicUsize::new(draw % all.len().max(1)), all })
    }

    /// Every host once, with its index, in the order in which they are to be tried.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (usize, &Host)> {
        let first = self.first.load(Ordering::Relaxed);
        let hosts = self.all.iter().enumerate();
        hosts.clone().skip(first).chain(hosts.take(first))
    }

    /// Makes the next attempt begin with the host at this index.
    pub(super) fn prefer(&self, index: usize) {
        self.first.store(index % self.all.len().max(1), Ordering::Relaxed);
    }

    /// Makes the next attempt begin with another host, because the preferred one accepts
    /// connections but cannot be used.
    pub(super) fn avoid_first(&self) {
        self.prefer(self.first.load(Ordering::Relaxed) + 1);
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Host> {
        self.all.iter_mut()
    }
}

/// The form of the URL, for the operator.
const FORM: &str = "must be amqp://[user:password@]host[:port][/vhost], or amqps://…";

/// Checks an `amqp://` or `amqps://` URL with one host or several.
///
/// # Errors
/// The mistake, as a text for the operator that repeats nothing of the URL: what looks like
/// a host may be a part of the password.
pub fn check_url(url: &str) -> Result<(), String> {
    Hosts::parse(url, 0).map(|_| ())
}

/// One URL for each host.
fn split(url: &str) -> Result<Vec<String>, String> {
    let (scheme, rest) = url.split_once("://").ok_or(FORM)?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if path.contains('@') {
        return Err(
            "has an @ behind its hosts: write / ? # and @ of a user, password or vhost as \
                    %2F %3F %23 and %40"
                .to_owned(),
        );
    }
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    let each = (1..).zip(hosts.split(',')).map(|(number, host)| {
        if host.is_empty() || host.starts_with(':') {
            return Err("must name hosts between the commas: amqp://a:5672,b:5672/%2f".to_owned());
        }
        let one = format!("{scheme}://{user}{host}{path}");
        url::Url::parse(&one).map_err(|error| format!("is no URL at host {number}: {error}"))?;
        Ok(one)
    });
    each.collect()
}

/// Without user and password.
impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = |host: &Host| {
            let authority = &host.uri.authority;
            format!("{}:{}", authority.host, authority.port)
        };
        f.debug_list().entries(self.all.iter().map(address)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_the_rest_of_the_url() {
        let hosts = Hosts::parse("amqps://u:p@a:1,b,c:3/push?heartbeat=5", 0).unwrap();
        assert_eq!(format!("{hosts:?}"), r#"["a:1", "b:5671", "c:3"]"#);
        for host in &hosts.all {
            assert_eq!((host.uri.vhost.as_str(), host.uri.query.heartbeat), ("push", Some(5)));
            assert_eq!(host.uri.authority.userinfo.password, "p");
        }
    }

    #[test]
    fn hosts_are_tried_in_order_from_the_one_that_answered_last() {
        let hosts = Hosts::parse("amqp://a,b,c", 4).unwrap();
        let order = || hosts.in_order().map(|(index, _)| index).collect::<Vec<_>>();
        assert_eq!(order(), [1, 2, 0]);
        hosts.prefer(2);
        assert_eq!(order(), [2, 0, 1]);
        hosts.avoid_first();
        assert_eq!(order(), [0, 1, 2]);
    }

    #[test]
    fn a_bad_list_is_reported_without_its_password() {
        for url in [
            "amqp://u:secret@a,,b/%2f",
            "amqp://u:secret@a,:1",
            "amqp://u:secret@a,b:x/",
            "amqp://u:secret/@h",
            "amqp://u:secret#@h",
            "amqp://u:secret",
            "amqp://h?auth_mechanism=secret",
        ] {
            let wrong = check_url(url).unwrap_err();
            assert!(!wrong.contains("secret") && wrong.contains("host"), "{wrong}");
        }
        assert_eq!(check_url("amqp://u:p%2Cq@[::1]:5672,a"), Ok(()));
    }
}
