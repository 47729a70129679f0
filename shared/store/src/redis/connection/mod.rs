//! The connection to Redis.
//!
//! - [`link`]: a shared connection that is made anew when it breaks.
//! - [`server`]: one server or a cluster, by URL, and how each is sent a request.
//! - [`failure`]: what an error says of the request: refused, unreachable, unsure or corrupt.
//! - [`reply`]: reading the values of an answer.

mod failure;
mod link;
pub mod reply;
mod server;

pub(super) use self::server::Server;
pub use self::{
    failure::{CORRUPT, Failure, OTHER_VERSION},
    link::Link,
};
