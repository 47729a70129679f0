//! Requests over real sockets, to servers that behave well and badly.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod addresses;
mod connects;
mod cuts;
mod frozen;
mod http1;
mod proxies;
mod reach;
mod streams;
mod support;
mod waiting;
