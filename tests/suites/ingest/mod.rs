//! The HTTP contract of `ingest`, over real sockets, with RabbitMQ and Redis behind it. Most tests
//! write their requests byte by byte, to send what a well-behaved client would never send.

mod answers;
mod audience;
mod batch_requests;
mod device_tokens;
mod devices;
mod http2;
mod limits;
mod message_list;
mod outages;
mod profiles;
mod random;
mod secrets;
mod statuses;
mod stopping;
mod tls;
mod transports;
mod wire;

use push_test_service as support;
