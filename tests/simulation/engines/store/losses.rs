//! The writes that the index could lose, and those that it lost.

use push_model::{ids::MessageId, ledger::Entry};

use super::Store;
use crate::oracle::custody::{Custody, Touched};

/// The means to undo a write when the index loses it.
#[derive(Debug)]
pub(super) struct Undo {
    pub(super) message: MessageId,
    before: Option<Entry>,
    touched: Option<Touched>,
    /// The hand-over that it saved.
    saved: Option<usize>,
    /// Devices that it counted as expired or recalled.
    written_off: u64,
}

/// The index's losses about one message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LostWrites {
    pub(crate) something: bool,
    /// True if that was after the last closing check.
    pub(crate) since_last_look: bool,
    pub(crate) write_offs: u64,
}

impl Store {
    /// Keeps what is needed to undo a write.
    pub(super) fn note(
        &mut self,
        message: MessageId,
        before: Option<Entry>,
        touched: Option<Touched>,
        saved: Option<usize>,
        written_off: u64,
    ) {
        self.journal.push(Undo { message, before, touched, saved, written_off });
    }

    /// Returns how many writes the index could lose.
    pub(crate) fn journal_len(&self) -> usize {
        self.journal.len()
    }

    pub(crate) fn last_written(&self) -> Option<MessageId> {
        self.journal.last().map(|undo| undo.message)
    }

    /// The index loses its last writes.
    pub(crate) fn forget(
        &mut self,
        writes: usize,
        custody: &mut Custody,
    ) -> Vec<(MessageId, Touched)> {
        let mut touched_messages = Vec::new();
        for _ in 0..writes {
            let Some(undo) = self.journal.pop() else { break };
            match &undo.before {
                Some(entry) => self.ledger.insert(undo.message, entry.clone()),
                None => self.ledger.remove(&undo.message),
            };
            touched_messages.extend(undo.touched.map(|touched| (undo.message, touched)));
            self.lose(undo, custody);
        }
        touched_messages
    }

    /// The index loses the entry of a message.
    pub(crate) fn forget_entry(&mut self, message: MessageId, custody: &mut Custody) {
        let (lost, kept) =
            std::mem::take(&mut self.journal).into_iter().partition(|u| u.message == message);
        self.journal = kept;
        self.ledger.remove(&message);
        let lost: Vec<Undo> = lost;
        for undo in lost {
            self.lose(undo, custody);
        }
    }

    fn lose(&mut self, undo: Undo, custody: &mut Custody) {
        let Undo { message, touched, saved, written_off, .. } = undo;
        if self.ledger.get(&message).is_none_or(|entry| entry.recalled_at.is_none())
            && let Some(recalled) = self.recalled.get_mut(&message)
        {
            *recalled = None;
        }
        let Some(touched) = touched else { return };
        let lost = self.lost_writes.entry(message).or_default();
        lost.something = true;
        lost.since_last_look = true;
        lost.write_offs += written_off;
        custody.lost_write(saved, message, touched);
    }

    pub(crate) fn lost_writes(&self, message: &MessageId) -> LostWrites {
        self.lost_writes.get(message).copied().unwrap_or_default()
    }
}
