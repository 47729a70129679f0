//! The admin API: what operators do, over HTTP, on a listener of its own.
//!
//! Constraints it lives under:
//! - It has no logic of its own: a handler reads what the caller gave and calls a use case of [`push_operator`].
//! - It shares nothing with the service but queue and stores, so its load and its faults end there. Connections,
//!   requests, bodies and times are bounded (`server`), and a handler that panics ends its request alone.
//! - The rights of a key are compared in one place (`access`), which a page of a console asks as well.
//!
//! - `settings`: the flags
//! - `listener`, `server`: from a connection to a request
//! - `access`: keys, roles, and the callers that have them
//! - `core`: what handlers use
//! - `api`: the routes of `/v1/admin/`

mod access;
mod api;
mod core;
mod listener;
mod server;
mod settings;

use std::{convert::Infallible, sync::Arc};

use push_model::time::UnixMillis;
use tokio_util::sync::CancellationToken;

pub use crate::{
    access::{Access, Caller, Reach, Refused},
    core::{Core, Parts},
    listener::{ListenError, Listener},
    settings::{ConsoleArgs, ConsoleSettings},
};

/// Serves until `shutdown`, then finishes the requests in work.
///
/// # Errors
/// None: what cannot be finished in time is cut off and logged.
pub async fn run(
    listener: Listener,
    parts: Parts,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    let core = Arc::new(Core::new(parts, UnixMillis::now));
    let router = api::router(Arc::clone(&core));
    server::serve(listener, router, core, shutdown).await;
    Ok(())
}
