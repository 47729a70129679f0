//! How full the dictionaries of an app are.

use std::time::Duration;

use push_model::{app::AppKey, filter::Column, time::UnixMillis};
use push_store::{IndexError, redis::connection::reply};

use crate::{DICTIONARY_BYTES, DictionaryUse, redis::RedisIndex};

impl RedisIndex {
    /// Returns how full an app's dictionaries are, if they may matter.
    pub(super) async fn dictionary_use(
        &self,
        app: &AppKey,
    ) -> Result<Option<DictionaryUse>, IndexError> {
        let state = self.keys.dictionary_state(app);
        let mut get = redis::cmd("HMGET");
        get.arg(&state).arg(&["bytes", "grown", "refused", "swept_at", "retired_at"]);
        let mut numbers = reply::list(self.bulk.read(&get).await?)?.into_iter().map(reply::number);
        let mut next = || numbers.next().unwrap_or(Ok(None));
        let (bytes, grown, refused) = (next()?, next()?, next()?);
        let (swept_at, retired_at) = (next()?, next()?);
        let bytes = bytes.unwrap_or_default();
        // A value takes at least the overhead, so fewer bytes are too few values as well. Topics may be few and as many
        // as an app may have: then some were refused.
        let is_small = bytes < DICTIONARY_BYTES / 8 && refused.unwrap_or_default() == 0;
        let (columns, undeclared) = self.columns_to_sweep(app).await?;
        if is_small && retired_at.is_none() && undeclared.is_empty() {
            return Ok(None);
        }
        let mut lengths = redis::pipe();
        for column in &columns {
            let keys = self.keys.dictionary(app, *column);
            lengths.cmd("LLEN").arg(keys.values).cmd("LLEN").arg(keys.free);
        }
        let lengths: Vec<u64> = self
            .bulk
            .read_all(&lengths)
            .await?
            .into_iter()
            .map(|length| Ok(reply::number(length)?.unwrap_or_default()))
            .collect::<Result<_, IndexError>>()?;
        let mut used = DictionaryUse {
            bytes,
            grown: grown.unwrap_or_default(),
            refused: refused.unwrap_or_default(),
            sweeping: retired_at.is_some(),
            undeclared: !undeclared.is_empty(),
            ..DictionaryUse::default()
        };
        for (column, lengths) in columns.into_iter().zip(lengths.chunks_exact(2)) {
            let values = lengths[0].saturating_sub(lengths[1]);
            match column {
                Column::BuiltIn(attribute) => used.values[attribute.index()] = values,
                Column::Custom(_) | Column::Topic => {
                    used.note_other(column, values, self.most_values(column) as u64);
                }
            }
        }
        let now = UnixMillis::now().0 / 1000;
        used.since_sweep = swept_at.map(|at| Duration::from_secs(now.saturating_sub(at)));
        Ok(Some(used))
    }
}
