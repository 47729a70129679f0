//! Reading PEM files: certificates, and a private key in any of its three usual forms.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use rustls::{
    Error, InconsistentKeys,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    sign::CertifiedKey,
};

use super::FileError;

/// The largest file, in bytes: the authorities of a whole machine take some 200,000.
const LIMIT: u64 = 1024 * 1024;

/// Editors on Windows begin a text with this mark, which would hide the first line of a certificate.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The first line of a PKCS #8 key that needs a passphrase.
const ENCRYPTED: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";

/// A file and its contents, which may be a private key: it has no `Debug`.
pub(crate) struct PemFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl PemFile {
    pub(crate) fn read(path: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError::Read { path: path.to_owned(), source };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(LIMIT + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > LIMIT {
            return Err(FileError::TooLarge { path: path.to_owned(), limit: LIMIT });
        }
        if bytes.starts_with(BYTE_ORDER_MARK) {
            bytes.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(Self { path: path.to_owned(), bytes })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All certificates of the file, at least one.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, FileError> {
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(&self.bytes)
            .collect::<Result<_, _>>()
            .map_err(|source| self.damaged(source))?;
        if certificates.is_empty() {
            return Err(FileError::NoCertificate { path: self.path.clone() });
        }
        Ok(certificates)
    }

    /// The first private key of the file.
    fn private_key(&self) -> Result<PrivateKeyDer<'static>, FileError> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|source| match source {
            pem::Error::NoItemsFound if contains(&self.bytes, ENCRYPTED) => {
                FileError::EncryptedKey { path: self.path.clone() }
            }
            pem::Error::NoItemsFound => FileError::NoKey { path: self.path.clone() },
            source => self.damaged(source),
        })
    }

    fn damaged(&self, source: pem::Error) -> FileError {
        FileError::Pem { path: self.path.clone(), source }
    }
}

/// A certificate with the chain up to its authority, and its key.
pub(crate) fn certified_key(
    certificate: &PemFile,
    key: &PemFile,
) -> Result<CertifiedKey, FileError> {
    let (chain, private_key) = (certificate.certificates()?, key.private_key()?);
    CertifiedKey::from_der(chain, private_key, &crate::provider()).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            FileError::Mismatch { certificate: certificate.path.clone(), key: key.path.clone() }
        }
        Error::InvalidCertificate(_) => {
            FileError::Certificate { path: certificate.path.clone(), source: error }
        }
        _ => FileError::Key { path: key.path.clone(), source: error },
    })
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
