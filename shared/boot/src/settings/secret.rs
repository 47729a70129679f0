//! Settings that may hold a password, such as the URL of a server.
//!
//! Such a setting has two forms: the value itself (`--queue-url`, `PUSH_QUEUE_URL`), and a file that
//! holds it (`--queue-url-file`, `PUSH_QUEUE_URL_FILE`), as Docker and Kubernetes hand secrets to a
//! container. The file is read once, at start. Neither form is printed: the type of the value has no
//! `Display`, and no error repeats what a file holds.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::Path,
};

use push_model::text::str_without_mark;

use super::flag_of;
use crate::values::may_hold_secret;

/// The largest file of a secret, in bytes.
const MAX_FILE: usize = 64 * 1024;

/// A text that may hold a secret, such as the value of a flag: even one that takes none may be given
/// a password by mistake. It has no `Display`, and its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// Returns the secret, for connecting and logging in.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// Reads a setting from its value or its file, at most one of which may be given. The byte order
/// mark and the line end of the file are left out.
///
/// # Errors
/// If both forms are given, or the file cannot be used. The text never repeats the file's content.
pub(super) fn read(
    flag: &str,
    text: Option<&SecretText>,
    file: Option<&Path>,
) -> Result<Option<SecretText>, String> {
    match (text, file) {
        (Some(_), Some(_)) => Err(format!("is given, and {flag}-file too: remove one of them")),
        (Some(text), None) => Ok(Some(text.clone())),
        (None, Some(file)) => {
            read_file(file).map(Some).map_err(|problem| format!("its file{} {problem}", name(file)))
        }
        (None, None) => Ok(None),
    }
}

/// Returns the help of the flag that names a file with the value of another one.
pub fn help_of_file(field: &str) -> String {
    format!("Read {} from this file", flag_of(field))
}

/// Returns the file's name, unless it may be the value itself, given to the wrong setting.
fn name(file: &Path) -> String {
    let name = file.display().to_string();
    if may_hold_secret(&name) { String::new() } else { format!(" {name}") }
}

fn read_file(file: &Path) -> Result<SecretText, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        // One byte more than the limit shows that there is more.
        File::open(file)?.take(MAX_FILE as u64 + 1).read_to_end(&mut content)?;
        Ok(content)
    };
    let content = read().map_err(|error| format!("cannot be read: {error}"))?;
    if content.len() > MAX_FILE {
        return Err(format!("is larger than {} KiB", MAX_FILE / 1024));
    }
    let Ok(text) = String::from_utf8(content) else { return Err("is not text".to_owned()) };
    match str_without_mark(&text).trim_end_matches(['\r', '\n']) {
        "" => Err("is empty".to_owned()),
        text => Ok(SecretText(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAG: &str = "--queue-url";

    fn of(content: impl AsRef<[u8]>) -> Result<Option<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("url");
        std::fs::write(&file, content).unwrap();
        let read = read(FLAG, None, Some(&file));
        read.map(|secret| secret.map(|secret| secret.expose().to_owned()))
    }

    #[test]
    fn a_file_holds_the_value_and_may_end_with_a_line_end() {
        for content in ["amqp://u:hunter2@h", "amqp://u:hunter2@h\n", "amqp://u:hunter2@h\r\n"] {
            assert_eq!(of(content), Ok(Some("amqp://u:hunter2@h".to_owned())));
        }
        let marked = of("\u{feff}amqp://u:hunter2@h\r\n").unwrap();
        assert_eq!(marked.as_deref(), Some("amqp://u:hunter2@h"));
        assert_eq!(of(" x \n").unwrap().as_deref(), Some(" x "));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_without_its_content() {
        let large = "hunter2".repeat(MAX_FILE / 7 + 1);
        for (content, problem) in [
            (&b"\n"[..], "is empty"),
            ("\u{feff}\n".as_bytes(), "is empty"),
            (b"hunter2\xff", "is not text"),
            (large.as_bytes(), "is larger than 64 KiB"),
        ] {
            let error = of(content).unwrap_err();
            assert!(error.contains("/url ") && error.ends_with(problem), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        for missing in ["/nowhere/url", "/"] {
            let error = read(FLAG, None, Some(Path::new(missing))).unwrap_err();
            assert!(error.contains(missing) && error.contains("cannot be read"), "{error}");
        }
        let value = Path::new("amqp://u:hunter2@h");
        let error = read(FLAG, None, Some(value)).unwrap_err();
        assert!(error.starts_with("its file cannot be read"), "{error}");
    }

    #[test]
    fn a_value_and_a_file_together_are_an_error() {
        let text = SecretText("hunter2".to_owned());
        let error = read(FLAG, Some(&text), Some(Path::new("/a"))).unwrap_err();
        assert!(error.contains("--queue-url-file") && !error.contains("hunter2"), "{error}");
        assert_eq!(format!("{text:?}").find("hunter2"), None);
    }
}
