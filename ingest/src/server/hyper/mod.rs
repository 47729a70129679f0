//! Connections that hyper serves: HTTP/2, and HTTP/1 in every form that the fast path does not
//! take.
//!
//! - `http1`, `http2`: one connection, until it ends
//! - `answer`: one request, as the handlers answer it
//! - `replay`: the stream that hyper reads, which begins with what was read before hyper took over
//! - `own_answers`: keeps back what hyper answers by itself

mod answer;
mod http1;
mod http2;
mod own_answers;
mod replay;

pub(super) use self::{http1::serve_http1, http2::serve_http2};
