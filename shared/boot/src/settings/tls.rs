//! Checks the settings about certificate files: which must be set together, and if the files can be
//! used.

use std::{error::Error as _, path::PathBuf};

use push_tls::{
    FileError,
    client::{ClientFiles, ClientTls, Identity},
    server::TlsSettings,
};

use super::{ConfigErrors, secret::SecretText, variable};
use crate::values::may_hold_secret;

/// A flag and its value, if it was set.
pub type Flag<'a> = (&'a str, Option<&'a SecretText>);

/// Checks the certificate of a listener; problems are added to `errors`. Returns `Some(None)` if
/// neither flag is set: the listener is then unencrypted.
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
            errors.note(unusable(&[certificate, key], &error));
            None
        }
    }
}

/// The flags about the TLS of the connections to one server.
#[derive(Debug, Clone, Copy)]
pub struct ClientFlags<'a> {
    /// The file of the authorities that are trusted.
    pub authorities: Flag<'a>,
    /// The file of the client certificate.
    pub certificate: Flag<'a>,
    /// The file of its key.
    pub key: Flag<'a>,
    /// The schemes with which the server's URL asks for TLS.
    pub schemes: &'a str,
}

/// Checks the settings of TLS to a server; problems are added to `errors`. `encrypted` is true if
/// the URL of the server asks for TLS, and `None` if the URL cannot be used. Returns `Some(None)`
/// for a connection without TLS.
pub fn client(
    flags: ClientFlags<'_>,
    encrypted: Option<bool>,
    errors: &mut ConfigErrors,
) -> Option<Option<ClientTls>> {
    let pair = pair(flags.certificate, flags.key, errors);
    let all = [flags.authorities, flags.certificate, flags.key];
    let set: Vec<Flag<'_>> = all.into_iter().filter(|flag| flag.1.is_some()).collect();
    if !encrypted? {
        for (flag, _) in &set {
            let (flag, schemes) = (setting(flag), flags.schemes);
            errors.note(format!("{flag} is of use only for a URL that begins with {schemes}"));
        }
        return set.is_empty().then_some(None);
    }
    let files = ClientFiles {
        authorities: flags.authorities.1.map(path),
        identity: pair?.map(|(certificate, key)| Identity { certificate, key }),
    };
    match ClientTls::new(files) {
        Ok(tls) => Some(Some(tls)),
        Err(error) => {
            let concerned = if set.is_empty() { vec![flags.authorities] } else { set };
            errors.note(unusable(&concerned, &error));
            None
        }
    }
}

/// Reads two flags that must be set together; problems are added to `errors`.
fn pair(
    certificate: Flag<'_>,
    key: Flag<'_>,
    errors: &mut ConfigErrors,
) -> Option<Option<(PathBuf, PathBuf)>> {
    match (certificate.1, key.1) {
        (None, None) => Some(None),
        (Some(certificate), Some(key)) => Some(Some((path(certificate), path(key)))),
        _ => {
            let (certificate, key) = (setting(certificate.0), setting(key.0));
            errors.note(format!("{certificate} and {key} must be set together"));
            None
        }
    }
}

fn path(file: &SecretText) -> PathBuf {
    PathBuf::from(file.expose())
}

fn setting(flag: &str) -> String {
    format!("{flag} ({})", variable(flag))
}

/// Describes the fault of the files of these flags. The text names the file, unless its name may be a
/// URL with a password that was given to the wrong flag.
fn unusable(flags: &[Flag<'_>], error: &FileError) -> String {
    let names: Vec<String> = flags.iter().map(|(flag, _)| setting(flag)).collect();
    let names = names.join(", ");
    if flags.iter().any(|(_, file)| file.is_some_and(|file| may_hold_secret(file.expose()))) {
        return format!(
            "{names}: no such file can be used; its name is not shown, because it may hold a \
             password"
        );
    }
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{names}: {error}{cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: Option<&str>) -> Option<SecretText> {
        text.map(|text| text.to_owned().into())
    }

    fn check(certificate: Option<&str>, key: Option<&str>) -> Result<Option<TlsSettings>, String> {
        let mut errors = ConfigErrors::default();
        let (certificate, key) = (text(certificate), text(key));
        let certificate = ("--tls-cert", certificate.as_ref());
        let settings = listener(certificate, ("--tls-key", key.as_ref()), &mut errors);
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

    fn check_client(file: Option<&str>, encrypted: bool) -> Result<Option<ClientTls>, String> {
        let mut errors = ConfigErrors::default();
        let file = text(file);
        let flags = ClientFlags {
            authorities: ("--queue-ca", file.as_ref()),
            certificate: ("--queue-cert", None),
            key: ("--queue-key", None),
            schemes: "amqps://",
        };
        let tls = client(flags, Some(encrypted), &mut errors);
        errors.finish(tls).map_err(|errors| errors.to_string())
    }

    #[test]
    fn a_file_for_a_connection_in_clear_is_a_configuration_error() {
        assert_eq!(check_client(None, false), Ok(None));
        let text = check_client(Some("/ca.pem"), false).unwrap_err();
        assert!(
            text.contains("--queue-ca (PUSH_QUEUE_CA) is of use only") && text.contains("amqps://"),
            "{text}"
        );
        let text = check_client(Some("/no/ca.pem"), true).unwrap_err();
        assert!(text.contains("PUSH_QUEUE_CA): /no/ca.pem cannot be read"), "{text}");
    }

    #[test]
    fn a_url_that_was_given_as_a_file_is_not_repeated() {
        let text = check(Some("amqp://u:hunter2@h"), Some("/no/such.key")).unwrap_err();
        assert!(text.contains("PUSH_TLS_CERT") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_a_configuration_error_that_names_it() {
        let text = check(Some("/no/such.pem"), Some("/no/such.key")).unwrap_err();
        assert!(text.contains("PUSH_TLS_KEY): /no/such.pem cannot be read: No such"), "{text}");
    }
}
