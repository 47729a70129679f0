//! The connections to RabbitMQ, Redis and Mosquitto, each server the real one with certificates of
//! the test: what is trusted, and what each refusal says.
//!
//! Every server has the same certificate, for `localhost` alone, and requires one of its clients.

mod mosquitto;
mod rabbitmq;
mod redis;

use std::{error::Error, path::PathBuf};

use push_tests::{
    certificates::{Authority, Certificate, Validity},
    servers::Tls,
};
use push_tls::{client::ClientTls, failure::TlsFailure};

use crate::tls::support::client;

/// A listener's certificate files, which can be replaced, and its authority.
struct Setting {
    authority: Authority,
    certificate: Certificate,
}

impl Setting {
    fn new() -> Self {
        let authority = Authority::new();
        let certificate = authority.server(&["localhost"], Validity::Now);
        Self { authority, certificate }
    }

    fn tls(&self) -> Tls {
        Tls {
            certificate: self.certificate.clone(),
            authority: PathBuf::from(self.authority.file()),
            clients_must_prove: true,
        }
    }

    /// A client that the server takes.
    fn right(&self) -> ClientTls {
        let certificate = self.authority.client("worker", Validity::Now);
        client(&self.authority, Some(&certificate)).unwrap()
    }

    /// Clients that do not reach the server at `localhost`, each with what it must be told.
    fn wrong(&self) -> [(ClientTls, &'static str); 4] {
        let (ours, theirs) = (&self.authority, &Authority::new());
        let shown = |authority: &Authority, validity| authority.client("worker", validity);
        let with = |trusted, shown: Option<Certificate>| client(trusted, shown.as_ref()).unwrap();
        [
            (with(theirs, Some(shown(ours, Validity::Now))), "not from a trusted authority"),
            (with(ours, None), "requires a client certificate"),
            (with(ours, Some(shown(ours, Validity::Expired))), "refused the client certificate"),
            (with(ours, Some(shown(theirs, Validity::Now))), "refused the client certificate"),
        ]
    }

    /// Gives the listener, once it is restarted, a certificate that has expired.
    fn expire(&self) {
        self.authority.server(&["localhost"], Validity::Expired).replace(&self.certificate);
    }
}

/// Returns what TLS says of an error, which it must be the cause of.
fn failure(error: &(dyn Error + 'static)) -> TlsFailure {
    TlsFailure::of(error).unwrap_or_else(|| panic!("not a failure of TLS: {error:?}"))
}

/// The texts of an error and its causes, as programs print them.
fn texts(error: &(dyn Error + 'static)) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", texts(cause)),
        None => error.to_string(),
    }
}
