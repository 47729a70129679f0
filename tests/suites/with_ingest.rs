//! The suites that run an `ingest` in the test's own process. The others are in `main.rs`.

mod hostile;
mod ingest;
