//! push-fanout-worker
