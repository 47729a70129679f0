//! The faults of a file, as texts that name the file and say what it must hold.

use std::path::PathBuf;

use rustls::pki_types::pem;

/// A certificate file or a key file cannot be used. No text contains any of a file's contents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file is missing, or this user may not read it.
    #[error("{} cannot be read", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is larger than any list of certificates.
    #[error("{} is larger than {limit} bytes", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The largest allowed size.
        limit: u64,
    },
    /// A section of the file is damaged.
    #[error("{} is not valid PEM", .path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: pem::Error,
    },
    /// There is no `BEGIN CERTIFICATE` in the file.
    #[error("{} has no certificate in PEM form (BEGIN CERTIFICATE)", .path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// There is no private key in the file.
    #[error(
        "{} has no private key in PEM form (BEGIN PRIVATE KEY, EC PRIVATE KEY or RSA PRIVATE KEY)",
        .path.display()
    )]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The key is encrypted with a passphrase.
    #[error("the private key in {} is encrypted; it must be stored without a passphrase", .path.display())]
    EncryptedKey {
        /// The file.
        path: PathBuf,
    },
    /// The certificate has an unknown form.
    #[error("the certificate in {} cannot be used", .path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
    /// The key has an unknown form or an unsupported kind.
    #[error("the private key in {} cannot be used", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
    /// Certificate and key are not a pair.
    #[error(
        "the private key in {} does not belong to the first certificate in {}",
        .key.display(), .certificate.display()
    )]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The authorities of this machine cannot be used, and no file names others.
    #[error("this machine has no certificate authorities that can be used")]
    NoAuthorities(#[source] rustls::Error),
    /// TLS cannot be used at all.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}
