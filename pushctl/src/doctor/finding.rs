//! One line of the report of `pushctl doctor`.

use push_index::{Finding, Level};

pub(super) fn finding(
    level: Level,
    subject: impl Into<String>,
    detail: impl Into<String>,
) -> Finding {
    Finding { level, subject: subject.into(), detail: detail.into() }
}
