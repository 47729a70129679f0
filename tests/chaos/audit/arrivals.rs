//! Arrivals at the listeners: a count for each push and listener. What a provider has taken has arrived.

use push_tests::{devices::Devices, phone_server::Receipt};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    audit::book::Book,
    load::audience::{LISTENERS, Link},
    providers::Taken,
};

/// Reads the files in which the listeners over MQTT write what they receive, as they grow, and what the
/// providers report.
pub(crate) struct Arrivals {
    devices: Devices,
    offsets: Vec<u64>,
    taken: Taken,
    /// Counts, by push and then by listener.
    counts: Vec<[u8; LISTENERS]>,
}

impl Arrivals {
    pub(crate) fn new(devices: Devices, taken: Taken) -> Self {
        Self { offsets: vec![0; devices.all.len()], devices, taken, counts: Vec::new() }
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
                    let read = serde_json::from_str(&payload).map_err(|_| "no JSON");
                    let taken = read.and_then(|read: Value| self.take(listener, &read, book));
                    if let Err(wrong) = taken {
                        book.violated(format!("listener {listener} received {payload}: {wrong}"));
                    }
                }
            }
        }
        while let Ok(receipt) = self.taken.fcm.try_recv() {
            self.take_receipt(Link::Fcm, &receipt, book);
        }
        while let Ok(receipt) = self.taken.webhook.try_recv() {
            self.take_receipt(Link::Webhook, &receipt, book);
        }
    }

    fn take_receipt(&mut self, link: Link, receipt: &Receipt, book: &Book) {
        let mut body: Value = serde_json::from_slice(&receipt.body).unwrap_or_default();
        let payload = match link {
            // FCM has the id among the data.
            Link::Fcm => {
                let data = body["message"]["data"].take();
                json!({"message_id": data["message_id"], "data": data})
            }
            Link::Mqtt | Link::Webhook => body["payload"].take(),
        };
        let listener = link.listener(&receipt.device).ok_or("no listener");
        if let Err(wrong) = listener.and_then(|listener| self.take(listener, &payload, book)) {
            book.violated(format!("{link:?} took {body} for {}: {wrong}", receipt.device));
        }
    }

    fn take(&mut self, listener: usize, payload: &Value, book: &Book) -> Result<(), &'static str> {
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
