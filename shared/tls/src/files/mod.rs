//! Certificates and keys in PEM files.
//!
//! - `pem`: reading the files, and what they hold
//! - `error`: what can be wrong with them
//! - `watched`: a value made from files, made again when their contents change

mod error;
mod pem;
mod watched;

pub use self::error::FileError;
pub(crate) use self::{
    pem::{PemFile, certified_key},
    watched::Watched,
};
