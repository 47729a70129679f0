//! The table of all routes. Nothing is served below `/v1/admin/` that is not in it, so nothing is served without a
//! role.

use std::sync::Arc;

use axum::{
    handler::Handler,
    middleware,
    routing::{MethodFilter, MethodRouter, on},
};
use push_model::admin_key::Role::{self, Admin, Operator, Viewer};

use super::{apps, guard, health};
use crate::{
    access::Reach::{self, App, Own, Whole},
    core::Core,
};

/// A route.
#[derive(Debug)]
pub(crate) struct Route {
    /// `GET` and so on.
    pub(crate) method: MethodFilter,
    /// The path, with `{app_id}` for the app that it is about.
    pub(crate) path: &'static str,
    /// The weakest role that may call it.
    pub(crate) needs: Role,
    /// The extent of the call.
    pub(crate) reach: Reach,
    handler: MethodRouter<Arc<Core>>,
}

impl Route {
    fn new<H, T>(
        method: MethodFilter,
        path: &'static str,
        needs: Role,
        reach: Reach,
        handler: H,
    ) -> Self
    where
        H: Handler<T, Arc<Core>>,
        T: 'static,
    {
        Self { method, path, needs, reach, handler: on(method, handler) }
    }

    /// The handler behind the check of the caller.
    pub(crate) fn guarded(self, core: &Arc<Core>) -> MethodRouter<Arc<Core>> {
        let guard = guard::Guard { core: Arc::clone(core), needs: self.needs, reach: self.reach };
        self.handler.layer(middleware::from_fn_with_state(guard, guard::check))
    }
}

const GET: MethodFilter = MethodFilter::GET;

/// All routes.
pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(GET, "/v1/admin/me", Viewer, Own, health::me),
        Route::new(GET, "/v1/admin/health", Viewer, Own, health::health),
        Route::new(GET, "/v1/admin/apps", Viewer, Own, apps::list),
        Route::new(GET, "/v1/admin/apps/{app_id}", Viewer, App, apps::show),
    ]
}
