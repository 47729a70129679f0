//! Remembering evicted entries for a while.
//!
//! A closed entry may be evicted while the queue message that closed it is not yet acknowledged. If
//! that is delivered again, the missing entry looks as if nothing had been sent. So each stripe has a
//! short list with the marks of the entries that were evicted last. The scripts that begin an entry
//! look for its mark (`scripts/pages.lua`): the list has the hash tag of the pages.

use push_store::{IndexError, redis::keys::StripeKeys};

use crate::{ledger::EVICTION_KEPT, redis::RedisLedger};

/// The most marks of a stripe: about 5 KB.
const MOST: isize = 512;

impl RedisLedger {
    /// Adds marks. It comes before the eviction, so that no entry is missing without its mark.
    pub(super) async fn add_marks(
        &self,
        stripe: &StripeKeys,
        marks: &[u64],
    ) -> Result<(), IndexError> {
        if marks.is_empty() {
            return Ok(());
        }
        let key = stripe.evicted();
        let mut add = redis::pipe();
        add.cmd("LPUSH").arg(&key).arg(marks);
        add.cmd("LTRIM").arg(&key).arg(0).arg(MOST - 1);
        add.cmd("EXPIRE").arg(&key).arg(EVICTION_KEPT.as_secs());
        match self.bulk.commands(&add).await {
            // A server without memory permits evictions and refuses to store marks.
            Ok(_) | Err(IndexError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
