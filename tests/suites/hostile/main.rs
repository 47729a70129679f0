//! What a hostile tenant, device or stranger does to the others: each attack in a bounded form, and
//! how those who do nothing wrong are served meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod connections;
