//! The reasons why no token was issued.

/// No token could be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// The set has no key that signs at this time.
    #[error("no device key signs at this time: make one with `pushctl key rotate`")]
    NoKey,
    /// The operating system gave no random numbers.
    #[error("the operating system gives no random numbers")]
    Random,
}
