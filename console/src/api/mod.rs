//! The routes of `/v1/admin/`.
//!
//! - `routes`: the table of all routes, each with the role that it needs
//! - `guard`: finds the caller of a request, and compares its rights with those that the route needs
//! - `input`: paths, queries and bodies
//! - `answer`: answers, all in one envelope
//! - the others: the handlers, by what they are about

mod answer;
mod apps;
mod attributes;
mod audit;
mod dead_letters;
mod devices;
pub(crate) mod guard;
mod health;
mod input;
mod keys;
mod messages;
mod routes;
mod secrets;
mod transports;
mod users;

use std::sync::Arc;

use axum::{Router, routing::get};

use self::answer::Described;
use crate::{access::Refused, core::Core};

/// The description of the API (OpenAPI 3.1), which needs no key.
const DESCRIPTION: &str = "/openapi.json";

/// Makes the router of all routes.
pub(crate) fn router(core: Arc<Core>) -> Router {
    let mut router = Router::new();
    for route in routes::routes() {
        router = router.route(route.path, route.guarded(&core));
    }
    router
        .route(DESCRIPTION, get(async || Described))
        .method_not_allowed_fallback(async || Refused::NoSuchMethod)
        .fallback(async || Refused::NoSuchPath)
        .with_state(core)
}
