//! Until when a certificate is valid, for those who must renew it.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use rustls::pki_types::CertificateDer;

use crate::files::{FileError, PemFile};

/// Returns the expiry of the first certificate to expire; none if one of them cannot be read.
pub fn earliest(chain: &[CertificateDer<'_>]) -> Option<SystemTime> {
    let expiries: Option<Vec<SystemTime>> = chain.iter().map(expiry).collect();
    expiries?.into_iter().min()
}

/// Returns the expiry of the first certificate of a file to expire.
///
/// # Errors
/// If the file cannot be used.
pub fn of_file(path: &Path) -> Result<Option<SystemTime>, FileError> {
    Ok(earliest(&PemFile::read(path)?.certificates()?))
}

fn expiry(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}
