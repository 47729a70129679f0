//! Lists the messages that a worker is working on, for the log of a drain that takes too long.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use push_model::time::UnixMillis;
use tracing::Span;

/// The messages in work.
#[derive(Debug, Clone, Default)]
pub(crate) struct InWork(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    rows: BTreeMap<u64, Row>,
}

/// One message in work.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// The span that identifies it in the log.
    pub(crate) span: Span,
    pub(crate) since: UnixMillis,
    /// The length of the envelope. Its content is never logged: it holds what people write to each
    /// other.
    pub(crate) bytes: usize,
}

/// Removes its row from the table when it is dropped, even by a panic or a cancellation.
#[derive(Debug)]
pub(crate) struct RowGuard {
    table: InWork,
    key: u64,
}

impl InWork {
    pub(crate) fn enter(&self, span: Span, bytes: usize, since: UnixMillis) -> RowGuard {
        let mut table = self.lock();
        let key = table.next;
        table.next += 1;
        table.rows.insert(key, Row { span, since, bytes });
        RowGuard { table: self.clone(), key }
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.lock().rows.values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RowGuard {
    fn drop(&mut self) {
        self.table.lock().rows.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_in_work_until_its_guard_is_dropped() {
        let in_work = InWork::default();
        let guard = in_work.enter(Span::none(), 10, UnixMillis(5));
        let rows = in_work.rows();
        let rows: Vec<_> = rows.iter().map(|row| (row.since, row.bytes)).collect();
        assert_eq!(rows, [(UnixMillis(5), 10)]);
        drop(guard);
        assert!(in_work.rows().is_empty());
    }
}
