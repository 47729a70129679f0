//! What hyper serves: HTTP/2 connections, and single HTTP/1 requests that the fast path does not
//! take.
//!
//! - `http1`: one request, whose answer hyper does not write
//! - `http2`: one connection, until it ends
//! - `permits`: how many requests all HTTP/2 connections may have in work
//! - `answer`: one request, as the handlers answer it
//! - `replay`: the stream that hyper reads, which begins with what was read before hyper took over

mod answer;
mod http1;
mod http2;
mod permits;
mod replay;

pub(super) use self::{http1::answer_http1, http2::serve_http2};
