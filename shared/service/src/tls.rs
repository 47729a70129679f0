//! The settings about certificate files: whether they belong together, and whether the files can be
//! used.

use std::{error::Error as _, path::PathBuf};

use push_tls::{FileError, server::TlsSettings};

use crate::settings::{ConfigErrors, variable};

/// A flag and its value, if it was set.
pub type Flag<'a> = (&'a str, Option<&'a str>);

/// The certificate of a listener. Problems are added to `errors`. `Some(None)` means that neither
/// flag is set: the listener is to be in clear.
pub fn listener(
    certificate: Flag<'_>,
    key: Flag<'_>,
    errors: &mut ConfigErrors,
) -> Option<Option<TlsSettings>> {
    let Some((certificate_file, key_file)) = pair(certificate, key, errors)? else {
        return Some(None);
    };
    let settings = TlsSettings { certificate: certificate_file, key: key_file };
    match settings.check() {
        Ok(()) => Some(Some(settings)),
        Err(error) => {
            errors.note(unusable(&[certificate.0, key.0], &error));
            None
        }
    }
}

/// Two files that are of use only together.
fn pair(
    certificate: Flag<'_>,
    key: Flag<'_>,
    errors: &mut ConfigErrors,
) -> Option<Option<(PathBuf, PathBuf)>> {
    match (certificate.1, key.1) {
        (None, None) => Some(None),
        (Some(certificate), Some(key)) => Some(Some((certificate.into(), key.into()))),
        _ => {
            let (certificate, key) = (setting(certificate.0), setting(key.0));
            errors.note(format!("{certificate} and {key} must be set together"));
            None
        }
    }
}

fn setting(flag: &str) -> String {
    format!("{flag} ({})", variable(flag))
}

/// What is wrong with the files of these flags. The error names the file that it is about.
fn unusable(flags: &[&str], error: &FileError) -> String {
    let flags: Vec<String> = flags.iter().map(|flag| setting(flag)).collect();
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{}: {error}{cause}", flags.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(certificate: Option<&str>, key: Option<&str>) -> Result<Option<TlsSettings>, String> {
        let mut errors = ConfigErrors::default();
        let settings = listener(("--tls-cert", certificate), ("--tls-key", key), &mut errors);
        errors.finish(settings).map_err(|errors| errors.to_string())
    }

    #[test]
    fn certificate_and_key_are_set_together_or_not_at_all() {
        assert_eq!(check(None, None), Ok(None));
        for text in [check(Some("/a"), None).unwrap_err(), check(None, Some("/a")).unwrap_err()] {
            assert!(
                text.contains("--tls-cert (PUSH_TLS_CERT) and --tls-key (PUSH_TLS_KEY) must be"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_file_that_cannot_be_used_is_a_configuration_error_that_names_it() {
        let text = check(Some("/no/such.pem"), Some("/no/such.key")).unwrap_err();
        assert!(text.contains("PUSH_TLS_KEY): /no/such.pem cannot be read: No such"), "{text}");
    }
}
