//! The table of all routes. Nothing is served below `/v1/admin/` that is not in it, so nothing is served without a
//! role.

use std::sync::Arc;

use axum::{
    handler::Handler,
    middleware,
    routing::{MethodFilter, MethodRouter, on},
};
use http::Method;
use push_model::admin_key::Role::{self, Admin, Operator, Viewer};

use super::{
    apps, attributes, audit, dead_letters, devices, guard, health, keys, messages, secrets,
    transports, users,
};
use crate::{
    access::Reach::{self, App, Own, Whole},
    core::Core,
};

/// A route.
#[derive(Debug)]
pub(crate) struct Route {
    /// `GET` and so on.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests compare it with the description"))]
    pub(crate) method: Method,
    /// The path, with `{app_id}` for the app that it is about.
    pub(crate) path: &'static str,
    /// The weakest role that may call it.
    pub(crate) needs: Role,
    /// The extent of the call.
    pub(crate) reach: Reach,
    handler: MethodRouter<Arc<Core>>,
}

impl Route {
    fn new<H, T>(method: Method, path: &'static str, needs: Role, reach: Reach, handler: H) -> Self
    where
        H: Handler<T, Arc<Core>>,
        T: 'static,
    {
        let handler = on(filter(&method), handler);
        Self { method, path, needs, reach, handler }
    }

    /// The handler behind the check of the caller.
    pub(crate) fn guarded(self, core: &Arc<Core>) -> MethodRouter<Arc<Core>> {
        let guard = guard::Guard { core: Arc::clone(core), needs: self.needs, reach: self.reach };
        self.handler.route_layer(middleware::from_fn_with_state(guard, guard::check))
    }
}

/// The filter of a method of the table.
fn filter(method: &Method) -> MethodFilter {
    match *method {
        POST => MethodFilter::POST,
        PUT => MethodFilter::PUT,
        PATCH => MethodFilter::PATCH,
        DELETE => MethodFilter::DELETE,
        _ => MethodFilter::GET,
    }
}

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;

const ME: &str = "/v1/admin/me";
const HEALTH: &str = "/v1/admin/health";
const KEYS: &str = "/v1/admin/keys";
const ONE_KEY: &str = "/v1/admin/keys/{name}";
const AUDIT: &str = "/v1/admin/audit";
const APPS: &str = "/v1/admin/apps";
const ONE_APP: &str = "/v1/admin/apps/{app_id}";
const DISABLE: &str = "/v1/admin/apps/{app_id}/disable";
const ENABLE: &str = "/v1/admin/apps/{app_id}/enable";
const ROTATE: &str = "/v1/admin/apps/{app_id}/rotate-secret";
const SECRETS: &str = "/v1/admin/apps/{app_id}/secrets";
const ONE_SECRET: &str = "/v1/admin/apps/{app_id}/secrets/{name}";
const TRANSPORTS: &str = "/v1/admin/apps/{app_id}/transports";
const ONE_TRANSPORT: &str = "/v1/admin/apps/{app_id}/transports/{transport}";
const TEST: &str = "/v1/admin/apps/{app_id}/transports/{transport}/test";
const ATTRIBUTES: &str = "/v1/admin/apps/{app_id}/attributes";
const ONE_ATTRIBUTE: &str = "/v1/admin/apps/{app_id}/attributes/{name}";
const ONE_USER: &str = "/v1/admin/apps/{app_id}/users/{user_id}";
const DEVICES: &str = "/v1/admin/apps/{app_id}/devices";
const ONE_DEVICE: &str = "/v1/admin/apps/{app_id}/devices/{client_id}";
const DEVICE_COUNTS: &str = "/v1/admin/apps/{app_id}/device-counts";
const GONE: &str = "/v1/admin/apps/{app_id}/gone-devices";
const MESSAGES: &str = "/v1/admin/apps/{app_id}/messages";
const ONE_MESSAGE: &str = "/v1/admin/apps/{app_id}/messages/{message_id}";
const RECALL: &str = "/v1/admin/apps/{app_id}/messages/{message_id}/recall";
const DEAD_LETTERS: &str = "/v1/admin/dead-letters";
const ONE_DEAD_LETTER: &str = "/v1/admin/dead-letters/{id}";
const REPLAY: &str = "/v1/admin/dead-letters/replay";
const DROP: &str = "/v1/admin/dead-letters/drop";

/// All routes.
pub(crate) fn routes() -> Vec<Route> {
    let mut routes = of_installation();
    routes.extend(of_apps());
    routes
}

fn of_installation() -> Vec<Route> {
    vec![
        Route::new(GET, ME, Viewer, Own, health::me),
        Route::new(GET, HEALTH, Viewer, Own, health::health),
        Route::new(GET, AUDIT, Viewer, Own, audit::list),
        Route::new(GET, KEYS, Admin, Whole, keys::list),
        Route::new(POST, KEYS, Admin, Whole, keys::add),
        Route::new(DELETE, ONE_KEY, Admin, Whole, keys::revoke),
        Route::new(GET, DEAD_LETTERS, Viewer, Own, dead_letters::list),
        Route::new(GET, ONE_DEAD_LETTER, Viewer, Own, dead_letters::show),
        Route::new(POST, REPLAY, Operator, Own, dead_letters::replay),
        Route::new(POST, DROP, Operator, Own, dead_letters::drop_letters),
    ]
}

fn of_apps() -> Vec<Route> {
    vec![
        Route::new(GET, APPS, Viewer, Own, apps::list),
        Route::new(POST, APPS, Admin, Whole, apps::create),
        Route::new(GET, ONE_APP, Viewer, App, apps::show),
        Route::new(PATCH, ONE_APP, Admin, App, apps::change),
        Route::new(DELETE, ONE_APP, Admin, App, apps::remove),
        Route::new(POST, DISABLE, Admin, App, apps::disable),
        Route::new(POST, ENABLE, Admin, App, apps::enable),
        Route::new(POST, ROTATE, Admin, App, secrets::rotate),
        Route::new(GET, SECRETS, Viewer, App, secrets::list),
        Route::new(POST, SECRETS, Admin, App, secrets::add),
        Route::new(DELETE, ONE_SECRET, Admin, App, secrets::revoke),
        Route::new(GET, TRANSPORTS, Viewer, App, transports::list),
        Route::new(PUT, ONE_TRANSPORT, Admin, App, transports::set),
        Route::new(DELETE, ONE_TRANSPORT, Admin, App, transports::remove),
        Route::new(POST, TEST, Operator, App, transports::test),
        Route::new(GET, ATTRIBUTES, Viewer, App, attributes::list),
        Route::new(POST, ATTRIBUTES, Admin, App, attributes::add),
        Route::new(DELETE, ONE_ATTRIBUTE, Admin, App, attributes::remove),
        Route::new(GET, ONE_USER, Viewer, App, users::show),
        Route::new(DELETE, ONE_USER, Operator, App, users::remove),
        Route::new(GET, DEVICES, Viewer, App, devices::list),
        Route::new(GET, ONE_DEVICE, Viewer, App, devices::show),
        Route::new(PUT, ONE_DEVICE, Operator, App, devices::put),
        Route::new(PATCH, ONE_DEVICE, Operator, App, devices::patch),
        Route::new(DELETE, ONE_DEVICE, Operator, App, devices::remove),
        Route::new(GET, DEVICE_COUNTS, Viewer, App, devices::counts),
        Route::new(GET, GONE, Viewer, App, devices::gone),
        Route::new(GET, MESSAGES, Viewer, App, messages::list),
        Route::new(GET, ONE_MESSAGE, Viewer, App, messages::show),
        Route::new(POST, RECALL, Operator, App, messages::recall),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_description_has_every_route_with_the_role_that_it_needs() {
        let described: Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
        let mut expected = BTreeSet::new();
        for route in routes() {
            let (method, role) = (route.method.as_str().to_lowercase(), route.needs.name());
            assert!(expected.insert(format!("{method} {} {role}", route.path)), "listed twice");
        }
        let mut found = BTreeSet::new();
        for (path, operations) in described["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                if let Some(role) = operation["x-role"].as_str() {
                    found.insert(format!("{method} {path} {role}"));
                }
            }
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn no_change_is_open_to_viewers_and_routes_of_an_app_name_it() {
        for route in routes() {
            let (method, path) = (&route.method, route.path);
            assert!(*method == GET || route.needs > Viewer, "{method} {path}");
            assert_eq!(path.contains("{app_id}"), route.reach == App, "{method} {path}");
        }
    }
}
