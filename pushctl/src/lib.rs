//! pushctl
