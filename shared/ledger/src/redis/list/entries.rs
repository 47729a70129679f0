//! Reads the entries behind members.
//!
//! A page of the ledger has about a hundred records, and a page of the list needs a few of them. Their ids
//! tell their places, so the others are never decoded.

use std::collections::BTreeSet;

use push_model::{
    app::AppKey,
    ids::{AppTag, AudienceKind, LedgerPage, MessageId, PageField},
    ledger::{Entry, ListPlace, record},
    time::UnixMillis,
};
use push_store::{IndexError, redis::connection::reply};
use redis::{Cmd, Value};

use super::{
    member::{Target, message_of},
    merge::{Element, Found},
};
use crate::redis::{
    RedisLedger,
    eviction::{all_of, records_of},
    expanded,
    records::record_of,
    stored_entry::decode,
};

/// A page of the ledger has fewer entries, so that one step scans all.
const MOST_SCANNED: usize = 1024;

/// The request for the records of an app on a page. A page has the records of other apps as well, and each
/// value of an answer takes the program longer than it takes Redis to compare a field.
fn records_of_app(page: &str, AppTag(tag): AppTag) -> Cmd {
    let mut pattern = b"??????".to_vec();
    for byte in tag {
        if b"*?[]^-\\".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    let mut scan = redis::cmd("HSCAN");
    scan.arg(page).arg(0).arg("MATCH").arg(pattern).arg("COUNT").arg(MOST_SCANNED);
    scan
}

/// Reads the answer to [`records_of_app`].
fn scanned(answer: Value) -> Result<Vec<(PageField, Vec<u8>)>, IndexError> {
    let mut parts = reply::list(answer)?.into_iter();
    records_of(parts.nth(1).unwrap_or_else(|| Value::Array(Vec::new())))
}

impl RedisLedger {
    /// Finds the entries of an app behind members, each with its place and whether it is a broadcast.
    pub(super) async fn find(
        &self,
        app: &AppKey,
        elements: &[Element],
    ) -> Result<Vec<(ListPlace, Found, bool)>, IndexError> {
        let (tag, mut ask) = (AppTag::of(app), Vec::new());
        let mut pages = BTreeSet::new();
        let mut elements: Vec<&Element> = elements.iter().collect();
        elements.retain(|element| match element.target {
            Target::Page(window, bits) => pages.insert((element.stripe, window, bits)),
            Target::Entry(_) => true,
        });
        for Element { stripe, target, .. } in &elements {
            match target {
                Target::Page(window, bits) => {
                    let page = self.keys.stripe(*stripe).named_page(*window, *bits);
                    ask.push((*stripe, records_of_app(&page, tag)));
                }
                Target::Entry(place) => {
                    let keys = self.keys.message(app, &message_of(app, place.id));
                    let mut get = redis::cmd("HGET");
                    get.arg(&keys.page).arg(&keys.field.0);
                    ask.push((*stripe, get));
                    ask.push((*stripe, all_of(&keys.expanded_entry())));
                }
            }
        }
        let mut answers = self.ask_stripes(ask).await?.into_iter();
        let mut all = Vec::new();
        for Element { stripe, is_broadcast, target, .. } in elements {
            match target {
                Target::Page(window, [a, b]) => {
                    let page = LedgerPage::Shared(AudienceKind::Named, *window, [*stripe, *a, *b]);
                    for (field, record) in scanned(answers.next().unwrap_or_default())? {
                        let message = MessageId::from_page(page, field);
                        let place = ListPlace::of(&message, UnixMillis::default());
                        all.push((place, Found::Record(*stripe, record), false));
                    }
                }
                Target::Entry(place) => {
                    let record = record_of(answers.next().unwrap_or_default())?;
                    let fields = answers.next().unwrap_or_default();
                    let message = message_of(app, place.id);
                    let entry = match record {
                        Some(record) if !record::is_stub(&record) => {
                            decode(&app.id, &message, &record).ok()
                        }
                        _ => expanded_of(app, &message, fields),
                    };
                    // A message that was begun anew has a later member as well.
                    let entry = entry.filter(|entry| ListPlace::of_entry(entry) == *place);
                    let found = entry.map(|entry| Found::Entry(Box::new(entry)));
                    all.extend(found.map(|found| (*place, found, *is_broadcast)));
                }
            }
        }
        Ok(all)
    }

    /// Decodes the entries that were found, in order. Those that are gone by now, and those that a later
    /// version wrote, are left out.
    pub(super) async fn decode_found(
        &self,
        app: &AppKey,
        found: Vec<(ListPlace, Found)>,
    ) -> Result<Vec<Entry>, IndexError> {
        let ask = found.iter().filter_map(|(place, found)| {
            let stripe = found.stripe_of_stub()?;
            let keys = self.keys.message(app, &message_of(app, place.id));
            Some((stripe, all_of(&keys.expanded_entry())))
        });
        let mut answers = self.ask_stripes(ask.collect()).await?.into_iter();
        let decoded = found.into_iter().filter_map(|(place, found)| {
            let is_stub = found.stripe_of_stub().is_some();
            match found {
                Found::Entry(entry) => Some(*entry),
                Found::Record(..) if is_stub => {
                    let fields = answers.next().unwrap_or_default();
                    expanded_of(app, &message_of(app, place.id), fields)
                }
                Found::Record(_, record) => {
                    decode(&app.id, &message_of(app, place.id), &record).ok()
                }
            }
        });
        Ok(decoded.collect())
    }
}

/// An expanded entry of this app; none if it is gone, or a later version wrote it.
fn expanded_of(app: &AppKey, message: &MessageId, fields: Value) -> Option<Entry> {
    let entry = expanded::read(message, fields).ok().flatten();
    entry.filter(|entry| entry.app_id == app.id)
}
