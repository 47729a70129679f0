//! The credentials of apps and the quotas of providers, from the index.

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use push_credentials::SealFile;
use push_index::Index;
use push_model::{
    app::{AppKey, ProviderAccount},
    device::TransportKind,
    pace::{Acquire, Grant, TheoreticalArrival, TrafficClass},
    time::{Clock, UnixMillis},
};
use sha2::{Digest as _, Sha256};

use super::{Credentials, NoCredential, Quotas};

/// The most accounts whose quota is kept locally.
const MOST_ACCOUNTS: usize = 10_000;

/// What providers need of the index.
pub struct StoredProviders {
    index: Arc<dyn Index>,
    seal: Option<Arc<SealFile>>,
    clock: Clock,
    /// What this worker has acquired. It holds where the index keeps no count, as in the embedded engine,
    /// which one worker uses.
    own: Mutex<HashMap<AppKey, TheoreticalArrival>>,
}

impl StoredProviders {
    /// Reads from this index, and unseals with the keys of this file.
    pub fn new(index: Arc<dyn Index>, seal: Option<Arc<SealFile>>, clock: Clock) -> Self {
        Self { index, seal, clock, own: Mutex::default() }
    }
}

#[async_trait]
impl Credentials for StoredProviders {
    async fn credential(
        &self,
        app: &AppKey,
        kind: TransportKind,
    ) -> Result<Option<Bytes>, NoCredential> {
        let record = self.index.app(&app.id).await.map_err(|_| NoCredential::Unavailable)?;
        let record = record.filter(|record| AppKey::from(record) == *app);
        let Some(account) = record.and_then(|mut record| record.transports.remove(&kind)) else {
            return Ok(None);
        };
        let sealed = |problem: String| NoCredential::Sealed(problem);
        let Some(seal) = &self.seal else {
            return Err(sealed("it is sealed, and this program has no --seal-key".to_owned()));
        };
        let context = ProviderAccount::context(&app.id, kind);
        let opened = seal.open_sealed(&account.sealed, &context);
        Ok(Some(opened.map_err(|error| sealed(error.to_string()))?.into()))
    }
}

#[async_trait]
impl Quotas for StoredProviders {
    async fn acquire(&self, account: &str, requests: u32, a_second: NonZeroU32) -> Option<Grant> {
        let class = TrafficClass::Broadcast;
        let request = Acquire { devices: requests, pace: a_second, class, now: self.now() };
        let key = quota_key(account)?;
        let own = {
            let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
            if own.len() >= MOST_ACCOUNTS && !own.contains_key(&key) {
                own.clear();
            }
            let arrival = own.entry(key.clone()).or_insert(TheoreticalArrival(0));
            let (moved, grant) = arrival.acquire(&request);
            *arrival = moved;
            grant
        };
        if !own.granted {
            return Some(own);
        }
        self.index.acquire_pace(&key, &request).await.ok()
    }

    fn now(&self) -> UnixMillis {
        (self.clock)()
    }
}

/// Returns the key under which the quota of an account is counted: that of an app whose generation no app
/// reaches.
fn quota_key(account: &str) -> Option<AppKey> {
    let digest = hex::encode(Sha256::digest(account.as_bytes()).get(..16)?);
    Some(AppKey { id: format!("provider-{digest}").parse().ok()?, generation: u64::MAX })
}

impl fmt::Debug for StoredProviders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredProviders").field("index", &self.index).finish_non_exhaustive()
    }
}
