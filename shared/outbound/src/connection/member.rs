//! What a connection's driver knows of the pool that the connection is in.

use super::{End, liveness::Usage};

/// The place of one connection in a pool.
pub(crate) trait Member: Sync {
    /// Returns its use now; `None` if the pool is gone.
    fn usage(&self) -> Option<Usage>;

    /// Tells the pool that the server changed the limit of requests at a time.
    fn limit(&self, stated: usize);

    /// Takes it out of use: requests in flight go on, new ones go elsewhere.
    fn retire(&self, end: End);

    /// Waits until its use has changed.
    fn woken(&self) -> impl Future<Output = ()> + Send;

    /// Waits until the service stops.
    fn cancelled(&self) -> impl Future<Output = ()> + Send;
}
