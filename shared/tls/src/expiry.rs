//! The end of a certificate's validity, for those who must renew it.

use std::{path::Path, time::SystemTime};

use rustls::pki_types::CertificateDer;

use crate::files::{FileError, PemFile};

/// Returns the expiry of the first certificate to expire; none if one of them cannot be read.
pub fn earliest(chain: &[CertificateDer<'_>]) -> Option<SystemTime> {
    let expiries: Option<Vec<SystemTime>> = chain.iter().map(|one| expiry(one)).collect();
    expiries?.into_iter().min()
}

/// Returns the expiry of the first certificate of a file to expire.
///
/// # Errors
/// If the file cannot be used.
pub fn of_file(path: &Path) -> Result<Option<SystemTime>, FileError> {
    Ok(earliest(&PemFile::read(path)?.certificates()?))
}

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Reads `notAfter` (RFC 5280 section 4.1): the second time of the validity, which follows version,
/// serial number, algorithm and issuer. The signature is not checked.
fn expiry(certificate: &[u8]) -> Option<SystemTime> {
    let fields = inside(SEQUENCE, inside(SEQUENCE, certificate)?)?;
    let (first, _, rest) = element(fields)?;
    let mut fields = if first == VERSION { rest } else { fields };
    for _ in ["serial number", "algorithm", "issuer"] {
        fields = element(fields)?.2;
    }
    let (_, _, not_after) = element(inside(SEQUENCE, fields)?)?;
    let (tag, time, _) = element(not_after)?;
    let time = std::str::from_utf8(time).ok().filter(|time| time.is_ascii())?;
    let time = match tag {
        // Two digits of the year, from 1950 to 2049.
        UTC_TIME if time.get(..2)? < "50" => format!("20{time}"),
        UTC_TIME => format!("19{time}"),
        GENERALIZED_TIME => time.to_owned(),
        _ => return None,
    };
    let (date, clock) = time.strip_suffix('Z').filter(|time| time.len() == 14)?.split_at(8);
    let [year, month, day] = [date.get(..4)?, date.get(4..6)?, date.get(6..)?];
    let [hour, minute, second] = [clock.get(..2)?, clock.get(2..4)?, clock.get(4..)?];
    humantime::parse_rfc3339(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z")).ok()
}

/// Returns the contents of the first element, which must have this tag.
fn inside(tag: u8, der: &[u8]) -> Option<&[u8]> {
    element(der).filter(|element| element.0 == tag).map(|element| element.1)
}

/// Reads the first element: its tag, its contents, and the bytes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        ..=0x7f => (usize::from(length), rest),
        // So many bytes of the length follow.
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length - 0x80))?;
            (bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
        let contents = contents.concat();
        let length = u8::try_from(contents.len()).unwrap();
        let head: &[u8] = if length < 0x80 { &[tag, length] } else { &[tag, 0x81, length] };
        [head, &contents].concat()
    }

    /// A certificate with an issuer of this length, as far as it is read.
    fn certificate(version: &[u8], issuer: usize, not_after: &[u8]) -> Vec<u8> {
        let validity = der(SEQUENCE, &[&der(UTC_TIME, &[b"260101000000Z"]), not_after]);
        let issuer = der(SEQUENCE, &[&vec![0; issuer]]);
        let serial = der(2, &[&[7]]);
        let fields = [version, &serial, &der(SEQUENCE, &[]), &issuer, &validity];
        der(SEQUENCE, &[&der(SEQUENCE, &fields)])
    }

    fn shown(certificate: &[u8]) -> Option<String> {
        Some(humantime::format_rfc3339(expiry(certificate)?).to_string())
    }

    #[test]
    fn the_end_of_the_validity_is_read_from_both_forms_of_time() {
        let version = der(VERSION, &[&der(2, &[&[2]])]);
        for (version, tag, time, expected) in [
            (&version[..], UTC_TIME, "270228235959Z", "2027-02-28T23:59:59Z"),
            (&[], UTC_TIME, "500101000000Z", "1950-01-01T00:00:00Z"),
            (&version, GENERALIZED_TIME, "20610301120000Z", "2061-03-01T12:00:00Z"),
        ] {
            let certificate = certificate(version, 100, &der(tag, &[time.as_bytes()]));
            let expected = (!expected.starts_with("19")).then(|| expected.to_owned());
            assert_eq!(shown(&certificate), expected, "times before 1970 are unknown");
        }
    }

    #[test]
    fn a_certificate_that_is_cut_or_wrong_at_any_byte_is_read_without_a_panic() {
        let whole = certificate(&[], 3, &der(UTC_TIME, &[b"270228235959Z"]));
        for at in 0..whole.len() {
            assert_eq!(expiry(&whole[..at]), None, "{at}");
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut wrong = whole.clone();
                wrong[at] = byte;
                let _ = expiry(&wrong);
            }
        }
        for time in ["270230000000Z", "2702282359Z", "270228235959+0100", "\u{ff}70228235959Z"] {
            let certificate = certificate(&[], 3, &der(UTC_TIME, &[time.as_bytes()]));
            assert_eq!(expiry(&certificate), None, "{time}");
        }
    }
}
