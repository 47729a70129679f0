//! The columns in which a sweep looks for codes that devices have.

use push_model::{app::AppKey, attributes::Attribute, custom::CustomId, filter::Column};
use push_store::{
    IndexError,
    redis::{connection::reply, keys::column_name},
};

use super::{HAS_COLUMN, sweep::CodeSet};
use crate::{
    Apps as _,
    redis::{
        RedisIndex,
        layout::{SEGMENT_SLOTS, SHARDS},
    },
};

impl RedisIndex {
    /// Every column of an app that has a dictionary, and the custom attributes among them that the app does not declare
    /// any more. Nothing is taken for undeclared without a record of the app that says so.
    pub(super) async fn columns_to_sweep(
        &self,
        app: &AppKey,
    ) -> Result<(Vec<Column>, Vec<CustomId>), IndexError> {
        let others = self.other_columns(app).await?;
        let record = match others.is_empty() {
            true => None,
            false => self.app(&app.id).await.unwrap_or_default(),
        };
        let record = record.filter(|record| record.generation == app.generation);
        let mut undeclared = Vec::new();
        if let Some(record) = record {
            undeclared.extend(others.iter().filter_map(|column| match column {
                Column::Custom(id) => record.attributes.by_id(*id).is_none().then_some(*id),
                Column::BuiltIn(_) | Column::Topic => None,
            }));
        }
        let columns = Attribute::ALL.map(Column::BuiltIn).into_iter().chain(others);
        Ok((columns.collect(), undeclared))
    }

    /// Deletes the planes of custom attributes. Devices keep codes of them in their records, which have no meaning.
    pub(super) async fn delete_planes(
        &self,
        app: &AppKey,
        attributes: &[CustomId],
    ) -> Result<(), IndexError> {
        if attributes.is_empty() {
            return Ok(());
        }
        for shard in 0..SHARDS {
            let keys = self.keys.shard(app, shard);
            let height = self.shard_size(&keys).await?.height;
            for segment in 0..height.div_ceil(SEGMENT_SLOTS) {
                let mut unlink = redis::cmd("UNLINK");
                for column in attributes.iter().map(|id| Column::Custom(*id)) {
                    unlink.arg(keys.low(column, segment)).arg(keys.high(column, segment));
                }
                self.bulk.command(&unlink).await?;
            }
        }
        Ok(())
    }

    /// Deletes those of these dictionaries that have no values left.
    pub(super) async fn delete_dictionaries(
        &self,
        app: &AppKey,
        attributes: &[CustomId],
    ) -> Result<(), IndexError> {
        for column in attributes.iter().map(|id| Column::Custom(*id)) {
            let keys = self.keys.dictionary(app, column);
            let left = self.bulk.read(redis::cmd("HLEN").arg(&keys.codes)).await?;
            if reply::number(left)?.unwrap_or_default() == 0 {
                let mut delete = redis::cmd("UNLINK");
                delete.arg(&keys.all());
                self.bulk.command(&delete).await?;
                let mut forget = redis::cmd("HDEL");
                forget.arg(self.keys.dictionary_state(app));
                forget.arg(format!("{HAS_COLUMN}{}", column_name(column)));
                self.bulk.command(&forget).await?;
            }
        }
        Ok(())
    }

    /// The codes of some columns that devices have.
    pub(super) async fn codes_of_devices(
        &self,
        app: &AppKey,
        columns: &[Column],
    ) -> Result<Vec<CodeSet>, IndexError> {
        let mut seen = vec![CodeSet::new(); columns.len()];
        if columns.is_empty() {
            return Ok(seen);
        }
        for shard in 0..SHARDS {
            let keys = self.keys.shard(app, shard);
            let height = self.shard_size(&keys).await?.height;
            for first in (0..height).step_by(SEGMENT_SLOTS as usize) {
                let segment = first / SEGMENT_SLOTS;
                let slots = (height - first).min(SEGMENT_SLOTS) as usize;
                let mut read = redis::pipe();
                for column in columns {
                    match column {
                        Column::Topic => read.cmd("HKEYS").arg(keys.topics(segment)),
                        column => {
                            read.cmd("GET").arg(keys.low(*column, segment));
                            read.cmd("GET").arg(keys.high(*column, segment))
                        }
                    };
                }
                let mut answers = self.bulk.read_all(&read).await?.into_iter();
                let mut next = || answers.next().unwrap_or_default();
                for (column, seen) in columns.iter().zip(&mut seen) {
                    if *column == Column::Topic {
                        for code in reply::list(next())? {
                            let code =
                                reply::number(code)?.and_then(|code| u16::try_from(code).ok());
                            code.into_iter().for_each(|code| seen.insert(code));
                        }
                        continue;
                    }
                    let low = reply::bytes(next())?.unwrap_or_default();
                    let high = reply::bytes(next())?.unwrap_or_default();
                    // Those of custom attributes only reach as far as devices have values.
                    if low.len() < slots && matches!(column, Column::BuiltIn(_)) {
                        // A code that is not seen would be freed.
                        let lost = "a column of codes is shorter than its shard";
                        return Err(IndexError::Corrupt(lost.to_owned()));
                    }
                    for (slot, low) in low.into_iter().enumerate() {
                        let high = high.get(slot).copied().unwrap_or_default();
                        seen.insert(u16::from_be_bytes([high, low]));
                    }
                }
            }
        }
        Ok(seen)
    }
}
