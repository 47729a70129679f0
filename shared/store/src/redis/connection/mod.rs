//! The connections to Redis.
//!
//! - [`link`]: shared connections to one server or to a cluster.
//! - [`node`]: the connection to one server, which is made anew when it breaks.
//! - [`cluster`]: one such connection to each master. [`slots`]: which master has which hash slots.
//! - [`server`]: one server or a cluster, by URL. [`request`]: how a server is sent a request.
//! - [`failure`]: what an error says of the request: refused, unreachable, unsure or corrupt.
//! - [`reply`]: reading the values of an answer.

mod cluster;
mod failure;
mod link;
mod node;
pub mod reply;
mod request;
mod server;
pub mod slots;

pub(super) use self::server::Server;
pub use self::{
    failure::{CORRUPT, Failure, OTHER_VERSION},
    link::Link,
};
