//! push-tests
