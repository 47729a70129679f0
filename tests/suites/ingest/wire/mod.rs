//! Connections that carry something other than one ordinary request after the other.

mod malformed;
mod sequence;
mod slow;
mod unread;
