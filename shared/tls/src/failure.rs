//! The reason why a TLS handshake with a server failed, read from the kind of rustls's error, which
//! libraries wrap in errors of their own.

use std::{
    error::Error,
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use humantime::format_rfc3339_seconds;
use rustls::{AlertDescription, CertificateError, InvalidMessage, pki_types::UnixTime};

/// The reason why TLS with a server failed, in words for the operator of the client.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFailure {
    /// No trusted authority issued the server's certificate.
    #[error(
        "the server's certificate is not from a trusted authority; if the authority is a private \
         one, its certificate must be set as the CA file"
    )]
    UnknownAuthority,
    /// The server's certificate is too old.
    #[error("the server's certificate has expired{}", at(.0))]
    Expired(Option<UnixTime>),
    /// The server's certificate is too new, or this machine's clock is wrong.
    #[error("the server's certificate is not valid yet{}; is this machine's clock right?", at(.0))]
    NotValidYet(Option<UnixTime>),
    /// The server's certificate is that of another host.
    #[error("the server's certificate has another name than the URL{0}")]
    WrongName(Names),
    /// The server's certificate cannot be used for another reason.
    #[error("the server's certificate is refused: {0}")]
    Certificate(CertificateError),
    /// The server wants a client certificate, and none is set.
    #[error("the server requires a client certificate")]
    CertificateRequired,
    /// The server does not accept the client certificate.
    #[error("the server refused the client certificate: {0:?}")]
    CertificateRefused(AlertDescription),
    /// The peer does not speak TLS.
    #[error("the server does not speak TLS on this port")]
    NoTls,
    /// Anything else: no version or cipher in common, a broken peer.
    #[error("{0}")]
    Other(rustls::Error),
}

/// The wanted name and those of the certificate, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// The host of the URL.
    pub wanted: String,
    /// The names in the certificate.
    pub found: Vec<String>,
}

impl TlsFailure {
    /// The reason, if `error` or one of its causes is an error of TLS.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = Self::in_one(error) {
                return Some(found);
            }
            next = error.source();
        }
        None
    }

    /// The error itself, or what it wraps without naming it as its source: `io::Error` returns the
    /// source of the error that it wraps, and a shared error has another type than the error
    /// inside.
    fn in_one(error: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(failure) = error.downcast_ref::<Self>() {
            return Some(failure.clone());
        }
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(error.clone().into());
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Self::in_one(error.get_ref()?);
        }
        if let Some(error) = error.downcast_ref::<Arc<io::Error>>() {
            return Self::in_one(error.as_ref());
        }
        Self::in_one(error.downcast_ref::<Arc<dyn Error + Send + Sync>>()?.as_ref())
    }
}

impl From<rustls::Error> for TlsFailure {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(error) => of_certificate(error),
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::NoTls,
            rustls::Error::AlertReceived(alert) => match alert {
                AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
                    Self::CertificateRequired
                }
                AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied => Self::CertificateRefused(alert),
                _ => Self::Other(error),
            },
            error => Self::Other(error),
        }
    }
}

fn of_certificate(error: CertificateError) -> TlsFailure {
    match error {
        // A bad signature is what another authority of the same name leads to.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            TlsFailure::UnknownAuthority
        }
        CertificateError::Expired => TlsFailure::Expired(None),
        CertificateError::ExpiredContext { not_after, .. } => TlsFailure::Expired(Some(not_after)),
        CertificateError::NotValidYet => TlsFailure::NotValidYet(None),
        CertificateError::NotValidYetContext { not_before, .. } => {
            TlsFailure::NotValidYet(Some(not_before))
        }
        CertificateError::NotValidForName => TlsFailure::WrongName(Names::default()),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let wanted = expected.to_str().into_owned();
            TlsFailure::WrongName(Names { wanted, found: presented })
        }
        error => TlsFailure::Certificate(error),
    }
}

fn at(time: &Option<UnixTime>) -> String {
    let time = time.map(|time| SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs()));
    time.map_or_else(String::new, |time| format!(" ({})", format_rfc3339_seconds(time)))
}

impl std::fmt::Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.wanted.is_empty() {
            return Ok(());
        }
        write!(f, ": it has {}, not {}", self.found.join(", "), self.wanted)
    }
}
