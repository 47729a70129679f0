//! Why a use case was not done, for a caller that must answer with a code: read from the types of errors, never
//! from their texts.

use std::error::Error;

use push_index::PutRefused;
use push_model::{app::NotAdded, device::BadDevice};
use push_queue::QueueError;
use push_store::IndexError;

/// A use case refuses. Failures of stores are errors of their own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What it is about does not exist.
    #[error("{0}")]
    Missing(String),
    /// The present state of what it is about does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// What the caller gave is wrong.
    #[error("{0}")]
    Invalid(String),
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// What it is about does not exist.
    Missing,
    /// The present state of what it is about does not allow it.
    Conflict,
    /// What the caller gave is wrong.
    Invalid,
    /// A store or the queue does not do it now: another try can help.
    Unavailable,
    /// Anything else, which the caller cannot change.
    Internal,
}

impl FailureKind {
    /// The kind of the error of a use case.
    pub fn of(error: &anyhow::Error) -> Self {
        error.chain().find_map(Self::of_cause).unwrap_or(Self::Internal)
    }

    fn of_cause(cause: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(refusal) = cause.downcast_ref::<Refusal>() {
            return Some(match refusal {
                Refusal::Missing(_) => Self::Missing,
                Refusal::Conflict(_) => Self::Conflict,
                Refusal::Invalid(_) => Self::Invalid,
            });
        }
        if let Some(error) = cause.downcast_ref::<IndexError>() {
            return Some(if error.may_pass() { Self::Unavailable } else { Self::Internal });
        }
        if let Some(error) = cause.downcast_ref::<QueueError>() {
            return Some(match error {
                QueueError::Unavailable(_)
                | QueueError::Blocked(_)
                | QueueError::Refused(_)
                | QueueError::Closed => Self::Unavailable,
                QueueError::Unroutable | QueueError::Topology(_) => Self::Internal,
            });
        }
        if cause.is::<NotAdded>() || cause.is::<PutRefused>() {
            return Some(Self::Conflict);
        }
        cause.is::<BadDevice>().then_some(Self::Invalid)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn the_kind_of_a_failure_is_read_from_its_type_behind_any_context() {
        let refuse = |refusal: Refusal| Err::<(), _>(refusal).context("while changing it");
        let text = || "x".to_owned();
        for (error, kind) in [
            (refuse(Refusal::Missing(text())), FailureKind::Missing),
            (refuse(Refusal::Conflict(text())), FailureKind::Conflict),
            (refuse(Refusal::Invalid(text())), FailureKind::Invalid),
            (Err(IndexError::Refused("x".into()).into()), FailureKind::Unavailable),
            (Err(IndexError::Corrupt(text()).into()), FailureKind::Internal),
            (Err(QueueError::Closed.into()), FailureKind::Unavailable),
            (Err(anyhow::anyhow!("there is no app")), FailureKind::Internal),
        ] {
            assert_eq!(FailureKind::of(&error.unwrap_err()), kind);
        }
    }
}
