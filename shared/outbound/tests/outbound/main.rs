//! Requests over real sockets, to servers that behave well and badly.

mod connects;
mod cuts;
mod http1;
mod proxies;
mod reach;
mod streams;
mod support;
