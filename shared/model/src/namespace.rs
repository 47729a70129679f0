//! The prefix of every queue and key, so that several installations can share their servers.

/// Checks a namespace: 1 to 32 characters of `a-z 0-9 _ . -`. The bound keeps the names of queues
/// far below the 255 bytes of AMQP 0-9-1.
///
/// # Errors
/// The form that the value must have.
pub fn namespace(text: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b);
    if (1..=32).contains(&text.len()) && text.bytes().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err("must be 1 to 32 characters of a-z 0-9 _ . -".to_owned())
    }
}
