//! Connections that carry something else than one usual request after the other.

mod malformed;
mod sequence;
mod slow;
mod unread;
