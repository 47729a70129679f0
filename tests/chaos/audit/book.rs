//! The suite's own record of every push, in a few bytes each, and the violations it found.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use push_tests::invariants::Counts;
use uuid::Uuid;

use crate::load::client::Answer;

/// Violations that are kept: the first ones are nearest to their cause.
const MAX_VIOLATIONS: usize = 20;

/// The record of one push.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Record {
    pub(crate) posted: Option<Instant>,
    /// True if it was answered 200.
    pub(crate) accepted: bool,
    /// Its message id, from an answer or from an arrival.
    pub(crate) id: Option<Uuid>,
    /// When the ledger was first seen closed.
    pub(crate) closed: Option<Instant>,
    /// When the auditors gave up reading an entry that stays open, because the index lost writes.
    pub(crate) left_open: bool,
}

/// The records of all pushes, and the violations of the guarantees.
pub(crate) struct Book {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    records: Vec<Record>,
    /// Accepted, and not seen closed yet.
    open: VecDeque<u32>,
    /// The last report on each of those, and how often the index had lost writes before it.
    counts: HashMap<u32, (u64, Counts)>,
    violations: Vec<String>,
}

impl Book {
    /// A book for pushes with numbers below `count`; it grows if more come.
    pub(crate) fn new(count: u32) -> Self {
        let records = vec![Record::default(); count as usize];
        Self { inner: Mutex::new(Inner { records, ..Inner::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn posting(&self, number: u32) {
        let inner = &mut *self.lock();
        inner.record(number).posted.get_or_insert_with(Instant::now);
    }

    /// The next unused number.
    pub(crate) fn new_number(&self) -> u32 {
        let inner = &mut *self.lock();
        inner.records.push(Record::default());
        u32::try_from(inner.records.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn answered(&self, number: u32, answer: Answer) {
        match answer {
            Answer::Accepted(id) => {
                self.learn(number, id);
                let inner = &mut *self.lock();
                if !std::mem::replace(&mut inner.record(number).accepted, true) {
                    inner.open.push_back(number);
                }
            }
            Answer::Maybe => {}
            Answer::Wrong(answer) => self.violated(format!("push {number} was answered {answer}")),
        }
    }

    /// Notes the message id of a push. A second, different id is a violation.
    pub(crate) fn learn(&self, number: u32, id: Uuid) {
        let known = *self.lock().record(number).id.get_or_insert(id);
        if known != id {
            self.violated(format!("push {number} is message {known} and also message {id}"));
        }
    }

    /// Returns the push that was accepted first among those not seen closed. The caller gives
    /// it back with [`look_again`](Self::look_again) if it is still open.
    pub(crate) fn next_open(&self) -> Option<u32> {
        self.lock().open.pop_front()
    }

    pub(crate) fn look_again(&self, number: u32) {
        self.lock().open.push_back(number);
    }

    /// Notes the report on an open push and how often the index had lost writes by then; returns
    /// what was noted before.
    pub(crate) fn counted(
        &self,
        number: u32,
        forgettings: u64,
        counts: Counts,
    ) -> Option<(u64, Counts)> {
        self.lock().counts.insert(number, (forgettings, counts))
    }

    pub(crate) fn closed(&self, number: u32) {
        let inner = &mut *self.lock();
        inner.counts.remove(&number);
        inner.record(number).closed.get_or_insert_with(Instant::now);
    }

    /// Stops reading the entry of a push that stays open.
    pub(crate) fn left_open(&self, number: u32) {
        self.closed(number);
        self.lock().record(number).left_open = true;
    }

    /// Returns how many were accepted and not seen closed.
    pub(crate) fn still_open(&self) -> Vec<u32> {
        let inner = self.lock();
        let open = inner.records.iter().zip(0..).filter(|(r, _)| r.accepted && r.closed.is_none());
        open.map(|(_, number)| number).collect()
    }

    pub(crate) fn get(&self, number: u32) -> Record {
        self.lock().records.get(number as usize).copied().unwrap_or_default()
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.lock().records.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn violated(&self, what: String) {
        let inner = &mut *self.lock();
        if inner.violations.len() < MAX_VIOLATIONS {
            inner.violations.push(what);
        }
    }

    /// # Errors
    /// All violations so far.
    pub(crate) fn violations(&self) -> Result<(), String> {
        let violations = &self.lock().violations;
        if violations.is_empty() { Ok(()) } else { Err(violations.join("\n")) }
    }
}

impl Inner {
    fn record(&mut self, number: u32) -> &mut Record {
        &mut self.records[number as usize]
    }
}
