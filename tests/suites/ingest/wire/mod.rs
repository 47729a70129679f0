//! Connections that carry something else than one usual request after the other. Each test runs
//! with the fast path and without it.

mod malformed;
mod sequence;
mod slow;
mod unread;
