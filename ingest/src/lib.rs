//! push-ingest
