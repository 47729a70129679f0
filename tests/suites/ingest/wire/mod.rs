//! Connections that carry something other than one ordinary request after the other. Each test runs
//! with the fast path and without it.

mod malformed;
mod sequence;
mod slow;
mod unread;
