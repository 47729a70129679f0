//! An error with its causes in one line, as `anyhow` prints it.

use std::error::Error;

/// An error's text and those of its causes. Some libraries name an error as its own cause; that text
/// is not repeated.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
