//! The audit trail: one list of JSON.

use async_trait::async_trait;
use push_model::audit::AuditEvent;
use push_store::{IndexError, redis::connection::reply};

use super::RedisIndex;
use crate::AuditTrail;

#[async_trait]
impl AuditTrail for RedisIndex {
    async fn append_audit(&self, event: &AuditEvent, keep: usize) -> Result<(), IndexError> {
        let event = serde_json::to_string(event)
            .map_err(|error| IndexError::Corrupt(format!("an audit event: {error}")))?;
        let mut append = self.scripts.append_audit.call(&[&self.keys.audit()]);
        append.arg(event).arg(keep);
        append.run(&self.quick).await.map(drop)
    }

    async fn audit(&self, limit: usize) -> Result<Vec<AuditEvent>, IndexError> {
        let Some(last) = limit.checked_sub(1) else { return Ok(Vec::new()) };
        let mut read = redis::cmd("LRANGE");
        read.arg(self.keys.audit()).arg(0).arg(last);
        let events = reply::list(self.bulk.read(&read).await?)?.into_iter();
        let events = events.map(reply::text).collect::<Result<Vec<_>, _>>()?;
        Ok(events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect())
    }
}
