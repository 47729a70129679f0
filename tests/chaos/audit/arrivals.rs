//! Arrivals at the listeners: a count for each push and listener.

use push_tests::devices::Devices;
use serde_json::Value;
use uuid::Uuid;

use crate::{audit::book::Book, load::audience::LISTENERS};

/// Reads the files in which the listeners write what they receive, as they grow.
pub(crate) struct Arrivals {
    devices: Devices,
    offsets: Vec<u64>,
    /// Counts, by push and then by listener.
    counts: Vec<[u8; LISTENERS]>,
}

impl Arrivals {
    pub(crate) fn new(devices: Devices) -> Self {
        Self { offsets: vec![0; devices.all.len()], devices, counts: Vec::new() }
    }

    /// Reads what is new. A message that was never posted is a violation and goes into the book.
    pub(crate) fn read(&mut self, book: &Book) {
        for listener in 0..self.devices.all.len() {
            loop {
                let device = &self.devices.all[listener];
                let new = device.received_since(&mut self.offsets[listener]).expect("its file");
                if new.is_empty() {
                    break;
                }
                for payload in new {
                    if let Err(wrong) = self.take(listener, &payload, book) {
                        book.violated(format!("listener {listener} received {payload}: {wrong}"));
                    }
                }
            }
        }
    }

    fn take(&mut self, listener: usize, payload: &str, book: &Book) -> Result<(), &'static str> {
        let payload: Value = serde_json::from_str(payload).map_err(|_| "no JSON")?;
        let id: Option<Uuid> = payload["message_id"].as_str().and_then(|id| id.parse().ok());
        let number: Option<u32> = payload["data"]["n"].as_str().and_then(|n| n.parse().ok());
        let (id, number) = id.zip(number).ok_or("no id or no number")?;
        if book.get(number).posted.is_none() {
            return Err("never posted");
        }
        book.learn(number, id);
        let place = number as usize;
        if self.counts.len() <= place {
            self.counts.resize(place + 1, [0; LISTENERS]);
        }
        let count = &mut self.counts[place][listener];
        *count = count.saturating_add(1);
        Ok(())
    }

    /// Returns how often each listener received a push.
    pub(crate) fn of(&self, number: u32) -> [u8; LISTENERS] {
        self.counts.get(number as usize).copied().unwrap_or([0; LISTENERS])
    }
}
