//! Certificates that a test makes for itself: an authority, and certificates of servers and clients
//! that it issues, also ones that have expired or are not valid yet.
//!
//! Everything is written to PEM files, because that is how servers and programs take it.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tempfile::TempDir;

use crate::namespace;

const DAY: Duration = Duration::from_hours(24);

/// An authority, whose files are removed when it is dropped.
pub struct Authority {
    folder: TempDir,
    file: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    /// Number of certificates that it has issued.
    issued: AtomicU32,
}

/// A certificate and its private key (PKCS #8) in PEM files.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate's file.
    pub certificate: PathBuf,
    /// The key's file.
    pub key: PathBuf,
}

/// When a certificate is valid.
#[derive(Debug, Clone, Copy)]
pub enum Validity {
    /// From yesterday on, for a month.
    Now,
    /// Until yesterday.
    Expired,
    /// From tomorrow on.
    NotYet,
    /// From yesterday on, for so long from now.
    EndsIn(Duration),
}

impl Authority {
    /// Makes an authority that no other has the name of.
    #[allow(clippy::new_without_default, reason = "it makes files")]
    pub fn new() -> Self {
        Self::named(&format!("Authority of {}", namespace()))
    }

    /// Makes an authority with this name.
    pub fn named(name: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let mut params = params(Vec::new(), name, Validity::Now);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let file = folder.path().join("authority.pem");
        let certificate = params.self_signed(&key).expect("a certificate");
        fs::write(&file, certificate.pem()).expect("written");
        let issuer = Issuer::new(params, key);
        Self { folder, file, issuer, issued: AtomicU32::new(0) }
    }

    /// The file of its own certificate.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Issues the certificate of a server with these names and addresses.
    pub fn server(&self, names: &[&str], validity: Validity) -> Certificate {
        // Nodes of a cluster are each other's clients.
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(names, "server", &usages, validity)
    }

    /// Issues the certificate of a server on this machine, `localhost` and `127.0.0.1`.
    pub fn local_server(&self) -> Certificate {
        self.server(&["localhost", "127.0.0.1"], Validity::Now)
    }

    /// Issues the certificate of a client with this name.
    pub fn client(&self, name: &str, validity: Validity) -> Certificate {
        self.issue(&[name], name, &[ExtendedKeyUsagePurpose::ClientAuth], validity)
    }

    fn issue(
        &self,
        names: &[&str],
        common_name: &str,
        usages: &[ExtendedKeyUsagePurpose],
        validity: Validity,
    ) -> Certificate {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = params(names, common_name, validity);
        params.extended_key_usages = usages.to_vec();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        let file = |end: &str| self.folder.path().join(format!("{number}{end}"));
        let certificate = Certificate { certificate: file(".pem"), key: file("-key.pem") };
        fs::write(&certificate.certificate, signed.pem()).expect("written");
        fs::write(&certificate.key, key.serialize_pem()).expect("written");
        certificate
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authority").field(&self.file).finish()
    }
}

impl Certificate {
    /// Copies both files over those of another certificate, the certificate first, as a program
    /// that renews a certificate does.
    pub fn replace(&self, other: &Self) {
        fs::copy(&self.certificate, &other.certificate).expect("copied");
        fs::copy(&self.key, &other.key).expect("copied");
    }
}

fn params(names: Vec<String>, common_name: &str, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
    let (from, to) = match validity {
        Validity::Now => (now - DAY, now + 30 * DAY),
        Validity::Expired => (now - 30 * DAY, now - DAY),
        Validity::NotYet => (now + DAY, now + 30 * DAY),
        Validity::EndsIn(rest) => (now - DAY, now + rest),
    };
    let epoch = date_time_ymd(1970, 1, 1);
    (params.not_before, params.not_after) = (epoch + from, epoch + to);
    params
}
