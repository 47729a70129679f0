//! The state that all connections of a broker share.

use std::{fmt, sync::Arc, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    authentication::{DeviceAuthenticator, WorkerPassword},
    sessions::Sessions,
};

/// The listener that a connection came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// The public listener.
    Devices,
    /// The workers' own listener. A worker always finds a free connection there, its password cannot be
    /// tried on the public one, and only workers may send large packets.
    Worker,
}

pub(super) struct Context {
    pub(super) sessions: Arc<Sessions>,
    pub(super) devices: Arc<dyn DeviceAuthenticator>,
    pub(super) worker: WorkerPassword,
    /// The longest time that a session outlives its connection.
    pub(super) longest_keep: Duration,
    pub(super) stop: CancellationToken,
    pub(super) connections: TaskTracker,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}
