//! What hyper serves: single HTTP/1 requests that the fast path does not take.
//!
//! - `http1`: one request, whose answer hyper does not write
//! - `answer`: one request, as the handlers answer it
//! - `replay`: the stream that hyper reads, which begins with what was read before hyper took over

mod answer;
mod http1;
mod replay;

pub(super) use self::http1::answer_http1;
